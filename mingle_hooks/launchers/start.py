"""How `mingle exec` starts a command: with what its kind reads, by variables or on its own command line."""

from __future__ import annotations

from mingle_hooks.launchers import find, recognise
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mingle_hooks.export.view import View
    from mingle_hooks.join import Enquiry

# For a command that is no launcher, unless the user wants the bare world, or the other processes to be Lightning's.
OF_A_PROCESS = ("process", "cpu")


def asking(command: Sequence[str], enquiry: Enquiry) -> Enquiry:
    """Return the enquiry that asks for the command's own frameworks too."""
    launcher, names = recognise(command), enquiry.settings.frameworks
    more = launcher.frameworks if launcher else OF_A_PROCESS if _has_ranks(names) else ()
    return enquiry._replace(settings=enquiry.settings._replace(frameworks=tuple(dict.fromkeys((*names, *more)))))


def placed(command: Sequence[str], enquiry: Enquiry, view: View) -> View:
    """Return the view with ranks for a command that is no launcher, where each node runs one process of it."""
    place = view.place
    is_process = recognise(command) is None and _has_ranks(enquiry.settings.frameworks)
    if not is_process or view.scope != "node" or place.node_rank is None or view.world.size != view.world.nodes:
        return view
    return view._replace(place=place._replace(rank=place.node_rank, local_rank=0))


def is_elsewhere(command: Sequence[str], view: View) -> bool:
    """Tell whether rank 0 starts this command for all nodes, this one among them."""
    launcher = recognise(command)
    return launcher is not None and launcher.starts == "job" and (view.process or 0) > 0


def completed(command: Sequence[str], view: View, exported: Mapping[str, str]) -> tuple[str, ...]:
    """Return a launcher's command with what it needs to find its nodes; a command that needs nothing as it is.

    `exported` are the variables that it gets. What is added stands before the user's own options. Raises
    UsageError for options with which the launcher would not start this world.
    """
    found = find(command)
    is_known = None not in (view.world.nodes, view.place.node_rank, view.place.slots)
    if found is None or not found[0].completed_by or not is_known:
        return tuple(command)
    from importlib import import_module  # noqa: PLC0415 - only then

    launcher, end = found
    module = import_module(f"mingle_hooks.launchers.{launcher.completed_by}")
    added: tuple[str, ...] = module.options(tuple(command[:end]), tuple(command[end:]), view, exported)
    return (*command[:end], *added, *command[end:])


def _has_ranks(frameworks: tuple[str, ...]) -> bool:
    return bool(frameworks) and "lightning" not in frameworks
