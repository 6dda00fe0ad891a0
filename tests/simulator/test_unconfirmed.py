"""A member that is lost between the last word and its confirmation."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from simulator.process import Silent
from simulator.rules import violations
from simulator.schedules import Fault, Plan, Schedule

if TYPE_CHECKING:
    import pytest


def test_the_world_of_a_member_that_was_killed_after_the_last_word_stands_and_rank_0_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have started its command: the others have the world, too."""
    notes: list[str] = []
    monkeypatch.setattr(Silent, "note", lambda _self, text: notes.append(text))
    killed = 0
    for seed in range(15):
        plan = Plan(
            seed=seed,
            mode="ranks",
            nodes=3,
            timeouts=(60.0,) * 6,
            arrivals=(0.0, 0.1, 0.2),
            faults=(Fault("kill", "COMMIT", 1, 0, 0.0),),
            oddity=None,
            loss=0.0,
            networks=1,
        )
        schedule = Schedule(seed, planned=plan)
        notes.clear()
        schedule.run()
        first, second, third = schedule.processes
        killed += second.answer is None
        assert first.answer is not None
        assert third.answer is not None
        said = "the world is formed, but node1 (10.77.0.2) did not confirm it"
        assert notes == ([said] if second.answer is None else []), seed
    assert killed > 0


def test_a_member_that_loses_the_last_word_twice_gets_it_the_third_time() -> None:
    """Its connection is lost unsaid before COMMIT, and the next one with the COMMIT that it has come back for."""
    lost = 0
    for seed in range(30):
        plan = Plan(
            seed=seed,
            mode="ranks",
            nodes=3,
            timeouts=(150.0,) * 6,
            arrivals=(0.0, 0.1, 0.2),
            faults=(Fault("half-open", "READY", 1, 0, 0.0), Fault("half-open", "COMMIT", 1, 0, 0.0)),
            oddity=None,
            loss=0.0,
            networks=1,
        )
        schedule = Schedule(seed, trace=True, planned=plan)
        schedule.run()
        assert not violations(schedule), seed
        lines = schedule.trace or []
        lost += sum("> node1  COMMIT" in line and "loses" in after for line, after in pairwise(lines[-60:]))
    assert lost > 0
