"""The simulator's runs of the real code are runs of the model: no step is taken that it does not allow."""

import pytest
from simulator.rules import violations

from model.recording import followed

# Those that follow are in simulator/test_simulator.py.
SCHEDULES, BLOCK = 300, 50


@pytest.mark.parametrize("first", range(0, SCHEDULES, BLOCK))
def test_no_schedule_breaks_a_rule_and_the_model_allows_each_step_of_the_code(first: int) -> None:
    """Each check-in, answer, promise, word, loss, failure and end, in the order in which they happen."""
    runs = {seed: followed(seed) for seed in range(first, first + BLOCK)}
    assert not {seed: broken for seed, (schedule, _) in runs.items() if (broken := violations(schedule))}
    followings = {seed: following for seed, (_, following) in runs.items() if following is not None}
    assert not {seed: its.refused for seed, its in followings.items() if its.refused}
    assert sum(its.steps for its in followings.values()) > 15 * BLOCK


# A connection is lost as a promise ends; a candidate that has withdrawn hands a failure on, to the leader it follows;
# a host that is suspended reads its clock, which is ahead of the others', only when it wakes.
RARE = (30009394, 30002037, 30002309, 30013072, 30018932, 30000079, 30001001)


@pytest.mark.parametrize("seed", RARE)
def test_the_model_allows_each_rare_step_of_the_code(seed: int) -> None:
    """These schedules were found among a hundred thousand."""
    _, following = followed(seed)
    assert following is not None
    assert not following.refused
