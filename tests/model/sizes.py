"""What is explored: how many members, how many of them would lead, and how often what may go wrong.

Where one leads, it does so by right, and ranks are given.
"""

from model.protocol import Budget, State, Terms, beginning

# In seconds, by the tests.
SMALL = [
    (3, 1, Budget(breaks=2)),
    (3, 1, Budget(breaks=1, lapses=1, ends=1)),
    (3, 1, Budget(breaks=1, crashes=1, restarts=1)),
    (3, 2, Budget(breaks=1, lapses=1)),
    (3, 2, Budget(breaks=1, ends=1)),
    (3, 2, Budget(repeats=1, ends=1)),
    (3, 2, Budget(crashes=1, restarts=1)),
    (3, 2, Budget(crashes=1, lapses=1)),
    (3, 3, Budget(ends=1)),
    (3, 3, Budget(lapses=1)),
    (4, 1, Budget(breaks=1, lapses=1)),
    (4, 1, Budget(repeats=1, lapses=1)),
    (4, 1, Budget(crashes=1, restarts=1, lapses=1)),
    (4, 2, Budget(crashes=1)),
    (4, 2, Budget(ends=1)),
]
# In minutes, and with gigabytes.
LARGE = [
    (3, 1, Budget(breaks=2, lapses=1, crashes=1, restarts=1)),
    (3, 2, Budget(breaks=2)),
    (3, 2, Budget(breaks=1, lapses=1, repeats=1)),
    (3, 2, Budget(breaks=1, lapses=1, ends=1)),
    (3, 2, Budget(breaks=1, crashes=1, restarts=1)),
    (3, 3, Budget(breaks=1, lapses=1)),
    (4, 1, Budget(breaks=2, lapses=1)),
    (4, 2, Budget(breaks=1, lapses=1)),
    (4, 2, Budget(crashes=1, restarts=1, lapses=1)),
]


def start(size: int, candidates: int, budget: Budget) -> State:
    """Return where such an exploration begins."""
    return beginning(Terms(size, ranked=candidates == 1), candidates, budget)
