"""Each signal reaches COMMAND once, wherever and however often it was noticed."""

from __future__ import annotations

from typing import NamedTuple

# The same signal within this many seconds is the same one: a scheduler sends it to all hosts, not quite at once.
SAME_S = 2.0
# Wait this long for those that got it from the scheduler too, before the others are told.
GATHER_S = 0.25


class _Delivery(NamedTuple):
    id: int
    at: float
    due: float
    reached: frozenset[int]  # places that need not be told, as the scheduler has told COMMAND there
    is_sent: bool = False


class Deliveries:
    """Signals on their way, by number. `reaches` tells whether a supervisor's signal has reached COMMAND too."""

    def __init__(self, *, reaches: bool) -> None:
        self._reaches = reaches
        self._latest: dict[int, _Delivery] = {}
        self._ids = 0

    @property
    def due(self) -> float | None:
        """Return when the next one is to be sent; None where none waits."""
        return min((its.due for its in self._latest.values() if not its.is_sent), default=None)

    def notice(self, number: int, place: int | None, now: float) -> bool:
        """Take note of a signal; tell whether it is a new one."""
        reached = frozenset({place} if self._reaches and place is not None else ())
        latest = self._latest.get(number)
        if latest is not None and now < latest.at + SAME_S:
            if not latest.is_sent:
                self._latest[number] = latest._replace(reached=latest.reached | reached)
            return False
        self._ids += 1
        self._latest[number] = _Delivery(self._ids, now, now + (GATHER_S if self._reaches else 0.0), reached)
        return True

    def ready(self, now: float) -> list[tuple[int, int, frozenset[int]]]:
        """Return what is due as id, signal, and the places that have it already."""
        found = []
        for number, its in self._latest.items():
            if not its.is_sent and its.due <= now:
                self._latest[number] = its._replace(is_sent=True)
                found.append((its.id, number, its.reached))
        return found
