"""What `mingle env` and `mingle exec` do: ask, wait where people can see it, and hand over the variables."""

from __future__ import annotations

import errno
import os
import sys

from mingle_hooks import runtime
from mingle_hooks.cli.waiting import Waiting
from mingle_hooks.digest import sha256
from mingle_hooks.errors import PlaceError, UsageError
from mingle_hooks.export import variables
from mingle_hooks.job import member_spec
from mingle_hooks.joining import join
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping

    from mingle_hooks.export.variables import Variable
    from mingle_hooks.export.view import File, View
    from mingle_hooks.job import MemberSpec
else:
    import _signal as signal  # without the enumerations, as in mingle_hooks.sockets

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as every shell says
FORMED = "MINGLE_RUN_FORMED"  # a supervisor's pipe, which hears that the world has formed


def print_variables(options: Mapping[str, object], *, explain: bool, no_wait: bool) -> None:
    """Print the variables in the language of a shell: all of them, at once, at the end.

    Raises what member_spec() and join() raise, PlaceError and UsageError.
    """
    from mingle_hooks.cli.stdout import write
    from mingle_hooks.export import shells

    spec = member_spec(os.environ, options)
    shells.check(spec.settings.shell)
    if "shell" not in spec.settings.sources:
        shells.check_reader()
    view, story = _joined(spec, explain=explain, no_wait=no_wait)
    found = _found(spec, view)
    if explain:
        _tell(spec, view, found, story)
    values = {variable.name: variable.value for variable in found}
    write(shells.success(spec.settings.shell, values, variables.stale(os.environ, values)))


def become(
    command: tuple[str, ...], options: Mapping[str, object], *, explain: bool, no_wait: bool, verbatim: bool
) -> None:
    """Set the variables and become the command, completed unless it is to be `verbatim`.

    Returns only where rank 0 starts it for all. Raises UsageError, with the shells' codes, where it cannot, and what
    member_spec() and join() raise.
    """
    from mingle_hooks import launchers

    spec = member_spec(os.environ, options)
    if spec.nodes != 1:
        from mingle_hooks.launchers import placement

        placement.check(command, spec, verbatim=verbatim)
    spec = spec if verbatim else launchers.asking(command, spec)
    view, story = _joined(spec, explain=explain, no_wait=no_wait, command=command)
    view = view if verbatim else launchers.placed(command, spec, view)
    if not verbatim and launchers.is_elsewhere(command, view):
        told = f"{command[0]} starts on rank 0's node, and reaches this one from there"
        Waiting(sys.stderr, quiet=spec.settings.quiet).note(told)
        return
    found = _found(spec, view)
    values = {variable.name: variable.value for variable in found}
    command = command if verbatim else launchers.completed(command, view, values)
    if explain:
        import shlex

        _tell(spec, view, found, [*story, f"becomes {shlex.join(command)}"])
    if FORMED in os.environ:
        from mingle_hooks.supervise import formed

        formed.tell(os.environ[FORMED], view)
    _become(command, values)


def stay(
    command: tuple[str, ...], options: Mapping[str, object], *, explain: bool, no_wait: bool, verbatim: bool
) -> int:
    """Run the command on all members as one; return its status. Who is alone, or in a run already, becomes it.

    Raises what become() raises, and what a run raises.
    """
    from mingle_hooks import launchers
    from mingle_hooks.cli.runline import words
    from mingle_hooks.launchers import placement
    from mingle_hooks.supervise import together

    spec = member_spec(os.environ, options)
    if spec.nodes == 1 or FORMED in os.environ:
        become(command, options, explain=explain, no_wait=no_wait, verbatim=verbatim)
        return 0
    placement.check(command, spec, verbatim=verbatim)
    launcher = None if verbatim else launchers.recognise(command)
    together.check(spec, launcher and launcher.starts, no_wait=no_wait)
    with Waiting(sys.stderr, quiet=spec.settings.quiet) as observer:
        view = join(spec, observer, wants_roster=True, command=None)  # the run's own members are compared
    own = {**options, "explain": explain, "verbatim": verbatim, **together.known(spec, view)}
    return together.together(command, spec, view, words(own))


def _become(command: tuple[str, ...], found: Mapping[str, str]) -> None:
    stale = {*variables.stale(os.environ, found), FORMED}
    environ = {name: value for name, value in os.environ.items() if name not in stale}
    # Python ignores SIGPIPE and SIGXFSZ, and what is ignored stays so in the command.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        _execute(command, {**environ, **found})
    except OSError as error:
        wrong = UsageError("a command that can be run", f"{command[0]}: {error.strerror}", "its full path")
        wrong.exit_code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        raise wrong from None


def _execute(command: tuple[str, ...], environ: dict[str, str]) -> None:
    """Become a command, found in PATH as execvp(3) does: os.execvpe loads the module `warnings` for that."""
    name, refusal = command[0], None
    directories = [""] if "/" in name else environ.get("PATH", os.defpath).split(":")
    for directory in directories:
        try:
            os.execve(os.path.join(directory, name), command, environ)  # noqa: S606 - the user's own command
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:  # it is there, and may not be run; another of this name may
            refusal = refusal or error
    raise refusal or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


def _joined(spec: MemberSpec, *, explain: bool, no_wait: bool, command: tuple[str, ...] = ()) -> tuple[View, list[str]]:
    """Return this member's view of the world, and how it formed where that is to be told."""
    story: list[str] = []
    waiting = Waiting(sys.stderr, quiet=spec.settings.quiet, tell=story.append if explain else None)
    with waiting as observer:
        return join(spec, observer, no_wait=no_wait, command=command), story


def _found(spec: MemberSpec, view: View) -> tuple[Variable, ...]:
    """Return the variables, and write the files that some of them name."""
    names = spec.settings.frameworks
    return variables.variables(view, names, _write(variables.files(view, names), spec, view))


def _tell(spec: MemberSpec, view: View, found: tuple[Variable, ...], story: list[str]) -> None:
    """Answer --explain."""
    from mingle_hooks.cli import stderr
    from mingle_hooks.export import explain as page
    from mingle_hooks.fabric.machine import hostname

    stderr.write(
        page.explain(hostname(), found, page.sources(spec, view), os.environ, [*story, *page.left_to_nccl(view)])
    )


def _write(files: tuple[File, ...], spec: MemberSpec, view: View) -> dict[str, str]:
    """Write each file whole into a private directory; return name -> path."""
    if not files:
        return {}
    name = f"world-{view.world.digest}-{sha256(spec.node.encode()).hexdigest()[:8]}"
    directory = runtime.path(spec.user_environ, spec.facts.job_id, name)
    runtime.make(directory)
    paths = {}
    for file in files:
        path = paths[file.name] = f"{directory}/{file.name}"
        try:
            with open(f"{path}.{os.getpid()}", "w") as draft:
                draft.write(file.text)
            os.replace(draft.name, path)
        except OSError as error:
            raise PlaceError(
                "to write a file for a framework", f"{path}: {error.strerror}", "XDG_RUNTIME_DIR"
            ) from error
    return paths
