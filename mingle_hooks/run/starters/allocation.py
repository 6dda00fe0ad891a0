"""What a run may use: hosts in rank order, slots on each, and how long the scheduler lets it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# What a grace is shorter than the scheduler's own wait, so that what has to be said of an end still is.
_MARGIN_S = 2.0
# Where nobody but the run itself ends what does not end by TERM.
KILL_WAIT_S = 30.0


class Place(NamedTuple):
    """Where one supervisor runs: a host, and its number among those there."""

    host: str
    local: int


class Allocation(NamedTuple):
    """The hosts of a run in rank order, with their slots; `is_per_task` where each slot gets a supervisor.

    `end` is when the scheduler ends the job, in seconds since 1970; `kill_wait_s` how long it waits between TERM and
    KILL; `own` this host's name among `hosts`; `environ` those variables that the scheduler's starter reads, none
    of them secret.
    """

    scheduler: str
    hosts: tuple[str, ...]
    slots: tuple[int, ...]
    job_id: str | None = None
    restarts: int = 0
    end: int | None = None
    kill_wait_s: float = KILL_WAIT_S
    own: str | None = None
    is_per_task: bool = False
    environ: Mapping[str, str] = {}
    options: tuple[str, ...] = ()  # a person's own, for the scheduler's starter

    @property
    def grace_s(self) -> float:
        """How long TERM may take before KILL, so that this is over before the scheduler's own KILL."""
        return max(self.kill_wait_s - _MARGIN_S, self.kill_wait_s / 2)

    @property
    def places(self) -> tuple[Place, ...]:
        """Where the supervisors run, in rank order."""
        counts = self.slots if self.is_per_task else (1,) * len(self.hosts)
        return tuple(
            Place(host, local) for host, count in zip(self.hosts, counts, strict=True) for local in range(count)
        )

    def supervisors(self, host: str) -> int:
        """Return how many supervisors a host gets."""
        return self.slots[self.hosts.index(host)] if self.is_per_task else 1
