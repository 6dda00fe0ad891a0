"""One thread, many sockets and timers: asyncio without the 30 ms that importing it costs."""

from __future__ import annotations

import itertools
import os
import time

from mingle_hooks.errors import shortage
from mingle_hooks.rendezvous.poller import Poller
from mingle_hooks.typed import TYPE_CHECKING

try:
    import _heapq as heapq  # without the module around it, as in mingle_hooks.sockets
except ImportError:  # PyPy
    import heapq  # type: ignore[no-redef]

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from mingle_hooks.errors import Shortage
    from mingle_hooks.rendezvous.poller import Watched

# Wake at least this often, in seconds, so that a clock that jumps cannot make a wait endless.
LONGEST_SLEEP_S = 1.0


def _steadiest() -> int:
    """Return the clock that also goes on while this host is suspended, or else one that stands still meanwhile.

    CLOCK_BOOTTIME is Linux's. Other systems, and sandboxes that lack it, have CLOCK_MONOTONIC.
    """
    try:
        time.clock_gettime(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):
        return time.CLOCK_MONOTONIC
    return time.CLOCK_BOOTTIME


CLOCK = _steadiest()


def boottime() -> float:
    """Return the time in seconds by which members keep their promises and their deadlines; no clock of the day."""
    return time.clock_gettime(CLOCK)


class Timer:
    """A call that is due once; cancel() makes it not happen."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Forget the call; harmless when it has happened."""
        self.call = None


class Loop:
    """Calls back when a socket is ready or a time has come. Close it, or use `with`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, poller: Poller | None = None) -> None:
        self.clock = clock
        self.poller = poller or Poller()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self.names_since: float | None = None  # when the name service was asked first, and how long it took
        self.names_s = 0.0
        self.shortage: Shortage | None = None  # what this process has run out of, for the message at the end

    def __enter__(self) -> Loop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.poller.close()

    def watch(self, sock: Watched, events: int, call: Callable[[int], None]) -> None:
        """Call back with the ready events, from now on, whenever sock is ready for any of events."""
        self.poller.watch(sock, events, call)

    def rewatch(self, sock: Watched, events: int, call: Callable[[int], None]) -> None:
        """Change what sock is watched for."""
        self.poller.rewatch(sock, events, call)

    def unwatch(self, sock: Watched) -> None:
        """Stop watching sock; harmless where it is not watched now."""
        self.poller.unwatch(sock)

    def missed(self, error: Exception) -> None:
        """Take note where something could not be opened because a limit was met."""
        self.shortage = shortage(error) or self.shortage

    def after(self, delay_s: float, call: Callable[[], None]) -> Timer:
        """Call once, delay_s seconds from now."""
        timer = Timer(call)
        heapq.heappush(self._timers, (self.clock() + delay_s, next(self._order), timer))
        return timer

    def about(self, delay_s: float) -> float:
        """Return a delay within a fifth of delay_s, so that members do not act in step."""
        return delay_s * (0.8 + 0.4 * self.chance())

    def chance(self) -> float:
        """Return a number from 0 to 1, another for each member."""
        return int.from_bytes(os.urandom(2), "big") / 65536

    def run(self, finished: Callable[[], bool]) -> None:
        """Serve sockets and timers until finished() is true; the caller sets a timer that makes it so."""
        while not finished():
            self.turn(self.due_in())

    def turn(self, wait_s: float) -> None:
        """Serve what is due or ready, once, after at most wait_s seconds.

        Timers come first: after a stop, of this process or of its host, what was said meanwhile may be out of date.
        """
        ready = self.poller.ready(wait_s)
        self._ring()
        for descriptor, events in ready:
            call = self.poller.watched.get(descriptor)
            if call is not None:  # what came before it in this turn may have closed it
                call(events)

    def due_in(self) -> float:
        """Return the seconds until the next timer, and at most LONGEST_SLEEP_S."""
        if not self._timers:
            return LONGEST_SLEEP_S
        return min(max(self._timers[0][0] - self.clock(), 0.0), LONGEST_SLEEP_S)

    def _ring(self) -> None:
        now = self.clock()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            call, timer.call = timer.call, None
            if call is not None:
                call()
