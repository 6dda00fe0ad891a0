"""Which hosts to name if paths between hosts are bad: one that all bad paths share, else a pair, else the network."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from math import exp, lgamma
from typing import Literal, NamedTuple

from mingle_hooks.check import report as reports

Way = tuple[str, str]  # from one host to another
Counts = tuple[int, int]  # datagrams that were sent on a way, and that arrived
Direction = Literal["in", "out", "both", "pair", "way", "all"]

# A host is a cause if at least this many, and at least half, of its ways in one direction are bad.
_LEAST_OF_A_HOST = 2
# If more than two thirds of all ways are bad, no single host is the cause.
_MOST_OF_HOSTS = 2 / 3


class Cause(NamedTuple):
    """What is bad: the ways to a host, from it, or both; between a pair, or one way of it; or all, which names none."""

    direction: Direction
    hosts: tuple[str, ...]
    ways: frozenset[Way]  # those that it explains

    @property
    def confidence(self) -> reports.Confidence:
        """How sure it is, by how many others saw it."""
        return reports.confidence_of({host for way in self.ways for host in way}.difference(self.hosts))

    def text(self, texts: Mapping[str, str], network: str, detail: object = "") -> str:
        """Return the text of its direction, with hosts a and b, network n and a detail d."""
        return texts[self.direction].format(**dict(zip("ab", self.hosts, strict=False)), n=network, d=detail)


def find_causes(bad: Iterable[Way], tested: Collection[Way]) -> tuple[Cause, ...]:
    """Return the fewest causes that explain all bad ways, those that explain the most first."""
    left, hosts = set(bad), list(dict.fromkeys(host for way in tested for host in way))
    if len(hosts) > 2 and len(left) > len(set(tested)) * _MOST_OF_HOSTS:  # noqa: PLR2004 - more than one pair
        return (Cause("all", (), frozenset(left)),)
    count_out, count_into = Counter(one for one, _ in tested), Counter(other for _, other in tested)
    bad_out, bad_into = defaultdict[str, set[Way]](set), defaultdict[str, set[Way]](set)
    for one, other in left:
        bad_out[one].add((one, other))
        bad_into[other].add((one, other))

    def explained(host: str) -> tuple[set[Way], set[Way]]:
        """Return the bad ways from a host, and to it, that it explains by itself; none if they are too few."""
        is_out = len(bad_out[host]) >= max(_LEAST_OF_A_HOST, count_out[host] / 2)
        is_in = len(bad_into[host]) >= max(_LEAST_OF_A_HOST, count_into[host] / 2)
        return bad_out[host] if is_out else set(), bad_into[host] if is_in else set()

    found = []
    most = [(-sum(map(len, explained(host))), place, host) for place, host in enumerate(hosts)]
    heapify(most)
    while left and most:
        count, place, host = heappop(most)
        out, into = explained(host)
        if len(out) + len(into) < -count:  # others have explained some of them since
            heappush(most, (-len(out) - len(into), place, host))
        elif out or into:
            direction: Direction = "both" if out and into else "out" if out else "in"
            found.append(Cause(direction, (host,), frozenset(out | into)))
            left -= found[-1].ways
            for one, other in found[-1].ways:
                bad_out[one].discard((one, other))
                bad_into[other].discard((one, other))
    return (*found, *_of_pairs(left))


def _of_pairs(bad: set[Way]) -> Iterator[Cause]:
    for one, other in sorted(bad):
        if (other, one) not in bad:
            yield Cause("way", (one, other), frozenset({(one, other)}))
        elif one < other:
            yield Cause("pair", (one, other), frozenset({(one, other), (other, one)}))


# What loses datagrams.

# One datagram may always be lost.
_LEAST_LOST, _LEAST_SHARE = 2, 0.1
# A network that loses less than this share of all datagrams is only noted, and a host that does is not named.
LEAST_SHARE_OF_ALL = 0.02
# A host loses so many times the others' share: on a busy network some lose more than others.
_LEAST_TIMES = 2
# A loss is a host's or a pair's only if chance would put it there this seldom: once in 10,000 checks.
_LEAST_CHANCE = 1e-4
# Adding a number that is smaller by this factor does not change a sum.
_NOTHING = 1e-17


def is_lossy(sent: int, arrived: int) -> bool:
    """Return whether a way lost enough to be looked at."""
    return sent - arrived >= max(_LEAST_LOST, sent * _LEAST_SHARE)


def find_lossy(counted: Mapping[Way, Counts]) -> Iterator[Cause]:
    """Yield what loses more than chance explains: hosts by the sum of their ways, then hosts and pairs by bad ways.

    A host that loses a tenth has few bad ways, and those may look like bad pairs.
    """
    left, most = dict(counted), _LEAST_CHANCE / max(len(counted), 1)
    for cause in _lossy_hosts(counted, most):
        yield cause
        for way in cause.ways:
            del left[way]
    everything, of_host = loss(left.values()), defaultdict[str, list[Counts]](list)
    for (one, other), counts in counted.items():
        of_host[one].append(counts)
        of_host[other].append(counts)
    for cause in find_causes([way for way, counts in left.items() if is_lossy(*counts)], left):
        part = loss(left[way] for way in cause.ways)
        if cause.direction == "all" or _chance(*part, *everything) >= most:
            continue
        # A pair is only bad if it loses more than all ways of each of its ends.
        ends = cause.hosts if len(cause.hosts) > 1 else ()
        if all(_chance(*part, *loss(of_host[end])) < most for end in ends):
            yield cause


_Side = tuple[Direction, str]  # the ways of a host in one direction, or in both
# What a side sent without its worst pair, and what was sent and lost on that pair. Many hosts have few kinds.
_Kind = tuple[int, int, int]


def _sides(way: Way) -> tuple[_Side, ...]:
    one, other = way
    return ("out", one), ("in", other), ("both", one), ("both", other)


def _lossy_hosts(counted: Mapping[Way, Counts], most: float) -> Iterator[Cause]:
    """Yield the host, and the direction, whose losses are the least likely by chance, while that is less than `most`.

    Its worst neighbour does not count: the two may be a bad pair. Losses that one explains do not count for another.
    """
    ways_of = defaultdict[_Side, dict[Way, Counts]](dict)
    for way, counts in counted.items():
        for side in _sides(way):
            ways_of[side][way] = counts
    all_sent, all_lost = loss(counted.values())
    alike = defaultdict[_Kind, list[tuple[int, _Side]]](list)
    now: dict[_Side, tuple[_Kind, int]] = {}
    changed: Collection[_Side] = ways_of.keys()
    while True:
        for side in changed:
            now[side] = kind, lost = _without_worst(ways_of[side])
            heappush(alike[kind], (-lost, side))
        chance, (direction, host) = _least_likely(alike, now, all_sent, all_lost)
        if chance >= most:
            return
        cause = Cause(direction, (host,), frozenset(ways_of[direction, host]))
        yield cause
        sent, lost = loss(counted[way] for way in cause.ways)
        all_sent, all_lost = all_sent - sent, all_lost - lost
        for way in cause.ways:
            for side in _sides(way):
                del ways_of[side][way]
        changed = {side for way in cause.ways for side in _sides(way)}


def _least_likely(
    alike: Mapping[_Kind, list[tuple[int, _Side]]], now: Mapping[_Side, tuple[_Kind, int]], all_sent: int, all_lost: int
) -> tuple[float, _Side]:
    """Return the smallest chance, and the side that has it. Within a kind only the side that lost most can have it.

    An entry of `alike` that is out of date is dropped once it comes first.
    """
    found: list[tuple[float, int, _Side]] = [(1.0, 0, ("out", ""))]
    for kind, heap in alike.items():
        while heap and now[heap[0][1]] != (kind, -heap[0][0]):
            heappop(heap)
        if heap:
            (sent, pair_sent, pair_lost), lost = kind, -heap[0][0]
            rest_sent, rest_lost = all_sent - pair_sent - sent, all_lost - pair_lost - lost
            share = max(LEAST_SHARE_OF_ALL, _LEAST_TIMES * rest_lost / max(rest_sent, 1))
            if lost and lost >= share * sent:
                found.append((_chance(sent, lost, sent + rest_sent, lost + rest_lost), *heap[0]))
    chance, _, side = min(found)
    return chance, side


def _without_worst(ways: Mapping[Way, Counts]) -> tuple[_Kind, int]:
    """Return the kind of a side with these ways, and what it lost without its worst pair."""
    worst = max(ways, key=lambda way: ways[way][0] - ways[way][1], default=("", ""))
    pair_sent, pair_lost = loss(ways[way] for way in {worst, worst[::-1]} & ways.keys())
    sent, lost = loss(ways.values())
    return (sent - pair_sent, pair_sent, pair_lost), lost - pair_lost


def loss(ways: Iterable[Counts]) -> tuple[int, int]:
    """Return how many datagrams were sent, and how many of them were lost, over ways given as sent and arrived."""
    counts = list(ways)
    return sum(sent for sent, _ in counts), sum(sent - arrived for sent, arrived in counts)


def _chance(sent: int, lost: int, all_sent: int, all_lost: int) -> float:
    """Return how likely this part would lose at least as many, if everything lost its datagrams at random.

    The upper tail of the hypergeometric distribution, as in Fisher's exact test.
    """
    rest, whole, chance = all_sent - sent, _log_comb(all_sent, all_lost), 0.0
    for k in range(max(lost, all_lost - rest), min(sent, all_lost) + 1):
        more = exp(_log_comb(sent, k) + _log_comb(rest, all_lost - k) - whole)
        if more < chance * _NOTHING:  # those that follow are smaller still
            break
        chance += more
    return chance


def _log_comb(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
