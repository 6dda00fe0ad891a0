"""The protocol, explored to the end for three members and for four, with a few things that go wrong.

`python -m model`, in tests/, explores more of each.
"""

import pytest

from model.explore import explore
from model.protocol import Budget, Terms, beginning
from model.sizes import SMALL, start


@pytest.mark.parametrize(("size", "candidates", "budget"), SMALL)
def test_no_state_breaks_a_rule(size: int, candidates: int, budget: Budget) -> None:
    """One world at most, each rank once, and each of its members has it, or waits for COMMIT, or was killed."""
    found = explore(start(size, candidates, budget))
    assert not found.wrong, "; ".join(found.steps)
    assert found.whole
    assert found.worlds


def test_the_one_documented_split_is_there() -> None:
    """A cut at COMMIT, for longer than the lease, is found, and nothing without it."""
    found = explore(beginning(Terms(3), 2, Budget(cuts=1)))
    assert found.splits
    assert not found.wrong
    assert found.steps[-1].endswith("is cut off from the word")
