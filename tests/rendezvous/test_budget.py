"""A budget bounds any span of time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mingle_hooks.rendezvous.multicast import Budget


@given(st.integers(1, 20), st.floats(0, 5), st.lists(st.floats(0, 10), max_size=200))
def test_no_more_is_spent_than_the_burst_and_the_rate_allow(burst: int, rate: float, pauses: list[float]) -> None:
    """Whatever the pauses, spending is bounded by burst + rate * time."""
    now = 0.0
    budget = Budget(burst, rate, lambda: now)
    spent = 0
    for pause in pauses:
        now += pause
        spent += budget.spend()
        assert spent <= burst + rate * now + 1e-6


def test_what_is_not_spent_is_not_saved_beyond_the_burst() -> None:
    """After an hour of silence there is one burst."""
    now = 0.0
    budget = Budget(3, 1.0, lambda: now)
    now = 3600.0
    assert [budget.spend() for _ in range(5)] == [True, True, True, False, False]
    now += 1.0
    assert [budget.spend() for _ in range(2)] == [True, False]
