"""The check-in ports: nobody without the key keeps a world from forming by them."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster.hosts import Hosts
from support import members
from support.members import KEY, KEYED, PROGRAMS, REDUCE, ended, evaluating, failed, one_world, program, stop
from support.recorded import STEP

from mingle_hooks.net.addresses import DEFAULT_RANGE
from mingle_hooks.rendezvous.wire import Attempt, Material, Secret, check_in_ports


def of_slurm(number: int) -> dict[str, str]:
    """Return the environment of a step's task on one of two hosts, with the key."""
    return {**STEP, "SLURM_NODEID": str(number), "SLURM_PROCID": str(number), **KEYED}


@pytest.mark.parametrize("backend", ["directory", "multicast", "master"])
def test_where_all_check_in_ports_are_taken_the_discovery_backends_tell_another(
    four: Hosts, tmp_path: Path, backend: str
) -> None:
    """And where no backend can tell it, rank 0 says what is taken on its host."""
    two, attempt = list(four)[:2], Attempt("job")
    groups = check_in_ports(attempt, Secret.derive(Material(KEY.encode()), attempt), DEFAULT_RANGE)
    taken = [str(port) for group in groups for port in group]
    holder = program(two[0], "holds.py", *taken)
    where = {"directory": ("--directory", str(tmp_path)), "master": ("--master", "node1")}.get(backend, ())
    timeout_s = "2" if backend == "master" else "10"
    options = ("--id", "job", "--nodes", "2", "--timeout", timeout_s, "--via", backend, *where)
    results = members.members(two, lambda number: evaluating(*options, "--rank", str(number), then=REDUCE))
    stop(holder)
    if backend == "master":
        said = failed(results[0], 69)
        assert f"all check-in ports are taken: {', '.join(taken)}" in said
        assert "firewall" not in said
    else:
        one_world(results)


def test_a_stranger_cannot_block_the_next_run_by_connections_that_are_refused(hosts: Callable[..., Hosts]) -> None:
    """Regression: eight bad octets to each check-in port left all four in TIME_WAIT, and no member could check in."""
    two = list(hosts(2))
    spoilt: set[int] = set()
    for _ in range(2):  # each run takes two of the four, and a port for the world
        leader = two[0].popen(["mingle", "env", "--via", "hosts"], env=of_slurm(0))
        found = two[1].run([sys.executable, PROGRAMS / "spoiler.py", "node1", "3"], check=True)
        leader.terminate()
        ended(leader)
        spoilt |= set(json.loads(found.stdout))
    assert len(spoilt) == 6
    one_world(members.members(two, evaluating("--via", "hosts", "--timeout", "10", then=REDUCE), env=of_slurm))
