"""What a leader does in the model: it lets members in, closes when all are, and says the word when all promise."""

from __future__ import annotations

from model.worlds import (
    AGAIN,
    ASKED,
    END,
    FAILED,
    IN,
    MOVED,
    OVER,
    PROGRESS,
    READY,
    SILENT,
    WELCOME,
    Connection,
    State,
    free,
    put,
    require,
    roster,
    spend,
    swap,
    tell,
)


def hear(state: State, connection: Connection) -> State:
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
    """Tell whether somebody is one too many, or has a rank that another one has."""
    others = [c.member for c in roster(state, leader)]
    if len(others) + 1 >= state.terms.size:
        return True
    slots = [state.processes[other].slot for other in (leader, *others)]
    is_careless = state.terms.defect == "ranks are not compared"
    return state.terms.ranked and state.processes[member].slot in slots and not is_careless


def _again(state: State, connection: Connection) -> State:
    """Tell a member of the formed world once more."""
    leader = state.processes[connection.leader]
    if connection.member not in leader.members:
        return tell(state, connection, FAILED)
    if state.terms.defect == "the last word is said once":
        return _let_go(state, connection)
    return tell(state, connection, ("ANSWER", leader.epoch), ("COMMIT", leader.epoch))


def _ready(state: State, connection: Connection, epoch: int, *, is_live: bool) -> State:
    leader = state.processes[connection.leader]
    is_careless = state.terms.defect == "a leader compares no epoch"
    is_awaited = connection.inside and connection.promise != SILENT and (epoch == leader.epoch or is_careless)
    if leader.leads != "closing" or not is_awaited:
        return state
    return swap(state, connection, connection._replace(promise=READY if is_live else OVER))


def close(state: State, index: int) -> State:
    """With all in, ask each to promise that it waits for the word."""
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
    """Say the word, while every member still waits for it."""
    me = state.processes[index]
    require(me.leads == "closing", "it does not close")
    accepted = {READY, OVER} if state.terms.defect == "a lease is not looked at" else {READY}
    waiting = [c for c in roster(state, index) if c.promise in accepted]
    enough = state.terms.size - 1 - (state.terms.defect == "the word goes out a promise too early")
    require(len(waiting) >= enough, "not all have promised to wait, or a promise is over")
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
    """There can be no world, for whatever reason, and all are told."""
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
