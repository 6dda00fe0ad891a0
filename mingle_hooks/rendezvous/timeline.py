"""When each member's task began, when it came, and who kept the others waiting: by rank 0's clock, in seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mingle_hooks.rendezvous.wire import WireError

# Members that are listed one by one; of more, the last is named.
MOST_LISTED = 16
# What is less late than this is not late: a tick of the kernel, and what a busy host needs to wake up.
PUNCTUAL_S = 0.05

_CAUSES = {
    "began_s": "a late start by the scheduler",
    "start_s": "mingle's start (Python, imports, settings)",
    "names_s": "name look-ups",
    "network_s": "the network",
}


class Phases(NamedTuple):
    """One member: when its task began, began to look for the others and was in, and what kept it meanwhile."""

    host: str
    began: float
    asked: float
    arrived: float
    names_s: float
    network_s: float  # without the time in which there was no rank 0 yet

    @property
    def ready(self) -> float:
        """When it would have been in, had rank 0 been there."""
        return self.asked + self.names_s + self.network_s


def phases(told: Sequence[tuple[str, float, Spent | None]]) -> list[Phases]:
    """Return the members, rank 0 first, of each of whom host, arrival and what it spent are told."""
    found: list[Phases] = []
    leader_at = told[0][1] if told else 0.0
    for host, arrived, spent in told:
        if spent is None:  # of a mingle that does not tell it
            continue
        began = arrived - spent.in_ms / 1000
        asked = began + spent.asked_ms / 1000
        free = max(asked, min(leader_at, arrived))
        names_s = min(spent.names_ms / 1000, arrived - free)
        found.append(Phases(host, began, asked, arrived, names_s, arrived - free - names_s))
    return found


def timeline_lines(members: Sequence[Phases], formed: float) -> list[str]:
    """Return the times since the first task began, and who was last to be ready, by how much, and why."""
    if len(members) <= 1:
        return []
    zero = min(member.began for member in members)
    listed = [
        f"{its.host} started at {its.began - zero:.2f} s, searched from {its.asked - zero:.2f} s,"
        f" checked in at {its.arrived - zero:.2f} s"
        for its in (members if len(members) <= MOST_LISTED else ())
    ]
    return [*listed, f"the world formed at {formed - zero:.2f} s", _why(members)]


def last_to_arrive(members: Sequence[Phases]) -> dict[str, Any] | None:
    """Return who was last to be ready, how many seconds after the first, and on what it spent them.

    None where nobody was late.
    """
    first, late = min(members, key=_ready, default=None), max(members, key=_ready, default=None)
    if first is None or late is None or late.ready - first.ready < PUNCTUAL_S:
        return None
    zero = min(member.began for member in members)
    spent = {
        "late_s": late.ready - first.ready,
        "began_s": late.began - zero,
        "start_s": late.asked - late.began,
        "names_s": late.names_s,
        "network_s": late.network_s,
    }
    return {"host": late.host, "after": first.host, **{name: round(its_s, 3) for name, its_s in spent.items()}}


def _why(members: Sequence[Phases]) -> str:
    found = last_to_arrive(members)
    if found is None:
        return f"all were ready within {PUNCTUAL_S:g} s"
    parts = ", ".join(f"{found[name]:.2f} s for {what}" for name, what in _CAUSES.items())
    return f"last to be ready: {found['host']}, {found['late_s']:.2f} s after {found['after']}: {parts}"


def _ready(member: Phases) -> float:
    return member.ready


# How long a member took from the beginning of its process to its check-in, and with what.

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
