"""Whom to name where ways between hosts are bad: a host for all that is its own, else a pair, else the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Literal

    Way = tuple[str, str]  # from a host to another
    Direction = Literal["in", "out", "both", "pair", "way", "all"]

# Of a host's ways in one direction so many, and at least half of them, are bad where it is the host.
_LEAST_OF_A_HOST = 2
# Where more than two thirds of all ways are bad it is nobody's own.
_MOST_OF_HOSTS = 2 / 3


class Cause(NamedTuple):
    """What is wrong: with what comes to a host, or goes out, or both; with a pair, or one way of it; or with all."""

    direction: Direction
    hosts: tuple[str, ...]
    ways: frozenset[Way]  # those that it explains


def causes(bad: Iterable[Way], tested: Collection[Way]) -> tuple[Cause, ...]:
    """Return the fewest causes that explain all ways that are bad, those that explain most first."""
    left, hosts = set(bad), list(dict.fromkeys(host for way in tested for host in way))
    if len(hosts) > 2 and len(left) > len(set(tested)) * _MOST_OF_HOSTS:  # noqa: PLR2004 - more than one pair
        return (Cause("all", tuple(hosts), frozenset(left)),)
    totals: tuple[dict[str, int], dict[str, int]] = _counts(tested)
    found = []
    while left:
        most = max((_of_host(host, left, totals) for host in hosts), key=lambda cause: len(cause.ways))
        if not most.ways:
            break
        found.append(most)
        left -= most.ways
    return (*found, *_pairs(left))


def _counts(ways: Iterable[Way]) -> tuple[dict[str, int], dict[str, int]]:
    """Return how many ways go out of each host, and into it."""
    out: dict[str, int] = {}
    into: dict[str, int] = {}
    for one, other in ways:
        out[one] = out.get(one, 0) + 1
        into[other] = into.get(other, 0) + 1
    return out, into


def _of_host(host: str, bad: set[Way], totals: tuple[dict[str, int], dict[str, int]]) -> Cause:
    """Return what a host itself explains, nothing where too few of its ways are bad."""
    out = {way for way in bad if way[0] == host}
    into = {way for way in bad if way[1] == host}
    is_out = len(out) >= max(_LEAST_OF_A_HOST, totals[0].get(host, 0) / 2)
    is_in = len(into) >= max(_LEAST_OF_A_HOST, totals[1].get(host, 0) / 2)
    direction: Direction = "both" if is_out and is_in else "out" if is_out else "in"
    return Cause(direction, (host,), frozenset((out if is_out else set()) | (into if is_in else set())))


def _pairs(bad: set[Way]) -> list[Cause]:
    found = []
    for one, other in sorted(bad):
        if (other, one) not in bad:
            found.append(Cause("way", (one, other), frozenset({(one, other)})))
        elif one < other:
            found.append(Cause("pair", (one, other), frozenset({(one, other), (other, one)})))
    return found
