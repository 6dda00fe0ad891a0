"""Every state that can be reached, nearest first, so that what breaks a rule is found by its shortest way."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from model.moves import moves
from model.rules import broken, is_documented_split

if TYPE_CHECKING:
    from model.worlds import State


class Explored(NamedTuple):
    """What an exploration found."""

    states: int
    worlds: int  # states in which everybody who is not killed has the world
    splits: int  # states of the one documented split, beyond which is not looked
    wrong: str  # the rule that is broken, where one is
    way: tuple[str, ...]  # the steps that lead there, or to the first documented split
    whole: bool  # whether all was seen


def explore(start: State, most: int = 10**9) -> Explored:
    """Look at all states that can be reached from one, at most so many of them."""
    came: dict[State, tuple[State, str] | None] = {start: None}
    frontier, worlds, splits = [start], 0, 0
    first_split: tuple[str, ...] = ()
    while frontier:
        following: list[State] = []
        for state in frontier:
            for step, after in moves(state):
                if after in came:
                    continue
                came[after] = state, step
                if why := broken(after):
                    return Explored(len(came), worlds, splits, why, way(came, after), whole=False)
                if is_documented_split(after):
                    first_split = first_split or way(came, after)
                    splits += 1
                    continue
                worlds += all(process.got for process in after.processes if process.phase != "crashed")
                following.append(after)
            if len(came) > most:
                return Explored(len(came), worlds, splits, "", first_split, whole=False)
        frontier = following
    return Explored(len(came), worlds, splits, "", first_split, whole=True)


def way(came: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    """Return the steps that led to a state."""
    steps = []
    while (before := came[state]) is not None:
        state, step = before
        steps.append(step)
    return tuple(reversed(steps))
