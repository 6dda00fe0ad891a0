"""Mistakes put into the model on purpose, each with the smallest exploration that has to find it."""

from __future__ import annotations

from model.moves import beginning, moves
from model.worlds import Budget, State, Terms

# what is wrong -> what may go wrong besides, and what is said of the states that it leads to
DEFECTS: dict[str, tuple[Budget, str]] = {
    "a lease is not looked at": (Budget(ends=1), "a split"),
    "a lease begins when its promise arrives": (Budget(lapses=1), "a split"),
    "a leader's clock stands still": (Budget(lapses=1), "a split"),
    "a leader compares no epoch": (Budget(breaks=1, ends=1), "a split"),
    "the word goes out a promise too early": (Budget(), "a split"),
    "a promise is forgotten with its connection": (Budget(breaks=1), "a split"),
    "who has come back may pass over": (Budget(breaks=1, crashes=1, restarts=1), "a split"),
    "who has given up still promises": (Budget(ends=1), "a split"),
    "a candidate that has withdrawn fails with others": (Budget(), "a split"),
    "a leader leaves with its own answer": (Budget(), "a split"),
    "ranks are not compared": (Budget(), "ranks"),
}
# Those that only show with ranks by right, where two processes have the same one.
RANKED = {"ranks are not compared": (0, 1, 1)}
# Those whose way is long begin on it.
ALL_IN = ("1 finds 0", "0 hears CHECKIN of 1", "2 finds 0", "0 hears CHECKIN of 2")
BEGUN = {
    "a leader compares no epoch": ALL_IN,
    "who has come back may pass over": (
        *ALL_IN,
        "0 closes",
        "1 hears ANSWER 1 of 0",
        "2 hears ANSWER 1 of 0",
        "0 hears READY 1 True of 2",
    ),
}


def with_defect(name: str) -> State:
    """Return where the exploration of a mistake begins: three members, of which two would lead, or one by right."""
    slots = RANKED.get(name, ())
    candidates = 1 if slots else 2
    state = beginning(Terms(3, ranked=bool(slots), defect=name), candidates, DEFECTS[name][0], slots)
    for step in BEGUN.get(name, ()):
        state = dict(moves(state))[step]
    return state
