"""Which hosts take part in an attempt, and with which ranks: old ranks are kept as far as there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def ranked(before: Sequence[str], here: Sequence[str], most: int) -> tuple[str, ...]:
    """Return at most `most` of the hosts that are here, in the order of their ranks.

    A host of the last attempt keeps its rank where the world is large enough for it; a gap goes to one whose rank no
    longer exists, then to those that waited, in their order.
    """
    count = min(most, len(here))
    there = set(here)
    kept = {rank: host for rank, host in enumerate(before[:count]) if host in there}
    moved = [host for host in before[count:] if host in there]
    rest = iter([*moved, *(host for host in here if host not in set(before))])
    return tuple(kept[rank] if rank in kept else next(rest) for rank in range(count))


def is_chosen_now(hosts: Sequence[str], here: Collection[str], most: int) -> bool:
    """Tell whether the first `most` hosts are all here, so that nobody who may come would have a rank instead."""
    return len(here) >= most and all(host in here for host in hosts[:most])
