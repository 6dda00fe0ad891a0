"""Slurm's counts per node: ``2(x3),1`` stands for 2, 2, 2, 1."""

from __future__ import annotations

import re

from mingle_hooks.errors import FactsError
from mingle_hooks.schedulers.facts import MOST_NODES

_COUNT = re.compile(r"([0-9]{1,7})(?:\(x([0-9]{1,7})\))?")


def expand(text: str, *, most: int = MOST_NODES) -> tuple[int, ...]:
    """Return one count for each node, in node order; raise FactsError for anything else.

    Nothing is expanded before the number of nodes is known to be at most `most`.
    """
    parts = text.split(",", most)
    matches = [_COUNT.fullmatch(part) for part in parts]
    pairs = [(int(match[1]), int(match[2] or 1)) for match in matches if match]
    nodes = sum(repeat for _, repeat in pairs)
    if len(pairs) != len(parts) or not 1 <= nodes <= most:
        expected = f"counts for 1 to {most} nodes such as 2(x3),1"
        raise FactsError(expected, f"{text[:80]!r}", "unset the variable if it is left over from another job")
    return tuple(count for count, repeat in pairs for _ in range(repeat))
