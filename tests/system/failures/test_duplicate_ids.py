"""More processes with one id than its world has nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cluster.hosts import Hosts
from forked import Forked
from support.members import KEYED, agreed

TRIES = 2  # at once, as a process too many waits for the deadline


@pytest.mark.parametrize("ranks", [[None, None, None], [0, 0, 1], [0, 1, 1]], ids=["no ranks", "0 0 1", "0 1 1"])
@pytest.mark.parametrize("backend", ["multicast", "directory", "master"])
def test_fewer_than_two_worlds_of_processes_make_one_at_most(
    four: Hosts, forked: Forked, tmp_path: Path, backend: str, ranks: list[int | None]
) -> None:
    """Three processes for two nodes, by each backend alone: those that get a world are two, in the same one."""
    three = list(four)[:3]
    options_of = [[] if rank is None else ["--rank", str(rank)] for rank in ranks]
    options = {"directory": ["--directory", str(tmp_path)], "master": ["--master", "node1"]}.get(backend, [])
    words = ["--shell", "json", "--nodes", "2", "--timeout", "3", "--via", backend, *options]
    calls = [
        (host, ["env", "--id", f"job{number}", *words, *options_of[host.number - 1]], KEYED)
        for number in range(TRIES)
        for host in three
    ]
    done = forked.run_on(calls)
    for results in (done[:3], done[3:]):
        inside = [one for one in results if one.returncode == 0]
        assert len(inside) in (0, 2), results
        if inside:
            agreed(json.loads(one.stdout) for one in inside)
        assert all(one.returncode in (69, 76) and not one.stdout for one in results if one not in inside), results
