"""Every state that can be reached, nearest first, so that what breaks a rule is found by its shortest way."""

from typing import NamedTuple

from model.protocol import State, moves
from model.rules import broken, is_documented_split


class Explored(NamedTuple):
    """What an exploration found."""

    states: int
    worlds: int  # states in which everybody who is not killed has the world
    splits: int  # states of the one documented split, beyond which is not looked
    wrong: str  # the rule that is broken, where one is
    steps: tuple[str, ...]  # the steps that lead there, or to the first documented split
    whole: bool  # whether all was seen


def explore(start: State, most: int = 10**9) -> Explored:
    """Look at all states that can be reached from one, at most so many of them."""
    came: dict[State, tuple[State, str] | None] = {start: None}
    frontier, worlds, splits = [start], 0, 0
    first_split: tuple[str, ...] = ()
    while frontier:
        following: list[State] = []
        for state in frontier:
            for step, found in moves(state):
                after = alike(found)
                if after in came:
                    continue
                came[after] = state, step
                if why := broken(after):
                    return Explored(len(came), worlds, splits, why, way_to(came, after), whole=False)
                if is_documented_split(after):
                    first_split = first_split or way_to(came, after)
                    splits += 1
                    continue
                worlds += all(process.got for process in after.processes if process.phase != "crashed")
                following.append(after)
            if len(came) > most:
                return Explored(len(came), worlds, splits, "", first_split, whole=False)
        frontier = following
    return Explored(len(came), worlds, splits, "", first_split, whole=True)


def way_to(came: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    """Return the steps that led to a state."""
    steps = []
    while (before := came[state]) is not None:
        state, step = before
        steps.append(step)
    return tuple(reversed(steps))


def alike(state: State) -> State:
    """Return the one that stands for all states that differ only in which is which of those that never lead."""
    size = state.terms.size
    if len(state.processes) > size:  # one was started again, and they differ
        return state
    leaders = [index for index, process in enumerate(state.processes) if process.precedence]
    rest = range(len(leaders), size)
    if len(rest) < 2:
        return state
    # A process without its slot, and its connections without their member: the first of each.
    looks = {i: (state.processes[i][1:], [c[1:] for c in state.connections if c.member == i]) for i in rest}
    order = sorted(rest, key=looks.__getitem__)
    if order == [*rest]:
        return state
    now = dict(zip(order, rest, strict=True))
    others = tuple(state.processes[before]._replace(slot=i) for before, i in now.items())
    connections = tuple(sorted(c._replace(member=now.get(c.member, c.member)) for c in state.connections))
    return state._replace(processes=state.processes[: len(leaders)] + others, connections=connections)
