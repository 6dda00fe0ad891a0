"""More processes with one id than its world has nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cluster.hosts import Hosts
from forked import Forked
from support.members import KEYED, agreed

# The ranks that three processes ask for.
RANKS = ([None, None, None], [0, 0, 1], [0, 1, 1]) * 2


@pytest.mark.parametrize("backend", ["multicast", "directory", "master"])
def test_fewer_than_two_worlds_of_processes_make_one_at_most(
    four: Hosts, forked: Forked, tmp_path: Path, backend: str
) -> None:
    """Three processes for two nodes, by each backend alone: those that get a world are two, in the same one."""
    options = {"directory": ["--directory", str(tmp_path)], "master": ["--master", "node1"]}.get(backend, [])
    words = ["--shell", "json", "--nodes", "2", "--timeout", "3", "--via", backend, *options]
    calls = [
        (four[at], ["env", "--id", f"job{number}", *words, *([] if rank is None else ["--rank", str(rank)])], KEYED)
        for number, ranks in enumerate(RANKS)
        for at, rank in enumerate(ranks)
    ]
    done = forked.run_on(calls)  # all at once, as a process too many waits for the deadline
    for first in range(0, len(done), 3):
        results = done[first : first + 3]
        inside = [one for one in results if one.returncode == 0]
        assert len(inside) in (0, 2), results
        if inside:
            agreed(json.loads(one.stdout) for one in inside)
        assert all(one.returncode in (69, 76) and not one.stdout for one in results if one not in inside), results
