"""The command lines that every node of every job runs, read without click, which costs 30 ms to import.

Only what is plain: known options of `mingle env` and `mingle exec`, each with a value that does not look like
an option. Whatever else there is, help and mistakes included, is click's, which knows the same options.
"""

from __future__ import annotations

from mingle_hooks import values
from mingle_hooks.settings import TABLE
from mingle_hooks.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

FLAGS = {"--explain": "explain", "--no-wait": "no_wait"}
FLAGS |= {setting.option: setting.name for setting in TABLE if setting.option and setting.read is values.switch}
OPTIONS = {setting.option: setting.name for setting in TABLE if setting.option and setting.option not in FLAGS}


class Call(NamedTuple):
    """A command of the two, its flags and options by name, and for `exec` the command to become."""

    command: str
    options: dict[str, object]
    explain: bool = False
    no_wait: bool = False
    rest: tuple[str, ...] = ()


def read(arguments: Sequence[str]) -> Call | None:
    """Return the call, or None where click has to look at it."""
    if not arguments or arguments[0] not in ("env", "exec"):
        return None
    words = list(arguments[1:])
    rest: tuple[str, ...] = ()
    if arguments[0] == "exec":
        if "--" not in words:
            return None
        end = words.index("--")
        words, rest = words[:end], tuple(words[end + 1 :])
    options = _options(words)
    if options is None or (arguments[0] == "exec") != bool(rest):
        return None
    explain, no_wait = (options.pop(flag, False) is True for flag in ("explain", "no_wait"))
    return Call(arguments[0], options, explain, no_wait, rest)


def _options(words: list[str]) -> dict[str, object] | None:
    options: dict[str, object] = {}
    position = 0
    while position < len(words):
        name, is_joined, value = words[position].partition("=")
        position += 1
        if name in FLAGS and not is_joined:
            options[FLAGS[name]] = True
            continue
        if name not in OPTIONS:
            return None
        if not is_joined:
            if position == len(words) or words[position].startswith("-"):
                return None
            value = words[position]
            position += 1
        options[OPTIONS[name]] = value
    return options
