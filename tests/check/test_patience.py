"""How long a probe waits, by a clock of the test's own."""

from __future__ import annotations

from mingle_hooks.check.probes import POLL_S, ActiveDeadline


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def waited(clock: Clock, deadline: ActiveDeadline, *passed_s: float) -> ActiveDeadline:
    """Look after each of these seconds."""
    for its in passed_s:
        clock.now += its
        deadline.look()
    return deadline


def test_where_looks_are_in_time_it_lasts_as_long_as_it_says() -> None:
    """And nothing was late."""
    clock = Clock()
    deadline = waited(clock, ActiveDeadline(clock, 1.0, 60.0), *[POLL_S] * 49)
    assert not deadline.is_over
    waited(clock, deadline, POLL_S, POLL_S)
    assert (deadline.has_lasted, deadline.is_over, deadline.late_s) == (True, True, 0.0)


def test_time_in_which_nothing_ran_does_not_count() -> None:
    """After a stop it goes on for nearly as long as without one, and says how long that was."""
    clock = Clock()
    deadline = waited(clock, ActiveDeadline(clock, 1.0, 60.0), 10.0, *[POLL_S] * 40)
    assert not deadline.is_over
    assert 9.9 < deadline.late_s < 10.0
    assert waited(clock, deadline, *[POLL_S] * 10).has_lasted


def test_by_the_clock_it_ends_some_time_and_has_not_lasted_then() -> None:
    """What did not come in so little time says nothing."""
    clock = Clock()
    deadline = waited(clock, ActiveDeadline(clock, 1.0, 5.0), 2.0, 2.9)
    assert not deadline.is_over
    waited(clock, deadline, 0.2)
    assert (deadline.is_over, deadline.has_lasted) == (True, False)


def test_it_lasts_as_long_as_it_says_where_there_is_no_more_time() -> None:
    """A limit by the clock that is shorter is none."""
    clock = Clock()
    assert not waited(clock, ActiveDeadline(clock, 1.0, 0.0), *[POLL_S] * 40).is_over
