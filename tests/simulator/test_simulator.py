"""A thousand schedules with everything that goes wrong, new ones every day, and the rules that hold after each.

A seed that breaks a rule is replayed, with all that happened, by `python -m simulator --seed SEED` in tests/.
"""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from simulator.defects import DEFECTS, defect
from simulator.rules import violations
from simulator.schedules import FAULTS, Schedule

# `make chaos` runs as many as one likes.
SCHEDULES, BLOCK = 1000, 250
TODAY = datetime.now(timezone.utc).date().toordinal() * BLOCK  # the same in every process and when a test runs again


def broken(seed: int) -> list[str]:
    """Return what the schedule of this seed breaks."""
    schedule = Schedule(seed)
    schedule.run()
    return violations(schedule)


@pytest.mark.parametrize("first", [*range(0, SCHEDULES, BLOCK), pytest.param(TODAY, id="today")])
def test_no_schedule_breaks_a_rule(first: int) -> None:
    """One world or none, each member with its place or with a reason in time, and nothing left open."""
    found = {seed: what for seed in range(first, first + BLOCK) if (what := broken(seed))}
    assert not found, f"python -m simulator --seed {next(iter(found))}: {found}"


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_put_in_on_purpose_is_found(name: str) -> None:
    """A rule that no mistake breaks would say nothing."""
    with defect(name):
        assert any(broken(seed) for seed in (DEFECTS[name][0], *range(SCHEDULES)))


def test_a_seed_always_brings_the_same(tmp_path: Path) -> None:
    """In this process, in another, and with another order of sets."""
    schedule = Schedule(27, trace=True)
    schedule.run()
    assert schedule.trace
    script = "from simulator.schedules import Schedule as S; s = S(27, trace=True); s.run(); print('\\n'.join(s.trace))"
    for hashes in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": str(Path(__file__).parent.parent)}
        done = subprocess.run(
            [sys.executable, "-c", script], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines() == schedule.trace


def test_schedules_are_of_every_kind() -> None:
    """The seeds of this suite hold each discovery backend, each fault and each oddity, and worlds form in many."""
    plans = [Schedule(seed).plan for seed in range(1000)]
    assert len({plan.mode for plan in plans}) == 7
    assert len({fault.kind for plan in plans for fault in plan.faults}) == len(FAULTS)
    assert len({plan.oddity.kind for plan in plans if plan.oddity}) == 6
    assert sum(plan.is_calm for plan in plans) > 20


# A frame whose length, or whose roster, was changed on the way; a connection that was half open as COMMIT came.
ONCE_SPLIT = (10_025_989, 10_077_759, 10_101_996, 20_009_846, 20_015_810)


@pytest.mark.parametrize("seed", ONCE_SPLIT)
def test_a_schedule_that_once_split_a_world_does_not(seed: int) -> None:
    """Each was found among a hundred thousand."""
    schedule = Schedule(seed)
    schedule.run()
    assert violations(schedule) == []
