"""Five hundred schedules with everything that goes wrong, new ones every day, and the rules that hold after each.

A seed that breaks a rule is replayed, with all that happened, by `python -m simulator --seed SEED` in tests/.
"""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from mingle_hooks.rendezvous.member import Request
from mingle_hooks.rendezvous.messages import Failure
from simulator.defects import DEFECTS, defect
from simulator.rules import violations
from simulator.schedules import Schedule

# `make chaos` runs as many as one likes.
SCHEDULES, NEW, BLOCK = 500, 250, 50
TODAY = datetime.now(timezone.utc).date().toordinal() * NEW  # the same in every process and when a test runs again
BLOCKS = [*range(0, SCHEDULES, BLOCK), *(pytest.param(TODAY + n, id=f"today-{n}") for n in range(0, NEW, BLOCK))]


def broken(seed: int) -> list[str]:
    """Return what the schedule of this seed breaks."""
    schedule = Schedule(seed)
    schedule.run()
    return violations(schedule)


@pytest.mark.parametrize("first", BLOCKS)
def test_no_schedule_breaks_a_rule(first: int) -> None:
    """One world or none, each member with its place or with a reason in time, and nothing left open."""
    found = {seed: what for seed in range(first, first + BLOCK) if (what := broken(seed))}
    assert not found, f"python -m simulator --seed {next(iter(found))}: {found}"


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_put_in_on_purpose_is_found(name: str) -> None:
    """A rule that no defect breaks would prove nothing."""
    with defect(name):
        assert any(broken(seed) for seed in (DEFECTS[name][0], *range(SCHEDULES)))


# A frame whose length, or whose roster, was changed on the way; a connection that was half open as COMMIT came.
ONCE_SPLIT = (10_025_989, 10_077_759, 10_101_996, 20_009_846, 20_015_810)


@pytest.mark.parametrize("seed", ONCE_SPLIT)
def test_a_schedule_that_once_split_a_world_does_not(seed: int) -> None:
    """Each was found among a hundred thousand."""
    assert broken(seed) == []


class WithObstacle(Schedule):
    """A schedule in which one of the members cannot start the command."""

    def _request(self, index: int) -> Request:
        asked = super()._request(index)
        if index != self.plan.seed % self.plan.nodes:
            return asked
        return asked._replace(obstacle=Failure("command", (asked.host, "no such file")))


def test_no_member_that_cannot_start_is_in_a_world() -> None:
    """Whatever else happens. Others may have a world without it, if too many were started; in a calm run all say so."""
    for seed in range(40):
        schedule = WithObstacle(seed)
        schedule.run()
        found = [line for line in violations(schedule) if "in a calm run" not in line]
        assert not found, (seed, found)
        assert not [p.name for p in schedule.processes if p.request.obstacle and p.answer], seed
        if schedule.plan.is_calm:
            assert {str(p.error) for p in schedule.processes} == {
                str(p.request.obstacle.error()) for p in schedule.processes if p.request.obstacle
            }, seed
