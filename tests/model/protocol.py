"""The protocol once more, as a model: its state, what leaders and members do, and all steps that can be taken.

Time is modelled by its order alone. A member's promise holds until it *lapses*, and with it every note of it that a
leader has, for a leader counts a lease from when it asked. The word comes in time, unless it is *cut off*. A host
that is suspended is one that does nothing for a while: the clock of its leases goes on.
"""

from collections.abc import Callable, Iterator
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
    """What stays the same in one exploration: N, and whether ranks are given."""

    size: int
    ranked: bool = False


class Budget(NamedTuple):
    """How often each thing may still happen; all but lapses and ends are faults."""

    breaks: int = 0  # of connections, at both ends or at one
    repeats: int = 0  # of a frame
    crashes: int = 0
    restarts: int = 0
    lapses: int = 0  # of promises
    ends: int = 0  # processes that give up, or fail for a reason of their own
    cuts: int = 0  # of COMMIT, for longer than its lease


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
    excused: bool = False  # COMMIT was cut off from it for longer than its lease
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
    """Have a leader send frames."""
    return swap(state, to, to._replace(down=to.down + frames)) if to.m_open else state


def free(state: State, to: Connection, frame: Frame, **parts: object) -> State:
    """Have a leader say what frees a member; left out where it is free, as that only makes more states."""
    member = state.processes[to.member]
    is_free = member.bound == NOBODY and not member.answer and not to.down
    down = to.down if is_free or not to.m_open else (*to.down, frame)
    return swap(state, to, to._replace(down=down, **parts))  # type: ignore[arg-type]


def is_running(process: Process) -> bool:
    """Return whether it can still act: a leader that has formed its world stays to repeat COMMIT."""
    return process.phase == ON or (process.phase == IN and process.leads == "formed")


# What a leader does in the model: it lets members in, closes when all are, and sends COMMIT when all promise.


def leader_hears(state: State, connection: Connection) -> State:
    """Have a leader take the next thing that came on a connection."""
    require(connection.l_open and connection.up, "nothing was said to this leader")
    frame = connection.up[0]
    if frame in (END, AGAIN):
        return lost(state, connection)
    rest = connection._replace(up=connection.up[1:])
    state = swap(state, connection, rest)
    if frame[0] == "CHECKIN":
        return _check_in(state, rest)
    if frame[0] == "READY":
        return _ready(state, rest, int(frame[1]), is_live=bool(frame[2]))
    leader = rest.leader  # GAVE_UP, or FAILED
    return fail(state, leader) if state.processes[leader].leads in ("gathering", "closing") else state


def lost(state: State, connection: Connection) -> State:
    """Have a leader find that a connection has ended, and close its own end."""
    state = _let_go(state, connection)
    leader = state.processes[connection.leader]
    if connection.inside and leader.leads == "closing":
        return put(state, connection.leader, leads="gathering", members=())
    return state


def _let_go(state: State, connection: Connection, *words: tuple[str]) -> State:
    if connection not in state.connections:
        return state
    down = (*connection.down, *words, END)
    return swap(state, connection, connection._replace(l_open=False, inside=False, promise=SILENT, down=down))


def _check_in(state: State, connection: Connection) -> State:
    leader, member = connection.leader, connection.member
    leads = state.processes[leader].leads
    if leads == "failed":
        return tell(state, connection, FAILED)
    if leads == "withdrawn":
        return _let_go(state, connection, MOVED)
    if leads == "formed":
        return _again(state, connection)
    for older in roster(state, leader):
        if older.member == member:  # its connection broke and it has come back
            state = lost(state, older)
    if _is_contradiction(state, leader, member):
        return fail(tell(state, connection, FAILED), leader)
    if connection not in state.connections:  # the member has hung up, and the leader does not know yet
        return state
    return free(state, connection, WELCOME, inside=True, promise=SILENT)


def _is_contradiction(state: State, leader: int, member: int) -> bool:
    """Return whether a member is one too many, or has another one's rank."""
    others = [c.member for c in roster(state, leader)]
    if len(others) + 1 >= state.terms.size:
        return True
    slots = [state.processes[other].slot for other in (leader, *others)]
    return state.terms.ranked and state.processes[member].slot in slots


def _again(state: State, connection: Connection) -> State:
    """Tell a member of the formed world once more."""
    leader = state.processes[connection.leader]
    if connection.member not in leader.members:
        return tell(state, connection, FAILED)
    return tell(state, connection, ("ANSWER", leader.epoch), ("COMMIT", leader.epoch))


def _ready(state: State, connection: Connection, epoch: int, *, is_live: bool) -> State:
    leader = state.processes[connection.leader]
    is_awaited = connection.inside and connection.promise != SILENT and epoch == leader.epoch
    if leader.leads != "closing" or not is_awaited:
        return state
    return swap(state, connection, connection._replace(promise=READY if is_live else OVER))


def close(state: State, index: int) -> State:
    """Once all have checked in, ask each for a lease."""
    inside = roster(state, index)
    require(state.processes[index].leads == "gathering", "it does not gather")
    require(len(inside) + 1 == state.terms.size, "not all are in")
    epoch = state.processes[index].epoch + 1
    members = tuple(sorted((index, *(c.member for c in inside))))
    state = put(state, index, leads="closing", epoch=epoch, members=members)
    for connection in inside:
        down = (*connection.down, ("ANSWER", epoch)) if connection.m_open else ()
        state = swap(state, connection, connection._replace(promise=ASKED, down=down))
    return state


def commit(state: State, index: int) -> State:
    """Send COMMIT, while every member still waits for it."""
    me = state.processes[index]
    require(me.leads == "closing", "it does not close")
    waiting = [c for c in roster(state, index) if c.promise == READY]
    require(len(waiting) == state.terms.size - 1, "not all have promised to wait, or a promise is over")
    state = put(state, index, leads="formed", phase=IN, got=(index, me.epoch))
    for connection in roster(state, index):
        state = tell(state, connection, ("COMMIT", me.epoch))
    return state


def hold(state: State, connection: Connection) -> State:
    """Ask a member to promise anew."""
    leader = state.processes[connection.leader]
    require(leader.leads == "closing" and connection.promise in (READY, OVER), "nothing to renew")
    asked = connection._replace(promise=READY if connection.promise == READY else ASKED)
    return tell(swap(state, connection, asked), asked, ("HOLD", leader.epoch))


def progress(state: State, connection: Connection) -> State:
    """Tell a member that was given an answer that others are awaited again."""
    require(state.processes[connection.leader].leads == "gathering", "it does not gather")
    require(connection.inside and connection.promise != SILENT, "it was given no answer")
    return free(state, connection, PROGRESS, promise=SILENT)


def fail(state: State, index: int) -> State:
    """Fail the world, for any reason, and inform all."""
    require(state.processes[index].leads in ("gathering", "closing"), "it leads no world that could fail")
    state = put(state, index, leads="failed", members=())
    for connection in roster(state, index):
        state = tell(state, connection, FAILED)
    return state


def withdraw(state: State, index: int) -> State:
    """Send the members to a better candidate."""
    state = put(state, index, leads="withdrawn", members=())
    for connection in roster(state, index):
        state = _let_go(state, connection, MOVED)
    return state


def break_off(state: State, connection: Connection, side: str) -> State:
    """Break a connection: what is under way to one end, or to both, is lost."""
    state = spend(state, "breaks")
    up, down = connection.up, connection.down
    if side != "down":
        require(connection.l_open, "that end is closed")
        up = (END,)
    if side != "up":
        require(connection.m_open, "that end is closed")
        down = (END,)
    return swap(state, connection, connection._replace(up=up, down=down))


# What a member does in the model: it finds a leader, promises to wait for its word, and gets it or gives up.


def find(state: State, member: int, leader: int, precedence: tuple[object, ...] = (), name: int = 0) -> State:
    """Have a member join a leader that has proved itself, and leave the one that it is with, if any."""
    me, other = state.processes[member], state.processes[leader]
    current = end_of(state, member)
    require(me.phase == ON and member != leader, "it has ended, or found itself")
    require(other.precedence, "it never leads")
    precedence = precedence or other.precedence
    require(me.bound in (NOBODY, leader), "it has promised to wait for another leader's word")
    require(me.leads in ("", "gathering", "withdrawn"), "it leads a world itself")
    require(me.leads != "gathering" or precedence < me.precedence, "it stands better itself")
    if current is not None:
        require(not me.answer, "it holds an answer")
        is_better = precedence < current.precedence and leader != current.leader
        require(is_better and me.bound == NOBODY, "no better than the leader that it is with")
        state = hang_up(state, current)
    if me.leads == "gathering":
        state = withdraw(state, member)
    new = Connection(member, leader, up=(CHECKIN,), precedence=precedence, name=name)
    if not is_running(other):  # it has ended since it proved itself
        new = new._replace(l_open=False, down=(END,))
    return swap(put(state, member, answer=()), None, new)


def hang_up(state: State, connection: Connection) -> State:
    """Have a member close its end."""
    return swap(state, connection, connection._replace(m_open=False, up=(*connection.up, END)))


def member_hears(state: State, connection: Connection) -> State:
    """Have a member take the next frame of its leader."""
    require(connection.m_open and connection.down, "nothing was said to this member")
    frame = connection.down[0]
    member = connection.member
    if frame in (END, AGAIN):
        return _lost(hang_up(state, connection), member)
    rest = connection._replace(down=connection.down[1:])
    state = swap(state, connection, rest)
    if frame[0] in ("ANSWER", "HOLD", "COMMIT"):
        return _of_epoch(state, rest, str(frame[0]), int(frame[1]))
    state = put(state, member, bound=NOBODY, answer=())  # what is left is said by who has not said the word
    if frame[0] == "MOVED":
        return _lost(hang_up(state, rest), member)
    return _told(hang_up(state, rest), member, connection.leader) if frame[0] == "FAILED" else state


def _of_epoch(state: State, connection: Connection, kind: str, epoch: int) -> State:
    if kind == "ANSWER":
        state = put(state, connection.member, answer=(connection.leader, epoch))
    is_mine = state.processes[connection.member].answer == (connection.leader, epoch)
    require(is_mine, "a lease, or the word, for another answer")
    return _word(state, connection, epoch) if kind == "COMMIT" else _promise(state, connection, epoch)


def _promise(state: State, connection: Connection, epoch: int) -> State:
    late = state.processes[connection.member].late
    if not late:
        state = put(state, connection.member, bound=connection.leader)
    return swap(state, connection, connection._replace(up=(*connection.up, ("READY", epoch, not late))))


def _word(state: State, connection: Connection, epoch: int) -> State:
    world = connection.leader, epoch
    state = put(state, connection.member, phase=IN, got=world, bound=NOBODY, answer=(), leads="", epoch=0)
    return hang_up(state, connection)


def _told(state: State, member: int, leader: int) -> State:
    """Have a member hear that there is no world: that ends it, unless it has begun since."""
    if leader in state.processes[member].failed_before:
        return state
    return _ended(state, member)


def _lost(state: State, member: int) -> State:
    return put(state, member, answer=())


def resume(state: State, index: int) -> State:
    """Stand again: a candidate that had withdrawn has lost the better one, and waits for no word."""
    me = state.processes[index]
    require(me.phase == ON and me.leads == "withdrawn", "it has not withdrawn")
    require(me.bound == NOBODY, "it has promised to wait for another leader's word")
    require(end_of(state, index) is None, "it is checked in")
    return put(state, index, leads="gathering")


def _ended(state: State, member: int) -> State:
    """End a process without a world; its kernel closes what it has open."""
    return close_all(put(state, member, phase=LEFT, bound=NOBODY, answer=(), epoch=0, members=()), member)


def close_all(state: State, index: int) -> State:
    """Close every end that a process holds."""
    for connection in state.connections:
        if connection.member == index and connection.m_open:
            state = hang_up(state, connection)
    for connection in state.connections:
        if connection.leader == index and connection.l_open:
            down = (*connection.down, END)
            state = swap(state, connection, connection._replace(l_open=False, down=down))
    return state


def give_up(state: State, index: int) -> State:
    """Have a process wait no longer, or have a reason why there can be no world."""
    me = state.processes[index]
    require(me.phase == ON and not me.late, "it has ended, or given up before")
    state = spend(state, "ends")
    if me.leads in ("gathering", "closing"):
        return fail(state, index)
    require(me.bound == NOBODY, "it has promised to wait for the word")
    state = put(state, index, late=True)
    connection = end_of(state, index)
    if connection is None:
        return state
    return swap(state, connection, connection._replace(up=(*connection.up, GAVE_UP)))


def tell_failure(state: State, index: int) -> State:
    """Tell the leader why there can be no world, and wait on: the leader informs all."""
    connection = end_of(state, index)
    if connection is None:
        raise RefusedError("it is not checked in")
    return swap(spend(state, "ends"), connection, connection._replace(up=(*connection.up, FAILED)))


def leave(state: State, index: int) -> State:
    """End a process: without a world where it is bound to nobody, with one when all of its members have it."""
    me = state.processes[index]
    require(me.phase in (ON, IN), "it has ended")
    if me.phase == ON:
        require(me.bound == NOBODY, "it has promised to wait for the word")
        return _ended(state, index)
    require(me.leads == "formed", "it has ended")
    require(not awaiting(state, index), "a member of its world may still ask for the word")
    return close_all(put(state, index, leads="left"), index)


def awaiting(state: State, leader: int) -> list[int]:
    """Return the members of a formed world that may still wait for COMMIT."""
    return [m for m in state.processes[leader].members if m != leader and state.processes[m].bound == leader]


def lapse(state: State, member: int) -> State:
    """Let a lease end; but COMMIT arrives in time at a member that can still be reached."""
    me = state.processes[member]
    require(me.bound != NOBODY, "it has promised nothing")
    leader = state.processes[me.bound]
    is_said = leader.leads == "formed" and leader.phase == IN and member in leader.members
    require(not is_said, "COMMIT has been sent to it")
    excused = leader.phase == CRASHED and bool(leader.got) and member in leader.members
    return _over(put(spend(state, "lapses"), member, excused=me.excused or excused), member)


def cut(state: State, member: int) -> State:
    """Cut a member off from a COMMIT that was sent until its lease is over, which no protocol can mend."""
    me = state.processes[member]
    require(me.bound != NOBODY, "it has promised nothing")
    leader = state.processes[me.bound]
    require(leader.leads == "formed" and member in leader.members, "no word was said to it")
    return _over(put(spend(state, "cuts"), member, excused=True), member)


def _over(state: State, member: int) -> State:
    """Its leaders count no longer on it, by whatever they heard, or will still hear, of that promise."""
    state = put(state, member, bound=NOBODY)
    for connection in state.connections:
        if connection.member == member:
            promise = OVER if connection.promise == READY else connection.promise
            up = tuple(("READY", frame[1], False) if frame[0] == "READY" else frame for frame in connection.up)
            state = swap(state, connection, connection._replace(promise=promise, up=up))
    return state


# All that can happen next in a state, each step with its name.


def beginning(terms: Terms, candidates: int, budget: Budget) -> State:
    """Return the state in which all have begun, and the first of them lead, or would."""
    leaders = [Process(slot, (slot, 0), leads="gathering") for slot in range(candidates)]
    others = [Process(slot) for slot in range(candidates, terms.size)]
    return State(terms, (*leaders, *others), (), budget)


def crash(state: State, index: int) -> State:
    """Kill a process; its kernel closes what it had open."""
    require(is_running(state.processes[index]), "it has ended")
    state = put(spend(state, "crashes"), index, phase=CRASHED, bound=NOBODY, answer=())
    return close_all(state, index)


def restart(state: State, index: int) -> State:
    """Start a killed process again: another one, with the rank of the first, and the best ticket of all."""
    before = state.processes[index]
    require(before.phase == CRASHED, "it runs")
    state = put(spend(state, "restarts"), index, late=True)  # once for each that was killed
    return begin(state, before.slot, (-len(state.processes), 0), leads=bool(before.leads))


def begin(state: State, slot: int, precedence: tuple[object, ...], *, leads: bool) -> State:
    """Begin a process; leaders that had failed by now are of another run."""
    failed = tuple(index for index, process in enumerate(state.processes) if process.leads == "failed")
    new = Process(slot, precedence, leads="gathering" if leads else "", failed_before=failed)
    return state._replace(processes=(*state.processes, new))


def repeat(state: State, connection: Connection, side: str) -> State:
    """Have a frame come twice: the second has a wrong count in its MAC, which ends the connection."""
    state = spend(state, "repeats")
    first, *rest = getattr(connection, side)
    return swap(state, connection, connection._replace(**{side: (first, AGAIN, *rest)}))


Step = tuple[str, State]


def moves(state: State) -> Iterator[Step]:
    """Yield every step that can be taken."""
    for connection in state.connections:
        yield from _of_connection(state, connection)
    for index, process in enumerate(state.processes):
        if is_running(process):
            yield from _of_process(state, index, process)
        elif process.phase == CRASHED and not process.late and state.left.restarts:
            yield f"{index} is started again as {len(state.processes)}", restart(state, index)


def _of_connection(state: State, connection: Connection) -> Iterator[Step]:
    member, leader = connection.member, connection.leader
    if connection.up and connection.l_open:
        yield f"{leader} hears {_said(connection.up)} of {member}", leader_hears(state, connection)
    if connection.down and connection.m_open:
        yield f"{member} hears {_said(connection.down)} of {leader}", member_hears(state, connection)
    leads = state.processes[leader].leads
    if leads == "closing" and connection.promise == OVER and connection.m_open:
        yield f"{leader} asks {member} to promise anew", hold(state, connection)
    if leads == "gathering" and connection.promise != SILENT and connection.m_open:
        yield f"{leader} tells {member} to wait on", progress(state, connection)
    yield from _faults(state, connection)


def _faults(state: State, connection: Connection) -> Iterator[Step]:
    names = f"{connection.member} and {connection.leader}"
    for side in _sides(connection) if state.left.breaks else ():
        yield f"the connection of {names} breaks ({side})", break_off(state, connection, side)
    for side in ("up", "down") if state.left.repeats else ():
        if getattr(connection, side)[:1] not in ((), (END,), (AGAIN,)):
            yield f"a frame comes twice between {names} ({side})", repeat(state, connection, side)


def _sides(connection: Connection) -> Iterator[str]:
    """Yield the ends at which it can break, where that changes anything."""
    is_up, is_down = connection.l_open and connection.up != (END,), connection.m_open and connection.down != (END,)
    if is_up:
        yield "up"
    if is_down:
        yield "down"
    if is_up and is_down:
        yield "both"


def _said(frames: tuple[tuple[object, ...], ...]) -> str:
    return " ".join(str(part) for part in frames[0])


def _of_process(state: State, index: int, process: Process) -> Iterator[Step]:
    left = state.left
    tries: list[tuple[str, Callable[[State, int], State], bool]] = [
        ("closes", close, process.leads == "gathering"),
        ("says the word", commit, process.leads == "closing"),
        ("stands again", resume, process.leads == "withdrawn"),
        ("gives up", give_up, bool(left.ends)),
        ("tells of a failure", tell_failure, bool(left.ends) and process.phase == ON),
        ("leaves", leave, process.late or process.leads in ("formed", "withdrawn")),
        ("is killed", crash, bool(left.crashes)),
        ("'s promise lapses", lapse, bool(left.lapses) and process.bound != NOBODY),
        ("is cut off from the word", cut, bool(left.cuts) and process.bound != NOBODY),
    ]
    for name, act, is_due in tries:
        if is_due and (after := attempted(act, state, index)) is not None:
            yield f"{index} {name}", after
    if process.phase == ON:
        for other, leader in enumerate(state.processes):
            if leader.leads in ("gathering", "closing", "formed", "failed") and is_running(leader) and other != index:
                after = attempted(lambda at, by, to=other: find(at, by, to), state, index)  # type: ignore[misc]
                if after is not None:
                    yield f"{index} finds {other}", after


def attempted(act: Callable[[State, int], State], state: State, index: int) -> State | None:
    """Return what comes of a step; None where it cannot be taken."""
    try:
        return act(state, index)
    except RefusedError:
        return None
