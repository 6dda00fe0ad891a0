"""The ports where members check in: nobody without the key keeps a world from forming by them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from members import KEYED, REDUCE, evaluating, members, one_world

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.hosts import Hosts

HERE = Path(__file__).parent


def of_slurm(number: int) -> dict[str, str]:
    """Return the environment of a step's task on one of two hosts, with the key."""
    return {
        "SLURM_JOB_ID": "5",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_STEP_ID": "0",
        "SLURM_NODEID": str(number),
        "SLURM_STEP_NODELIST": "node[1-2]",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_PROCID": str(number),
        "SLURM_LOCALID": "0",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        **KEYED,
    }


def test_a_stranger_cannot_block_the_next_run_by_connections_that_are_turned_away(hosts: Callable[..., Hosts]) -> None:
    """Seen: eight bad octets to each check-in port keep all four in TIME_WAIT, and an id without multicast out."""
    two = hosts(2)
    spoilt: set[int] = set()
    for _ in range(2):  # each run takes two of the four, and a port for the world
        leader = two[0].popen(["mingle", "env", "--via", "hosts"], env=of_slurm(0))
        told = two[1].run([sys.executable, HERE / "spoiler.py", "node1", "3"], check=True)
        leader.terminate()
        leader.communicate()
        spoilt |= set(json.loads(told.stdout))
    assert len(spoilt) == 6
    results = members(list(two), lambda _: evaluating("--via", "hosts", "--timeout", "10", then=REDUCE), env=of_slurm)
    assert [world["SUM"] for world in one_world(results)] == ["1", "1"]
