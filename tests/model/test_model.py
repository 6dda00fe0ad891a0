"""The protocol, explored to the end for three members and for four, with a few things that go wrong.

`python -m model`, in tests/, explores more of each.
"""

from __future__ import annotations

import pytest

from model.defects import DEFECTS, with_defect
from model.explore import explore, without_word
from model.protocol import Budget, Terms, beginning
from model.sizes import SMALL, start


@pytest.mark.parametrize(("size", "candidates", "budget"), SMALL)
def test_no_state_breaks_a_rule(size: int, candidates: int, budget: Budget) -> None:
    """One world at most, each rank once, and whoever is in it has it, or waits for the word, or was killed."""
    found = explore(start(size, candidates, budget))
    assert not found.wrong, "; ".join(found.backend)
    assert found.whole
    assert found.worlds


def test_the_one_documented_split_is_there() -> None:
    """A cut at the last word, for longer than the lease, is found, and nothing without it."""
    found = explore(beginning(Terms(3), 2, Budget(cuts=1)))
    assert found.splits
    assert not found.wrong
    assert found.backend[-1].endswith("is cut off from the word")


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_put_in_on_purpose_is_found(name: str) -> None:
    """A model that finds nothing would say nothing."""
    found = explore(with_defect(name))
    assert found.wrong.startswith(DEFECTS[name][1])


@pytest.mark.parametrize("defect", ["", "the last word is said once"])
def test_the_word_that_was_said_can_always_be_had(defect: str) -> None:
    """A connection that breaks at the last word keeps nobody from it, as it is said again to who comes back."""
    backend = without_word(beginning(Terms(3, ranked=True, defect=defect), 1, Budget(breaks=1)))
    assert bool(backend) is bool(defect), "; ".join(backend)
