"""The model's state: processes, the connections between them, and how much may still go wrong.

Time is modelled by its order alone. A member's promise holds until it *lapses*, and with it every note of it that a
leader has, for a leader counts a lease from when it asked. The word comes in time, unless it is *cut off*. A host
that is suspended is one that does nothing for a while: the clock of its leases goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NOBODY = -1
# What a process is: at it; ended with a world (or, the leader, still there to repeat it); ended without; killed.
ON, IN, LEFT, CRASHED = "on", "in", "left", "crashed"
# What a connection's leader knows of the member's promise for this epoch: nothing, awaited, held, over.
SILENT, ASKED, READY, OVER = range(4)

Frame = tuple[str | int | bool, ...]
CHECKIN, GAVE_UP, WELCOME, PROGRESS = ("CHECKIN",), ("GAVE_UP",), ("WELCOME",), ("PROGRESS",)
FAILED, MOVED, END, AGAIN = ("FAILED",), ("MOVED",), ("END",), ("AGAIN",)


class RefusedError(Exception):
    """The model does not allow this step here."""


@dataclass(frozen=True, eq=False)
class Terms:
    """What stays the same in one exploration: N, whether ranks are given, and a mistake put in on purpose."""

    size: int
    ranked: bool = False
    defect: str = ""


class Budget(NamedTuple):
    """How often each thing may still happen; all but lapses and ends are faults."""

    breaks: int = 0  # of connections, at both ends or at one
    repeats: int = 0  # of a frame
    crashes: int = 0
    restarts: int = 0
    lapses: int = 0  # of promises
    ends: int = 0  # processes that give up, or fail for a reason of their own
    cuts: int = 0  # of the last word, for longer than its lease


UNLIMITED = Budget(*(10**9,) * 7)


class Process(NamedTuple):
    """One process: what it leads, or would, and what it waits for as a member."""

    slot: int  # its rank, where ranks are given
    precedence: tuple[object, ...] = ()  # the lowest wins an election
    phase: str = ON
    leads: str = ""  # gathering, closing, formed, failed, withdrawn; nothing where it never stands
    epoch: int = 0
    members: tuple[int, ...] = ()  # of the world that it closes, or has formed
    bound: int = NOBODY  # the leader that it has promised to wait for
    answer: Frame = ()  # the leader and the epoch whose word it awaits
    late: bool = False  # it gives up, and promises nothing more
    excused: bool = False  # the last word was cut off from it for longer than its lease
    got: tuple[int, ...] = ()  # its world: the leader and the epoch
    failed_before: tuple[int, ...] = ()  # leaders that had failed when it began


class Connection(NamedTuple):
    """A connection from a member to a leader: what is under way both ways, and what the leader knows."""

    member: int
    leader: int
    up: tuple[Frame, ...] = ()
    down: tuple[Frame, ...] = ()
    m_open: bool = True
    l_open: bool = True
    inside: bool = False  # its check-in was accepted
    promise: int = SILENT
    precedence: tuple[object, ...] = ()  # the leader's, when it was found: one by right that fails is worse than before
    name: int = 0  # for who follows a real run; in an exploration connections have none


class State(NamedTuple):
    """All there is at one moment."""

    terms: Terms
    processes: tuple[Process, ...]
    connections: tuple[Connection, ...]
    left: Budget


def require(holds: object, why: str) -> None:
    """Raise RefusedError with a reason where something does not hold."""
    if not holds:
        raise RefusedError(why)


def put(state: State, index: int, **parts: object) -> State:
    """Return the state with something changed in one process."""
    processes = list(state.processes)
    processes[index] = processes[index]._replace(**parts)  # type: ignore[arg-type]
    return State(state.terms, tuple(processes), state.connections, state.left)


def swap(state: State, old: Connection | None, new: Connection) -> State:
    """Return the state with a connection in the place of another, in an order of their own; one that is over goes."""
    rest = list(state.connections)
    if old is not None:
        rest.remove(old)
    if not new.m_open and new.down:
        new = new._replace(down=())
    if not new.l_open and new.up:
        new = new._replace(up=())
    if not _is_over(state, new):
        rest.append(new)
        rest.sort()
    return State(state.terms, state.processes, tuple(rest), state.left)


def _is_over(state: State, connection: Connection) -> bool:
    """Tell whether nothing can come of a connection any more: both ends are closed, or the leader does not mind."""
    if connection.m_open:
        return False
    is_minded = connection.inside and state.processes[connection.leader].leads in ("gathering", "closing")
    return not connection.l_open or (connection.up == (END,) and not is_minded)


def spend(state: State, what: str) -> State:
    """Return the state with one less of something left in the budget."""
    left = getattr(state.left, what)
    require(left > 0, f"no more {what}")
    return state._replace(left=state.left._replace(**{what: left - 1}))


def end_of(state: State, member: int) -> Connection | None:
    """Return the connection that a member holds open."""
    return next((c for c in state.connections if c.member == member and c.m_open), None)


def roster(state: State, leader: int) -> list[Connection]:
    """Return the connections of who is checked in with a leader."""
    return [c for c in state.connections if c.leader == leader and c.inside and c.l_open]


def tell(state: State, to: Connection, *frames: Frame) -> State:
    """Have a leader say something."""
    return swap(state, to, to._replace(down=to.down + frames)) if to.m_open else state


def free(state: State, to: Connection, frame: Frame, **parts: object) -> State:
    """Have a leader say what frees a member; left out where it is free, as that only makes more states."""
    member = state.processes[to.member]
    is_free = member.bound == NOBODY and not member.answer and not to.down
    down = to.down if is_free or not to.m_open else (*to.down, frame)
    return swap(state, to, to._replace(down=down, **parts))  # type: ignore[arg-type]


def is_running(process: Process) -> bool:
    """Tell whether it can still act: a leader that has formed its world is there to repeat the word."""
    return process.phase == ON or (process.phase == IN and process.leads == "formed")
