"""Slurm's counts per node: ``2(x3),1`` stands for 2, 2, 2, 1."""

from __future__ import annotations

from mingle_hooks.errors import FactsError
from mingle_hooks.schedulers.facts import MOST_NODES
from mingle_hooks.values import number

MOST = 10**7 - 1


def expand(text: str, *, most: int = MOST_NODES) -> tuple[int, ...]:
    """Return one count for each node, in node order; raise FactsError for anything else.

    Nothing is expanded before the number of nodes is known to be at most `most`.
    """
    parts = text.split(",", most)
    pairs = [pair for part in parts if (pair := _pair(part)) is not None]
    nodes = sum(repeat for _, repeat in pairs)
    if len(pairs) != len(parts) or not 1 <= nodes <= most:
        expected = f"counts for 1 to {most} nodes such as 2(x3),1"
        raise FactsError(expected, f"{text[:80]!r}", "unset the variable if it is left over from another job")
    return tuple(count for count, repeat in pairs for _ in range(repeat))


def _pair(part: str) -> tuple[int, int] | None:
    """Return a count and for how many nodes it stands: 2 and 3 for ``2(x3)``; None for anything else."""
    count, mark, rest = part.partition("(x")
    repeat = rest.removesuffix(")") if mark else "1"
    tasks, nodes = number(count, most=MOST), number(repeat, most=MOST)
    if tasks is None or nodes is None or (mark and not rest.endswith(")")):
        return None
    return tasks, nodes
