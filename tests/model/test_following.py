"""The simulator's runs of the real code are runs of the model: no step is taken that it does not allow."""

from __future__ import annotations

import pytest
from simulator.defects import defect

from mingle_hooks.rendezvous.leader import Leader
from model.recording import followed

SCHEDULES, BLOCK = 320, 80


@pytest.mark.parametrize("first", range(0, SCHEDULES, BLOCK))
def test_what_the_code_does_the_model_allows(first: int) -> None:
    """Each check-in, answer, promise, word, loss, failure and end, in the order in which they happen."""
    runs = {seed: followed(seed) for seed in range(first, first + BLOCK)}
    assert not {seed: run.refused for seed, run in runs.items() if run is not None and run.refused}
    assert sum(run.steps for run in runs.values() if run is not None) > 15 * BLOCK


def test_a_connection_may_be_lost_as_a_promise_ends() -> None:
    """The promise's end comes first, and changes what the leader knows on that connection."""
    run = followed(30009394)
    assert not run.refused


@pytest.mark.parametrize("seed", [30002037, 30002309, 30013072, 30018932])
def test_a_candidate_that_has_withdrawn_hands_a_failure_on(seed: int) -> None:
    """To the leader that it follows, which may have told it meanwhile."""
    run = followed(seed)
    assert not run.refused


@pytest.mark.parametrize("seed", [30000079, 30001001])
def test_a_suspended_host_does_not_end_its_promises_before_their_time(seed: int) -> None:
    """Its clock, which it reads only when it wakes, is ahead of the others' until then."""
    run = followed(seed)
    assert not run.refused


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a member breaks its promise", "it has promised to wait"),
        ("the word goes out a promise too early", "not all have promised"),
        ("a leader leaves with its own answer", "may still ask for the word"),
        ("a lost leader is not noticed", "the model has () there"),
        ("a sorted() is dropped", "it has promised to wait"),
    ],
)
def test_a_defect_of_the_code_is_refused(name: str, why: str) -> None:
    """The first step that the model does not allow is told, with the reason."""
    with defect(name):
        refusals = (run.refused for seed in range(SCHEDULES) if (run := followed(seed)) is not None and run.refused)
        assert why in next(refusals, "none")


def test_an_epoch_that_is_not_counted_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The frames are compared with the model's own, and not only their kinds."""
    close = Leader._close

    def always_the_first(leader: Leader, offer: int) -> None:
        leader._epoch = 0
        close(leader, offer)

    monkeypatch.setattr(Leader, "_close", always_the_first)
    seeds = (67, *range(SCHEDULES))  # the first schedule that finds it: where that has moved, all are tried again
    refusals = (run.refused for seed in seeds if (run := followed(seed)) is not None and run.refused)
    assert "('ANSWER', 1)" in next(refusals, "none")
