"""Who has which place in which world, and what must hold of the places: of simulated members, and of real ones."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

# What the design adds to a member's own deadline, in seconds: a lease, a farewell, and the turns of a slow host.
CLOSING_S, FAREWELL_S, TURNS_S = 30.0, 12.0, 5.0
# A member that cannot be reached for this long from COMMIT on may miss it: the one thing that cannot be closed.
COMMIT_S = 4.0
# A process that was stopped for longer than this has to end no later for it, in seconds.
MOST_STOPPED_S = 100.0


class Seat(NamedTuple):
    """What one process was told of its world, and what it had asked for."""

    name: str
    world: tuple[object, ...]  # what all members of one world are told alike
    rank: int
    nodes: int
    offset: int  # of its first process among all of the world
    slots: int
    size: int  # processes of the world
    asked_nodes: int
    asked_rank: int | None = None


def latest(began_s: float, timeout_s: float, stopped_s: float) -> float:
    """Return when a process has to have ended, in seconds on the clock of its start."""
    return began_s + timeout_s + CLOSING_S + FAREWELL_S + TURNS_S + min(stopped_s, MOST_STOPPED_S)


def count_worlds(seats: Iterable[Seat]) -> int:
    """Return how many different worlds these are seats of."""
    return len({(*seat.world, seat.size) for seat in seats})


def misplaced(seats: Sequence[Seat]) -> list[str]:
    """Return what is wrong with ranks, offsets and sizes in one world; a seat that nobody took leaves a gap."""
    rows = sorted(seats, key=lambda seat: (seat.rank, seat.offset, seat.slots))
    found = [f"rank {a.rank} twice" for a, b in pairwise(rows) if a.rank == b.rank]
    for seat in rows:
        if seat.asked_rank not in (None, seat.rank):
            found.append(f"{seat.name}, rank {seat.asked_rank}, was given rank {seat.rank}")
        if seat.asked_nodes != seat.nodes:
            found.append(f"{seat.name} asked for {seat.asked_nodes} nodes and got {seat.nodes}")
        following = next((other.offset for other in rows if other.rank == seat.rank + 1), None)
        following = seat.size if seat.rank == seat.nodes - 1 else following
        if following is not None and seat.offset + seat.slots != following:
            found.append(f"{seat.name}: {seat.slots} slots from {seat.offset}, and the next begins at {following}")
    return found
