"""When each member's task began, when it came, and who kept the others waiting: by rank 0's clock, in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mingle_hooks.rendezvous.protocol.spent import Spent

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


def lines(members: Sequence[Phases], formed: float) -> list[str]:
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


def last(members: Sequence[Phases]) -> dict[str, Any] | None:
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
    found = last(members)
    if found is None:
        return f"all were ready within {PUNCTUAL_S:g} s"
    parts = ", ".join(f"{found[name]:.2f} s for {what}" for name, what in _CAUSES.items())
    return f"last to be ready: {found['host']}, {found['late_s']:.2f} s after {found['after']}: {parts}"


def _ready(member: Phases) -> float:
    return member.ready
