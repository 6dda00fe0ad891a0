"""All that can happen next in a state, each step with its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from model import leaders, members
from model.worlds import (
    AGAIN,
    CRASHED,
    END,
    NOBODY,
    ON,
    OVER,
    SILENT,
    Budget,
    Connection,
    Process,
    RefusedError,
    State,
    Terms,
    is_running,
    put,
    require,
    spend,
    swap,
)


def beginning(terms: Terms, candidates: int, budget: Budget, slots: tuple[int, ...] = ()) -> State:
    """Return the state in which all have begun, and the first of them lead, or would; slots are their ranks."""
    places = slots or tuple(range(terms.size))
    leaders = [Process(slot, (slot, 0), leads="gathering") for slot in places[:candidates]]
    others = [Process(slot) for slot in places[candidates:]]
    return State(terms, (*leaders, *others), (), budget)


def crash(state: State, index: int) -> State:
    """Kill a process; its kernel closes what it had open."""
    require(is_running(state.processes[index]), "it has ended")
    state = put(spend(state, "crashes"), index, phase=CRASHED, bound=NOBODY, answer=())
    return members.close_all(state, index)


def restart(state: State, index: int) -> State:
    """Start a killed process again: another one, with the rank of the first, and the best ticket of all."""
    before = state.processes[index]
    require(before.phase == CRASHED, "it runs")
    state = put(spend(state, "restarts"), index, late=True)  # once for each that was killed
    return begin(state, before.slot, (-len(state.processes), 0), leads=bool(before.leads))


def begin(state: State, slot: int, precedence: tuple[object, ...], *, leads: bool) -> State:
    """Begin a process; who had failed by now says nothing about its run."""
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
        yield f"{leader} hears {_said(connection.up)} of {member}", leaders.hear(state, connection)
    if connection.down and connection.m_open:
        yield f"{member} hears {_said(connection.down)} of {leader}", members.hear(state, connection)
    leads = state.processes[leader].leads
    if leads == "closing" and connection.promise == OVER and connection.m_open:
        yield f"{leader} asks {member} to promise anew", leaders.hold(state, connection)
    if leads == "gathering" and connection.promise != SILENT and connection.m_open:
        yield f"{leader} tells {member} to wait on", leaders.progress(state, connection)
    yield from _faults(state, connection)


def _faults(state: State, connection: Connection) -> Iterator[Step]:
    names = f"{connection.member} and {connection.leader}"
    for side in _sides(connection) if state.left.breaks else ():
        yield f"the connection of {names} breaks ({side})", leaders.break_off(state, connection, side)
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
        ("closes", leaders.close, process.leads == "gathering"),
        ("says the word", leaders.commit, process.leads == "closing"),
        ("stands again", members.resume, process.leads == "withdrawn"),
        ("gives up", members.give_up, bool(left.ends)),
        ("tells of a failure", members.tell_failure, bool(left.ends) and process.phase == ON),
        ("leaves", members.leave, process.late or process.leads in ("formed", "withdrawn")),
        ("is killed", crash, bool(left.crashes)),
        ("'s promise lapses", members.lapse, bool(left.lapses) and process.bound != NOBODY),
        ("is cut off from the word", members.cut, bool(left.cuts) and process.bound != NOBODY),
    ]
    for name, act, is_due in tries:
        if is_due and (after := attempted(act, state, index)) is not None:
            yield f"{index} {name}", after
    if process.phase == ON:
        for other, leader in enumerate(state.processes):
            if leader.leads in ("gathering", "closing", "formed", "failed") and is_running(leader) and other != index:
                after = attempted(lambda at, by, to=other: members.find(at, by, to), state, index)  # type: ignore[misc]
                if after is not None:
                    yield f"{index} finds {other}", after


def attempted(act: Callable[[State, int], State], state: State, index: int) -> State | None:
    """Return what comes of a step; None where it cannot be taken."""
    try:
        return act(state, index)
    except RefusedError:
        return None
