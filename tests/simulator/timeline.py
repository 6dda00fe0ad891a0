"""Simulated time: what happens next, in an order that a seed alone decides."""

from collections.abc import Callable
from heapq import heappop, heappush


class Timeline:
    """Events in the order of their time in seconds; those of one time in the order in which they were set."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call once, delay_s from now."""
        self._count = count = self._count + 1
        heappush(self._events, (self.now + delay_s if delay_s > 0.0 else self.now, count, call))

    def run(self, until: Callable[[], bool], horizon_s: float) -> None:
        """Let events happen until until() is true, none is left, or the horizon is reached."""
        events = self._events
        while events and not until():
            if events[0][0] > horizon_s:
                self.now = horizon_s
                return
            self.now, _, call = heappop(events)
            call()
