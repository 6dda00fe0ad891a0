"""One id, and more processes than its world has nodes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from members import evaluating, members, one_world

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from subprocess import CompletedProcess

    from cluster.hosts import Hosts

TRIES = 4  # at once, as whoever is too many waits for the deadline


@pytest.mark.parametrize("ranks", [[None, None, None], [0, 0, 1], [0, 1, 1]], ids=["no ranks", "0 0 1", "0 1 1"])
@pytest.mark.parametrize("way", ["multicast", "directory", "master"])
def test_fewer_than_two_worlds_of_processes_make_one_at_most(
    hosts: Callable[..., Hosts], tmp_path: Path, way: str, ranks: list[int | None]
) -> None:
    """Three processes for two nodes, by each way alone: those that get a world are two, in the same one."""
    three = hosts(3)
    options = {"directory": ["--directory", str(tmp_path)], "master": ["--master", "node1"]}.get(way, [])

    def world(number: int) -> list[CompletedProcess[str]]:
        words = ["--id", f"job{number}", "--nodes", "2", "--timeout", "3", "--via", way, *options]
        rank = [[] if its is None else ["--rank", str(its)] for its in ranks]
        return members(list(three), lambda member: evaluating(*words, *rank[member]))

    with ThreadPoolExecutor(TRIES) as pool:
        for results in pool.map(world, range(TRIES)):
            inside = [done for done in results if done.returncode == 0]
            assert len(inside) in (0, 2), results
            one_world(inside) if inside else None
            assert all(done.returncode in (69, 76) and not done.stdout for done in results if done not in inside)
