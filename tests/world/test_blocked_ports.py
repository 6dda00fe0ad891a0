"""The ports where members check in: nobody without the key keeps a world from forming by them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from members import KEY, KEYED, REDUCE, evaluating, failed, members, one_world

from mingle_hooks.net.ports import DEFAULT_RANGE
from mingle_hooks.rendezvous.wire import Attempt, Material, Secret, check_in_ports

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


TAKING = """
import socket, sys, time
held = [socket.create_server(("", int(port))) for port in sys.argv[1:]]
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("backend", ["directory", "multicast", "master"])
def test_where_others_listen_on_all_check_in_ports_members_come_to_another_that_the_ways_tell(
    hosts: Callable[..., Hosts], tmp_path: Path, backend: str
) -> None:
    """And where no way can tell it, rank 0 says what is taken on its host."""
    two, attempt = hosts(2), Attempt("job")
    groups = check_in_ports(attempt, Secret.derive(Material(KEY.encode()), attempt), DEFAULT_RANGE)
    taken = [str(port) for group in groups for port in group]
    holder = two[0].popen([sys.executable, "-c", TAKING, *taken])
    assert holder.stdout is not None
    assert holder.stdout.readline() == "ready\n", holder.communicate()
    where = {"directory": ("--directory", str(tmp_path)), "master": ("--master", "node1")}.get(backend, ())
    timeout_s = "2" if backend == "master" else "10"
    asks = ("--id", "job", "--nodes", "2", "--timeout", timeout_s, "--via", backend, *where)
    results = members(list(two), lambda number: evaluating(*asks, "--rank", str(number), then=REDUCE))
    holder.kill()
    holder.communicate()
    if backend == "master":
        said = failed(results[0], 69)
        assert f"all check-in ports are taken: {', '.join(taken)}" in said
        assert "firewall" not in said
    else:
        assert [world["SUM"] for world in one_world(results)] == ["1", "1"]


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
