"""What a member does in the model: it finds a leader, promises to wait for its word, and gets it or gives up."""

from __future__ import annotations

from model.leaders import fail, withdraw
from model.worlds import (
    AGAIN,
    CHECKIN,
    CRASHED,
    END,
    FAILED,
    GAVE_UP,
    IN,
    LEFT,
    NOBODY,
    ON,
    OVER,
    READY,
    Connection,
    Process,
    RefusedError,
    State,
    end_of,
    is_running,
    put,
    require,
    spend,
    swap,
)


def find(state: State, member: int, leader: int, precedence: tuple[object, ...] = (), name: int = 0) -> State:
    """Have a member join a leader that has proved itself, and leave the one that it is with, if any."""
    me, other = state.processes[member], state.processes[leader]
    current = end_of(state, member)
    require(me.phase == ON and member != leader, "it has ended, or found itself")
    require(other.precedence, "it never leads")
    precedence = precedence or other.precedence
    is_careless = state.terms.defect == "who has come back may pass over" and current is not None
    require(me.bound in (NOBODY, leader) or is_careless, "it has promised to wait for another leader's word")
    require(me.leads in ("", "gathering", "withdrawn"), "it leads a world itself")
    require(me.leads != "gathering" or precedence < me.precedence, "it stands better itself")
    if current is not None:
        require(not me.answer, "it holds an answer")
        is_held = me.bound != NOBODY and not is_careless
        is_better = precedence < current.precedence and leader != current.leader
        require(is_better and not is_held, "no better than the leader that it is with")
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


def hear(state: State, connection: Connection) -> State:
    """Have a member take the next thing that its leader said."""
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
    late = state.processes[connection.member].late and state.terms.defect != "who has given up still promises"
    if not late:
        state = put(state, connection.member, bound=connection.leader)
    return swap(state, connection, connection._replace(up=(*connection.up, ("READY", epoch, not late))))


def _word(state: State, connection: Connection, epoch: int) -> State:
    state = put(
        state, connection.member, phase=IN, got=(connection.leader, epoch), bound=NOBODY, answer=(), leads="", epoch=0
    )
    return hang_up(state, connection)


def _told(state: State, member: int, leader: int) -> State:
    """Have a member hear that there is no world: that ends it, unless it has begun since."""
    if leader in state.processes[member].failed_before:
        return state
    return _ended(state, member)


def _lost(state: State, member: int) -> State:
    state = put(state, member, answer=())
    if state.terms.defect == "a promise is forgotten with its connection":
        state = put(state, member, bound=NOBODY)
    return state


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
    """Tell the leader why there can be no world, and wait on: it is for the leader to say so to all."""
    connection = end_of(state, index)
    if connection is None:
        raise RefusedError("it is not checked in")
    return swap(spend(state, "ends"), connection, connection._replace(up=(*connection.up, FAILED)))


def leave(state: State, index: int) -> State:
    """End a process: without a world where it is bound to nobody, with one when all of its members have it."""
    me = state.processes[index]
    require(me.phase in (ON, IN), "it has ended")
    if me.phase == ON:
        require(me.bound == NOBODY or _breaks_promises(state, me), "it has promised to wait for the word")
        return _ended(state, index)
    require(me.leads == "formed", "it has ended")
    is_hasty = state.terms.defect == "a leader leaves with its own answer"
    require(is_hasty or not awaiting(state, index), "a member of its world may still ask for the word")
    return close_all(put(state, index, leads="left"), index)


def _breaks_promises(state: State, me: Process) -> bool:
    careless = {"a candidate that has withdrawn fails with others": me.leads == "withdrawn"}
    return {**careless, "who has given up still promises": me.late}.get(state.terms.defect, False)


def awaiting(state: State, leader: int) -> list[int]:
    """Return the members of a formed world who may still wait for its word."""
    return [m for m in state.processes[leader].members if m != leader and state.processes[m].bound == leader]


def lapse(state: State, member: int) -> State:
    """Let a promise end with its time; but the word comes in time to who can still be told it."""
    me = state.processes[member]
    require(me.bound != NOBODY, "it has promised nothing")
    leader = state.processes[me.bound]
    is_said = leader.leads == "formed" and leader.phase == IN and member in leader.members
    require(not is_said, "the word has been said to it")
    excused = leader.phase == CRASHED and bool(leader.got) and member in leader.members
    return _over(put(spend(state, "lapses"), member, excused=me.excused or excused), member)


def cut(state: State, member: int) -> State:
    """Keep the last word, which was said, from a member until its promise is over: what no protocol can mend."""
    me = state.processes[member]
    require(me.bound != NOBODY, "it has promised nothing")
    leader = state.processes[me.bound]
    require(leader.leads == "formed" and member in leader.members, "no word was said to it")
    return _over(put(spend(state, "cuts"), member, excused=True), member)


def _over(state: State, member: int) -> State:
    """Its leaders count no longer on it, by whatever they heard, or will still hear, of that promise."""
    state = put(state, member, bound=NOBODY)
    if state.terms.defect == "a leader's clock stands still":
        return state
    for connection in state.connections:
        if connection.member == member:
            promise = OVER if connection.promise == READY else connection.promise
            up = connection.up
            if state.terms.defect != "a lease begins when its promise arrives":
                up = tuple(("READY", frame[1], False) if frame[0] == "READY" else frame for frame in up)
            state = swap(state, connection, connection._replace(promise=promise, up=up))
    return state
