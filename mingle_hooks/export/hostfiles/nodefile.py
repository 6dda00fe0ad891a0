"""A node file, as PBS_NODEFILE: a line for each process, so that a host stands there as often as it has slots."""

from __future__ import annotations

from collections.abc import Sequence

from mingle_hooks.world import Member


def text(members: Sequence[Member]) -> str:
    """Return a line for each slot, in the order of the ranks."""
    return "".join(f"{member.host}\n" * member.slots for member in members)
