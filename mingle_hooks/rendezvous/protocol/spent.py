"""How long a member took from the beginning of its process to its check-in, and with what."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.rendezvous.protocol.wire import WireError

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_MS = 7 * 24 * 3600 * 1000
# When a process began, in ticks since the boot: its place after the name in /proc/PID/stat (proc(5)).
_STARTTIME = 19


class Spent(NamedTuple):
    """Milliseconds since the process began: when it began to look for the others, checked in, and had its answer.

    `names_ms` of those between the first two went by until the name service had answered. On its way to rank 0, before
    there is an answer, `formed_ms` is 0.
    """

    asked_ms: int
    names_ms: int
    in_ms: int
    formed_ms: int = 0

    @classmethod
    def parse(cls, row: object) -> Spent:
        """Return what another member tells. Raises WireError."""
        if not isinstance(row, list) or len(row) != len(cls._fields):
            raise WireError("spent: not its numbers")
        if not all(type(ms) is int and 0 <= ms <= MOST_MS for ms in row):
            raise WireError("spent: not milliseconds")
        return cls(*row)


class Stopwatch:
    """Runs since this process began, which is so old by now; it now begins to look for the others."""

    def __init__(self, clock: Callable[[], float], age_s: float) -> None:
        self._clock, self._asked_s, self._began = clock, age_s, clock()

    def formed(self, spent: Spent) -> Spent:
        """Complete what was spent until check-in, now that there is an answer."""
        return spent._replace(formed_ms=max(self.spent(0.0).in_ms, spent.in_ms))

    def spent(self, names_s: float) -> Spent:
        """Return what has been spent until now."""
        asked, now = round(self._asked_s * 1000), round((self._asked_s + self._clock() - self._began) * 1000)
        return Spent(min(asked, MOST_MS), min(round(names_s * 1000), MOST_MS), min(max(now, asked), MOST_MS))


def process_age_s() -> float:
    """Return for how long this process has run, in steps of a tick (10 ms); 0 where there is no /proc."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read(4096).rpartition(b")")[2].split()[_STARTTIME])
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"), 0.0)
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0
