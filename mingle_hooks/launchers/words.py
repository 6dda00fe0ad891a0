"""A launcher's own options, told from those of the program that it starts."""

from __future__ import annotations

from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


def given(words: Sequence[str], flags: Collection[str]) -> dict[str, str]:
    """Return the options before the first word that is none, as option -> value; `flags` take no value.

    Names have hyphens within, and so have flags: Python's launchers take them and underscores alike.
    """
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
    return found


def absent(options: Mapping[str, object], asked: Mapping[str, str]) -> tuple[str, ...]:
    """Return these options as words, without those that the user gave; one with the value None is a flag."""
    wanted = {name: value for name, value in options.items() if hyphens(name) not in asked}
    return tuple(word for name, value in wanted.items() for word in (name, *([] if value is None else [str(value)])))


def hyphens(name: str) -> str:
    """Return an option's name with hyphens instead of underscores."""
    return name.replace("_", "-")
