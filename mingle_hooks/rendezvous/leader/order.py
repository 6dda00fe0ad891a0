"""Ranks by switch: who is below the same switch has neighbouring ranks, at each level of the network."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from mingle_hooks.topology import SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Sequence


def by_switch(paths: Sequence[str]) -> list[int]:
    """Return the places of the members, which are given in their usual order, in the new one.

    The first stays the first. Switches come in the order of their first member, so that as little as possible
    changes; members of which nobody tells a switch are together, as if below one of their own.
    """
    places: dict[tuple[str, ...], int] = {}
    ways = [tuple(path.split(SEPARATOR)) for path in paths]
    for place, way in enumerate(ways):
        for level in range(1, len(way) + 1):
            places.setdefault(way[:level], place)

    def key(place: int) -> tuple[bool, list[int], int]:
        way = ways[place]
        return place > 0, [places[way[:level]] for level in range(1, len(way) + 1)], place

    return sorted(range(len(paths)), key=key)


def crossings(paths: Sequence[str]) -> int:
    """Return how many neighbours in rank are below different switches."""
    return sum(1 for one, next_one in itertools.pairwise(paths) if one != next_one)
