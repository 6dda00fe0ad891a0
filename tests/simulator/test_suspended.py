"""A host that is suspended while its world closes: its monotonic clock stands still, and the others' time goes on."""

from __future__ import annotations

import pytest

from simulator.defects import defect
from simulator.rules import documented, violations
from simulator.schedules import Fault, Plan, Schedule

SEEDS = range(30)


def run(seed: int, moment: str, *, timeout_s: float, asleep_s: float, who: int = 0) -> Schedule:
    """Run a world of three in which one host, 0 is the leader's, is suspended when it, or another, says something."""
    schedule = Schedule(
        seed,
        planned=Plan(
            seed=seed,
            mode="ranks",
            nodes=3,
            timeouts=(timeout_s,) * 6,
            arrivals=(0.0, 0.1, 0.2),
            faults=(Fault("suspend", moment, who, 0, asleep_s),),
            oddity=None,
            loss=0.0,
            networks=1,
        ),
    )
    schedule.run()
    return schedule


def test_a_leader_that_was_suspended_before_the_last_word_asks_everybody_again() -> None:
    """It wakes when the others have given up, and their promises look alive by a clock that stood still."""
    with defect("leases and deadlines stand still with a suspended host"):
        assert any(violations(run(seed, "READY", timeout_s=5.0, asleep_s=45.0)) for seed in SEEDS)
    for seed in SEEDS:
        schedule = run(seed, "READY", timeout_s=5.0, asleep_s=45.0)
        assert not violations(schedule), seed
        (leader,) = [process for process in schedule.processes if process.host.name == "node0"]
        was_said = leader.formed is not None and leader.formed <= schedule.troubles[0][0] + 0.003
        assert was_said or not any(process.answer for process in schedule.processes), seed


@pytest.mark.parametrize("who", [0, 1], ids=["the leader's", "a member's"])
def test_a_word_that_was_said_is_heard_when_the_host_has_woken(who: int) -> None:
    """The members that have time left ask for it, and the leader stays for them, though its own time was over."""
    for seed in SEEDS:
        schedule = run(seed, "COMMIT", timeout_s=60.0, asleep_s=45.0, who=who)
        assert all(process.answer for process in schedule.processes), (seed, documented(schedule))
