"""The Python API: `join`, `world` and `variables`, with the errors of `mingle_hooks.errors`.

They do what `mingle env` and `mingle exec` do, and read the same settings. `render` is in scripts/script.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypedDict

from mingle_hooks import job, joining
from mingle_hooks.errors import MingleError, UsageError, limit
from mingle_hooks.export import frameworks, variables as export_variables
from mingle_hooks.rendezvous.member import Progress
from mingle_hooks.rendezvous.messages import View
from mingle_hooks.settings import TABLE, Bind, Order, Scope
from mingle_hooks.values import Counted, nearest

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Options(TypedDict, total=False):
    """The options of `mingle env`; an option that may be repeated takes a list, and `frameworks` is --for."""

    id: str
    nodes: int
    alone: bool
    rank: int
    master: str
    via: list[str]
    scope: Scope
    frameworks: list[str]
    iface: list[str]
    port_range: str
    port_hold: bool
    timeout: float | str
    slots: int | Counted
    order: Order
    bind: Bind
    key_file: str
    directory: str
    host_suffix: str
    strict: bool | list[str]
    insecure: bool


# Options of `mingle env` that only change its output.
PRINTED = ("shell", "quiet", "on_failure")


class _Listener:
    """An observer that passes notes to the caller and prints nothing."""

    def __init__(self, note: Callable[[str], None] | None) -> None:
        self._note, self.explain = note, note

    def progress(self, progress: Progress) -> None:
        """Do nothing: the caller knows that it waits."""

    def failed(self, error: MingleError) -> None:
        """Do nothing: join() raises the error."""

    def note(self, text: str) -> None:
        """Pass the text to the caller."""
        if self._note is not None:
            self._note(text)


def join(
    *,
    no_wait: bool = False,
    environ: Mapping[str, str] | None = None,
    note: Callable[[str], None] | None = None,
    **options: Unpack[Options],
) -> View:
    """Join the other members and return this member's view of the world; defaults come from the job.

    `environ` replaces os.environ, and `note` is called with each line that --explain would print on how the world
    formed. Waits for the others, at most `timeout`, and prints nothing. Raises the MingleError that `mingle env`
    would report.
    """
    known = [setting.name for setting in TABLE if setting.option and setting.name not in PRINTED]
    for name in options:
        if name not in known:
            raise UsageError("an option of mingle_hooks.join", name, nearest(name, known))
    try:
        spec = job.member_spec(os.environ if environ is None else environ, options)
        return joining.join(spec, _Listener(note), no_wait=no_wait)
    except (OSError, MemoryError, ImportError, RuntimeError) as error:
        if (short := limit(error)) is not None:
            raise short from error
        raise


@contextmanager
def world(**options: Unpack[Options]) -> Iterator[View]:
    """Join as `join` does, and set the variables in os.environ for the block, with its own values back afterwards.

    Raises what `join` and `variables` raise.
    """
    view = join(**options)
    before = export(view)
    try:
        yield view
    finally:
        _set(before)


def export(view: View) -> dict[str, str | None]:
    """Set the variables in os.environ in place of what an earlier mingle set; return what was there, None for unset.

    Raises what `variables` raises.
    """
    found = variables(view)
    after: dict[str, str | None] = {**dict.fromkeys(export_variables.stale(os.environ, found)), **found}
    before = {name: os.environ.get(name) for name in after}
    _set(after)
    return before


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def variables(view: View) -> dict[str, str]:
    """Return the variables that `mingle env` would export, by name, for os.environ or a child process.

    Raises UsageError where a framework reads a file, which only the commands write.
    """
    for name in view.frameworks:
        if frameworks.framework(name).files:
            raise UsageError("a framework that reads no file", name, f"`mingle exec --for {name}`")
    return {variable.name: variable.value for variable in export_variables.variables(view, view.frameworks)}
