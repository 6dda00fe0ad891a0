"""The command lines that every node of every job runs, read without click, which costs 30 ms to import.

Only what is plain: known options of `mingle env` and `mingle exec`, each with a value that does not look like
an option. Anything else, help and mistakes included, is left to click, which knows the same options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks import values
from mingle_hooks.settings import NO_STRICT, TABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Literal

FLAGS = {
    "--explain": "explain",
    "--no-wait": "no_wait",
    NO_STRICT: "no_strict",
    "--together": "together",
    "--verbatim": "verbatim",
    "--keep-key": "keep_key",
}
# What starts nothing does not have these.
ONLY_STARTED = ("together", "verbatim", "keep_key")
_SWITCHES = (values.switch, values.differences)  # what an option without a value sets
FLAGS |= {setting.option: setting.name for setting in TABLE if setting.option and setting.read in _SWITCHES}
OPTIONS = {setting.option: setting.name for setting in TABLE if setting.option and setting.option not in FLAGS}


class Call(NamedTuple):
    """A command of the two, its flags and options by name, and for `exec` the command to become."""

    command: Literal["env", "exec"]
    options: dict[str, object]
    explain: bool = False
    no_wait: bool = False
    together: bool = False
    verbatim: bool = False
    keep_key: bool = False
    rest: tuple[str, ...] = ()


def read(arguments: Sequence[str]) -> Call | None:
    """Return the call, or None where click has to look at it.

    The options of `exec` end at the first word that is none, or at `--`: what follows is the command's own.
    """
    if not arguments or arguments[0] not in ("env", "exec"):
        return None
    found = split(arguments[1:])
    if found is None:
        return None
    options, rest = found
    if rest[:1] == ("--",) and arguments[0] == "exec":
        rest = rest[1:]
    is_exec = arguments[0] == "exec"
    if is_exec != bool(rest) or not (is_exec or options.keys().isdisjoint(ONLY_STARTED)):
        return None
    flags = {flag: options.pop(flag, False) is True for flag in ("explain", "no_wait", *ONLY_STARTED)}
    return Call("exec" if arguments[0] == "exec" else "env", options, **flags, rest=rest)


def split(
    words: Sequence[str], flags: Mapping[str, str] = FLAGS, texts: Mapping[str, str] = OPTIONS
) -> tuple[dict[str, object], tuple[str, ...]] | None:
    """Return the options, and the words from the first on that is none; None for an option that is not plain.

    `flags` and `texts` are the options that there are, without and with a value, and their names.
    """
    options: dict[str, object] = {}
    position = 0
    while position < len(words):
        name, is_joined, value = words[position].partition("=")
        if name in flags and not is_joined:
            options[flags[name]] = True
        elif name in texts:
            if not is_joined:
                position += 1
                if position == len(words) or words[position].startswith("-"):
                    return None
                value = words[position]
            options[texts[name]] = value
        elif name == "--" or not name.startswith("-"):
            break
        else:
            return None
        position += 1
    return options, tuple(words[position:])
