"""A launcher's own options, told from those of the program that it starts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mingle_hooks.errors import UsageError, printable
from mingle_hooks.values import holds

# What launchers call the number of nodes, a node's rank and rank 0's address.
_NODES = ("--nnodes", "--num-machines", "--num-nodes")
_RANK = ("--node-rank", "--machine-rank")
_ADDRESS = ("--master-addr", "--rdzv-endpoint", "--main-process-ip", "--address")
_LOOPBACK = ("localhost", "127.", "::1", "[::1]")


def leaves(name: str, value: str, nodes: int | None, rank: int | None) -> bool:
    """Tell whether a launcher's option takes it out of a world of several nodes, in which this one has that rank."""
    name = hyphens(name)
    return (
        name == "--standalone"
        or (name in _NODES and nodes is not None and not holds(value, nodes))
        or (name in _RANK and value != str(rank))
        or (name in _ADDRESS and value.startswith(_LOOPBACK))
    )


def check(launcher: str, options: Mapping[str, str], nodes: int | None, rank: int | None) -> None:
    """Raise UsageError for an option that takes a launcher out of the world of several nodes."""
    for option, value in options.items() if nodes != 1 else ():
        if leaves(option, value, nodes, rank):
            said = printable(f"{option}={value}" if value else option, 80)
            seen = f"{said}, with which this node would train alone"
            expected = f"{launcher} in the world of {nodes or 'several'} nodes"
            raise UsageError(expected, seen, "leaving that option out, as mingle sets it")


def given(words: Sequence[str], flags: Collection[str]) -> dict[str, str]:
    """Return the options before the first word that is none, as option -> value; `flags` take no value.

    Names have hyphens within, and so have flags: Python's launchers take them and underscores alike.
    """
    return _split(words, flags)[0]


def script(words: Sequence[str], flags: Collection[str]) -> str | None:
    """Return the Python script behind a launcher's options; None where it starts something else, or is not certain.

    An option of a version to come may have no value, and then the next word would be the script.
    """
    options, position = _split(words, flags)
    is_script = position < len(words) and words[position].endswith(".py")
    if not is_script or any(word.endswith(".py") for word in words[:position]):
        return None
    return None if any(_starts_another(name) for name in options) else words[position]


def _starts_another(option: str) -> bool:
    """Tell whether this is -m or --no-python, or short for it."""
    return option.startswith("-m") or "--module".startswith(option) or "--no-python".startswith(option)


def _split(words: Sequence[str], flags: Collection[str]) -> tuple[dict[str, str], int]:
    """Return the options before the first word that is none, and where that word is."""
    found: dict[str, str] = {}
    position = 0
    while position < len(words) and words[position].startswith("-") and words[position] != "--":
        name, is_joined, value = words[position].partition("=")
        name = hyphens(name)
        position += 1
        if not is_joined and name not in flags and position < len(words):
            value = words[position]
            position += 1
        found[name] = value
    return found, position


def absent(options: Mapping[str, object], asked: Mapping[str, str]) -> tuple[str, ...]:
    """Return these options as words, without those that the user gave; one with the value None is a flag."""
    wanted = {name: value for name, value in options.items() if hyphens(name) not in asked}
    return tuple(word for name, value in wanted.items() for word in (name, *([] if value is None else [str(value)])))


def hyphens(name: str) -> str:
    """Return an option's name with hyphens instead of underscores."""
    return name.replace("_", "-")
