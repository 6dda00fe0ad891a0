"""The command line of `mingle run`, read without click where it is plain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.cli import plain
from mingle_hooks.supervise.runner.planning import Options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mingle_hooks.supervise.runner.request import Request

# An option that may be repeated is not plain; nor is what only `mingle env` and a member know.
_REPEATED = ("start_option",)
_NOT_OURS = ("nodes", "rank", "no_wait", "shell", "on_failure", "together")
_OWN = {f"--{name.replace('_', '-')}": name for name in Options._fields if name not in _REPEATED}
_OWN_FLAGS = {option: name for option, name in _OWN.items() if Options._field_defaults[name] is False}
_FLAGS = {option: name for option, name in plain.FLAGS.items() if name not in _NOT_OURS} | _OWN_FLAGS
_TEXTS = {option: name for option, name in plain.OPTIONS.items() if name not in _NOT_OURS} | {
    option: name for option, name in _OWN.items() if option not in _OWN_FLAGS
}


def read(arguments: Sequence[str]) -> Request | None:
    """Return what `mingle run` with these arguments asks for; None where click has to look at them.

    Raises what `planning.request` raises.
    """
    found = plain.split(arguments, _FLAGS, _TEXTS)
    if found is None:
        return None
    given, command = found
    command = command[1:] if command[:1] == ("--",) else command
    return request(command, given) if command else None


def request(command: tuple[str, ...], given: Mapping[str, object]) -> Request:
    """Return what these options ask for, by name. Raises what `planning.request` raises."""
    from mingle_hooks.supervise.runner import planning

    own = {name: value for name, value in given.items() if name in Options._fields}
    members = {name: value for name, value in given.items() if name not in own}
    settings = {name: value for name, value in members.items() if name not in ("explain", "verbatim", "keep_key")}
    return planning.request(command, Options(**own), settings, words(members))  # type: ignore[arg-type]


def words(options: Mapping[str, object]) -> tuple[str, ...]:
    """Return options as `mingle exec` takes them."""
    known = {name: option for option, name in {**plain.OPTIONS, **plain.FLAGS}.items()}
    given = {known[name]: value for name, value in options.items() if value not in (None, False)}
    return tuple(option if value is True else f"{option}={value}" for option, value in given.items())
