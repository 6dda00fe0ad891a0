"""Worlds of three in which one host is suspended, killed or cut off at COMMIT."""

from collections import Counter
from itertools import pairwise

import pytest
from support.gathering import observer

from simulator import process
from simulator.defects import defect
from simulator.rules import documented, violations
from simulator.schedules import Fault, Plan, Schedule

SEEDS = range(30)


def run(seed: int, timeout_s: float, *faults: Fault) -> Schedule:
    """Run a world of three, with its trace."""
    arrivals = (0.0, 0.1, 0.2)
    plan = Plan(seed, "ranks", 3, (timeout_s,) * 6, arrivals, faults, oddity=None, loss=0.0, networks=1)
    schedule = Schedule(seed, trace=True, planned=plan)
    schedule.run()
    return schedule


def test_a_leader_that_was_suspended_before_commit_renews_all_leases() -> None:
    """It wakes when the others have given up, and their promises look alive by a clock that stood still."""
    asleep = Fault("suspend", "READY", 0, 0, 45.0)
    with defect("leases and deadlines stand still with a suspended host"):
        assert any(violations(run(seed, 5.0, asleep)) for seed in SEEDS)
    for seed in SEEDS:
        schedule = run(seed, 5.0, asleep)
        assert not violations(schedule), seed
        (leader,) = [process for process in schedule.processes if process.host.name == "node0"]
        was_said = leader.formed is not None and leader.formed <= schedule.troubles[0][0] + 0.003
        assert was_said or not any(process.answer for process in schedule.processes), seed


@pytest.mark.parametrize("who", [0, 1], ids=["the leader's", "a member's"])
def test_a_commit_that_was_sent_arrives_after_the_host_has_woken(who: int) -> None:
    """The members that have time left ask for it, and the leader stays for them, though its own time was over."""
    for seed in SEEDS:
        schedule = run(seed, 60.0, Fault("suspend", "COMMIT", who, 0, 45.0))
        assert all(process.answer for process in schedule.processes), (seed, documented(schedule))


def test_the_world_of_a_member_that_was_killed_after_commit_stands_and_rank_0_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have started its command: the others have the world, too."""
    notes: list[str] = []
    monkeypatch.setattr(process, "observer", lambda: observer(notes.append))
    named = {True: Counter[bool](), False: Counter[bool]()}  # killed before it had its answer -> node1 is named
    for seed in range(15):
        notes.clear()
        first, second, third = run(seed, 60.0, Fault("kill", "COMMIT", 1, 0, 0.0)).processes
        assert first.answer
        assert third.answer
        is_named = any(note.startswith("the world is formed, but node1 (10.77.0.2)") for note in notes)
        named[second.answer is None][is_named] += 1
    # One that lives is named where its confirmation was lost with its connection.
    assert named[True][True] > 0 == named[True][False]
    assert named[False][False] > named[False][True]


def test_a_member_that_loses_commit_twice_gets_it_the_third_time() -> None:
    """Its connection is lost unsaid before COMMIT, and the next one with the COMMIT that it has come back for."""
    lost = 0
    for seed in SEEDS:
        schedule = run(seed, 150.0, *(Fault("half-open", moment, 1, 0, 0.0) for moment in ("READY", "COMMIT")))
        assert not violations(schedule), seed
        lines = schedule.trace or []
        lost += sum("> node1  COMMIT" in line and "loses" in after for line, after in pairwise(lines[-60:]))
    assert lost > 0
