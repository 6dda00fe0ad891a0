"""Who probes whom, and when: each host is in few probes at once, and beyond some hosts each probes only some."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Round = tuple[tuple[int, int], ...]  # who begins, and with whom

# Up to so many hosts each is probed with each.
MOST_WITH_ALL = 64
# Beyond, each host begins with so many others, and as many begin with it.
_OFFSETS = 4
# Datagrams of a probe: where there are few others, each has to tell more.
FEW, MANY_DATAGRAMS, DATAGRAMS = 8, 20, 10


def rounds(count: int) -> tuple[Round, ...]:
    """Return the rounds: as of a tournament in which each meets each, or a ring with some longer ways across."""
    return _tournament(count) if count <= MOST_WITH_ALL else _ring(count)


def others(count: int) -> int | None:
    """Return how many others each host probes, None where it is all of them."""
    return None if count <= MOST_WITH_ALL else 2 * len(_offsets(count))


def datagrams(count: int) -> int:
    """Return how many datagrams go from one host to another."""
    return MANY_DATAGRAMS if count <= FEW else DATAGRAMS


def transfers(count: int) -> tuple[Round, ...]:
    """Return rounds of senders and receivers: each sends to the next of a ring and to the one before, one at a time."""
    if count < 2:  # noqa: PLR2004 - nobody to send to
        return ()
    edges = [(i, (i + 1) % count) for i in range(count)]
    parts = [edges[0 : count - count % 2 : 2], edges[1::2], edges[count - 1 :] if count % 2 else []]
    if count == 2:  # noqa: PLR2004 - one wire
        parts = [edges[:1]]
    both = [part if is_forth else [(b, a) for a, b in part] for part in parts for is_forth in (True, False)]
    return tuple(tuple(part) for part in both if part)


def _tournament(count: int) -> tuple[Round, ...]:
    """Return the circle method's rounds; who begins alternates, so that each begins about as often as not."""
    players: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    found = []
    for _ in range(len(players) - 1):
        half = len(players) // 2
        met = zip(players[:half], reversed(players[half:]), strict=True)
        found.append(tuple(_begun(one, other) for one, other in met if one is not None and other is not None))
        players[1:] = [players[-1], *players[1:-1]]
    return tuple(found)


def _begun(one: int, other: int) -> tuple[int, int]:
    low, high = sorted((one, other))
    return (low, high) if (low + high) % 2 else (high, low)


def _ring(count: int) -> tuple[Round, ...]:
    return tuple(tuple((i, (i + offset) % count) for i in range(count)) for offset in _offsets(count))


def _offsets(count: int) -> tuple[int, ...]:
    """Return steps that grow by the same factor, so that any two hosts are a few steps apart."""
    base = count ** (1 / _OFFSETS)
    return tuple(sorted({round(base**power) for power in range(_OFFSETS)}))
