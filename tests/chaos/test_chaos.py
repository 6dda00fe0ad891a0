"""Schedules on real hosts: a seed is one schedule, a dozen break no rule, and the rules notice what they are for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from simulator.seats import Seat

from chaos.__main__ import played
from chaos.outcome import Hit, Outcome, Process, Trained
from chaos.rules import violations
from chaos.schedules import BRIEF_S, DARK_S, FROZEN_S, KINDS, WAYS, WITHIN_S, Fault, Schedule, schedule

NODES = 3
MANY = range(400)
CALM = Schedule(
    0, NODES, "exec", "", has_ranks=True, has_new_key=False, is_stubborn=False, timeout_s=40.0,
    offsets_s=(0.0, 0.0, 0.0), second_s=(), faults=(),
)  # fmt: skip
KILL = Fault("kill", 1, "world", 0.1)
UNPLUG = Fault("unplug", 1, "world", 0.1, DARK_S)
FREEZE = Fault("stop", 1, "world", 0.1, FROZEN_S)
SAID = "mingle: expected 3 members within 4 s; saw 2, missing rank 1; try a longer --timeout\n"
FAILED = "unset MASTER_ADDR; case $- in *i*) (exit 69);; *) exit 69;; esac;\n"


def test_a_seed_is_one_schedule() -> None:
    assert [schedule(seed, NODES) for seed in MANY] == [schedule(seed, NODES) for seed in MANY]
    assert len({str(schedule(seed, NODES)).partition(":")[2] for seed in MANY}) == len(MANY)


def test_every_way_and_every_fault_at_every_moment_comes_up() -> None:
    """So do schedules that have to form a world, and second jobs, which are as many as others."""
    schedules = [schedule(seed, NODES) for seed in MANY]
    assert {its.way for its in schedules} == set(WAYS)
    assert {fault.kind for its in schedules for fault in its.faults} == set(KINDS)
    assert {(f.after, f.host) for s in schedules for f in s.faults} == {(a, n) for a in WITHIN_S for n in range(NODES)}
    assert {its.is_calm() for its in schedules} == {bool(its.second_s) for its in schedules} == {True, False}


def covering(seeds: Iterable[int]) -> list[int]:
    """Return seeds whose schedules have every way to start and every kind of fault, and take seconds."""
    lacks: set[object] = {*WAYS, *KINDS, "second"}
    all_of_them = [schedule(seed, NODES) for seed in seeds]
    brief = [its for its in all_of_them if max(its.offsets_s + tuple(f.lasts_s for f in its.faults)) <= 2 * BRIEF_S]
    found = []
    for most in (3, 2, 1):
        for its in brief:
            has = {its.way, *(fault.kind for fault in its.faults), "second" * bool(its.second_s)}
            if len(has & lacks) >= most:
                lacks -= has
                found.append(its.seed)
    assert not lacks, lacks
    return found


@pytest.mark.usefixtures("fresh_slurm")
def test_no_rule_is_broken_on_real_hosts(tmp_path: Path) -> None:
    seeds = covering(range(2000))
    found = list(played(seeds, tmp_path, NODES, jobs=6))
    assert {its.seed for its in found} == set(seeds)
    assert not [f"{its.broken}\n{its.shown}" for its in found if its.broken]
    assert "formed" in {its.end for its in found}
    # What strikes when a world forms may come too late on a fast machine; not what is made at the start.
    assert {kind for its in found for kind in its.faults} >= {"delay", "loss", "twice"}


def process(number: int, **changes: object) -> Process:
    return replace(Process(f"node{number + 1}", "first", 0.0, 2.0, 0, ""), **changes)  # type: ignore[arg-type]


def trained(number: int, *, world: str = "w", **changes: object) -> Trained:
    seat = Seat(f"s{number}", (world, "10.77.0.1", "20000"), number, NODES, number, 1, NODES, NODES, number)
    return Trained("first", f"node{number + 1}", 1.0, seat._replace(**changes), "node1")  # type: ignore[arg-type]


def outcome(**changes: object) -> Outcome:
    """Return one in which all is well, but for these changes."""
    well = Outcome(tuple(map(process, range(NODES))), tuple(map(trained, range(NODES))), (), over_s=2.0)
    return replace(well, **changes)  # type: ignore[arg-type]


def one_trains(number: int, **changes: object) -> Outcome:
    """Return the outcome in which one of the three has another place."""
    return outcome(trained=tuple(trained(n, **changes if n == number else {}) for n in range(NODES)))


def one_ends(**changes: object) -> Outcome:
    """Return the outcome in which one process ended so."""
    return outcome(processes=(process(0, **changes),))


def lost(over_s: float, *hits: Hit) -> Outcome:
    """Return the outcome of a run that ended so many seconds after the beginning, for what hit a host."""
    said = "mingle run: node2 (rank 1): killed by SIGKILL\n"
    return outcome(processes=tuple(process(n, status=75, stderr=said) for n in range(3)), hits=hits, over_s=over_s)


BROKEN = replace(CALM, way="together", faults=(KILL,))
CUT = replace(CALM, way="run", faults=(UNPLUG,))
FROZEN = replace(CUT, faults=(FREEZE,))
SHORT = replace(CALM, timeout_s=4.0)
# Of the runner's host, and of the leader's.
UNPLUG_LAST, KILL_FIRST = replace(UNPLUG, host=2), replace(KILL, host=0)
KILLED = Hit(KILL, 1.5, 1.5, 1)
NO_WORLD = outcome(trained=(), processes=tuple(process(number, status=69, stderr=SAID) for number in range(NODES)))
TWO = (trained(0), trained(1))
# What is wrong -> the schedule, what differs from an outcome without defects, and how the violation begins.
DEFECTS: dict[str, tuple[Schedule, Outcome, str]] = {
    "two worlds": (CALM, one_trains(2, world="v"), "2 worlds of the first job"),
    "a size of its own": (CALM, one_trains(2, size=4), "2 worlds of the first"),
    "a rank twice": (CALM, one_trains(2, rank=1), "rank 1 twice"),
    "another's rank": (CALM, one_trains(2, asked_rank=1), "s2, rank 1, was given"),
    "an offset": (CALM, one_trains(1, offset=2), "s0: 1 slots from 0, and the"),
    "trains alone": (SHORT, replace(NO_WORLD, trained=(trained(0, nodes=1, size=1),)), "s0 trains alone"),
    "half a world": (SHORT, outcome(trained=TWO), "half a world: 1 of 3"),
    "half a world after a kill of another job": (
        SHORT, outcome(trained=TWO, hits=(Hit(KILL, 0.1, 0.1, 0),)), "half a world: 1 of 3"
    ),
    "no world, though nothing happened": (CALM, NO_WORLD, "no world of the first job"),
    "a healthy run is ended": (
        replace(CALM, way="run"),
        one_ends(status=75, stderr="mingle run: node2 (rank 1): no sign of life\n"),
        "node1 of the first job ended with 75 in a calm",
    ),
    "a bug": (SHORT, one_ends(status=70, stderr=SAID), "node1 of the first job ended with 70"),
    "killed by nobody": (SHORT, one_ends(status=137), "node1 of the first job ended with 137"),
    "never ends": (SHORT, one_ends(ended_s=None, status=None), "node1 of the first job never"),
    "ends late": (SHORT, one_ends(ended_s=60.0), "node1 of the first job ended 8.5 s late"),
    "says nothing": (SHORT, one_ends(status=69), "node1 of the first job ended with 69 and"),
    "says only that it failed": (
        SHORT, one_ends(status=69, stderr=f"{SAID}mingle: failed\n"), "node1 of the first job ended with 69 and"
    ),
    "a shell is to run more": (SHORT, outcome(evaluated=(f"export A='1';\n{FAILED}",)), "eval got"),
    "a shell gets half of it": (SHORT, outcome(evaluated=("unset A && {\nexport A='1';\n",)), "eval got"),
    "something is left": (SHORT, outcome(left=("sleep still runs",)), "left: sleep still runs"),
    "survivors of a kill": (BROKEN, lost(20.0, KILLED), "the run went on"),
    "survivors of a cut": (CUT, lost(28.0, Hit(UNPLUG, 1.5, 11.0)), "the run went on"),
    "survivors of a host that stands still": (FROZEN, lost(26.0, Hit(FREEZE, 1.5, 13.5, 4)), "the run went on"),
    "a run that ended well without a member": (BROKEN, outcome(hits=(KILLED,)), "the run ended well"),
}  # fmt: skip


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_noticed(name: str) -> None:
    """By the rule that is for it."""
    its, seen, begins = DEFECTS[name]
    assert [line for line in violations(its, seen) if line.startswith(begins)], violations(its, seen)


@pytest.mark.parametrize(
    ("its", "seen"),
    [
        (CALM, outcome()),
        (SHORT, replace(NO_WORLD, evaluated=(f"{FAILED}exit 69\n", f"{FAILED}exit 137\n", "exit 137\n"))),
        (replace(CALM, way="srun run"), NO_WORLD),
        (BROKEN, lost(4.0, KILLED)),
        # The runner's host was cut off when another host's COMMAND was killed, and hears of it only afterwards.
        (replace(BROKEN, faults=(UNPLUG_LAST, KILL)), lost(20.0, Hit(UNPLUG_LAST, 1.2, 11.2), KILLED)),
        # What was stopped was there before COMMAND, and not all of the run on its host.
        (FROZEN, replace(one_ends(), hits=(Hit(FREEZE, 0.5, 12.5, 1),), over_s=26.0)),
        # It was killed, or the leader had no time to tell it, or it was out of reach at the last word.
        (replace(CALM, faults=(KILL,)), outcome(trained=(trained(0), trained(2)), hits=(Hit(KILL, 0.9, 0.9, 1),))),
        (replace(CALM, faults=(KILL_FIRST,)), outcome(trained=TWO[:1], hits=(Hit(KILL_FIRST, 1.1, 1.1, 1),))),
        (replace(CALM, faults=(UNPLUG,)), outcome(trained=(trained(0), trained(2)), hits=(Hit(UNPLUG, 0.9, 9.9),))),
    ],
)
def test_what_is_allowed_is_no_violation(its: Schedule, seen: Outcome) -> None:
    assert violations(its, seen) == []
