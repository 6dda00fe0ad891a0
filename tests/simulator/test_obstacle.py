"""A member that cannot start the command is in no world, whatever else happens, and all say so where nothing does."""

from __future__ import annotations

import pytest

from mingle_hooks.rendezvous.member import Request
from mingle_hooks.rendezvous.messages import Failure
from simulator.rules import violations
from simulator.schedules import Schedule

SEEDS = 40


class WithObstacle(Schedule):
    """A schedule in which one of the members cannot start the command."""

    def _request(self, index: int) -> Request:
        asked = super()._request(index)
        if index != self.plan.seed % self.plan.nodes:
            return asked
        return asked._replace(obstacle=Failure("command", (asked.host, "no such file")))


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_no_member_that_cannot_start_is_in_a_world(first: int) -> None:
    """Others may have one without it, if too many were started."""
    for seed in range(first, first + 20):
        schedule = WithObstacle(seed)
        schedule.run()
        broken = [line for line in violations(schedule) if "in a calm run" not in line]
        assert not broken, (seed, broken)
        assert not [p.name for p in schedule.processes if p.request.obstacle and p.answer], seed
        if schedule.plan.is_calm:
            assert {str(p.error) for p in schedule.processes} == {
                str(p.request.obstacle.error()) for p in schedule.processes if p.request.obstacle
            }, seed
