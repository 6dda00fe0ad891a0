"""How long a probe waits, by a clock of the test's own."""

from __future__ import annotations

from mingle_hooks.check.probes import LOOK_S, Patience


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def waited(clock: Clock, patience: Patience, *passed_s: float) -> Patience:
    """Look after each of these seconds."""
    for its in passed_s:
        clock.now += its
        patience.look()
    return patience


def test_where_looks_are_in_time_it_lasts_as_long_as_it_says() -> None:
    """And nothing was late."""
    clock = Clock()
    patience = waited(clock, Patience(clock, 1.0, 60.0), *[LOOK_S] * 49)
    assert not patience.is_over
    waited(clock, patience, LOOK_S, LOOK_S)
    assert (patience.has_lasted, patience.is_over, patience.late_s) == (True, True, 0.0)


def test_time_in_which_nothing_ran_does_not_count() -> None:
    """After a stop it goes on for nearly as long as without one, and says how long that was."""
    clock = Clock()
    patience = waited(clock, Patience(clock, 1.0, 60.0), 10.0, *[LOOK_S] * 40)
    assert not patience.is_over
    assert 9.9 < patience.late_s < 10.0
    assert waited(clock, patience, *[LOOK_S] * 10).has_lasted


def test_by_the_clock_it_ends_some_time_and_has_not_lasted_then() -> None:
    """What did not come in so little time says nothing."""
    clock = Clock()
    patience = waited(clock, Patience(clock, 1.0, 5.0), 2.0, 2.9)
    assert not patience.is_over
    waited(clock, patience, 0.2)
    assert (patience.is_over, patience.has_lasted) == (True, False)


def test_it_lasts_as_long_as_it_says_where_there_is_no_more_time() -> None:
    """A limit by the clock that is shorter is none."""
    clock = Clock()
    assert not waited(clock, Patience(clock, 1.0, 0.0), *[LOOK_S] * 40).is_over
