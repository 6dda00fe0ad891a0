"""MASTER_PORT after the world has formed: kept for the program it is for, or free for all."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from members import KEYED
from theft import race

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.hosts import Hosts

WORLDS, SOME, FEW = 24, 8, 3
BINDS = Path(__file__).with_name("binds.py")


def after_each(
    two: Hosts, *options: str, worlds: int = WORLDS, holds: tuple[str, ...] = ()
) -> tuple[dict[str, int], dict[str, int]]:
    """Return what rank 0's host found after each of many two-node worlds, and what the other did (see binds.py)."""

    def node(rank: int) -> dict[str, int]:
        hold = ("--port-hold", holds[rank]) if holds else ()
        line = [sys.executable, BINDS, str(rank), str(worlds), *options, *hold]
        done = two[rank].run(line, env=KEYED, timeout=2.0 * worlds, check=True)
        assert done.stderr == ""
        counts: dict[str, int] = json.loads(done.stdout)
        return counts

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(node, (0, 1))
    assert first["formed"] == second["formed"] == worlds
    return first, second


def bound_after(two: Hosts, *options: str, worlds: int = WORLDS, holds: tuple[str, ...] = ()) -> dict[str, int]:
    """Return how often rank 0's host could bind MASTER_PORT after each of many two-node worlds."""
    return after_each(two, *options, worlds=worlds, holds=holds)[0]


def test_no_two_worlds_of_an_id_are_the_same(hosts: Callable[..., Hosts]) -> None:
    """Nor are their digests, where address and port are: seen twice in a row."""
    for counts in after_each(hosts(2), "--via", "master", "--master", "node1:23456", worlds=FEW):
        assert (counts["ports"], counts["digests"]) == (1, FEW)


def test_the_port_is_kept_from_a_plain_bind_after_every_world(hosts: Callable[..., Hosts]) -> None:
    """Only a bind with SO_REUSEADDR, as torch's store does it, gets it, and it gets it always.

    Seen: after 50 of 426 worlds the port was free, for a fast member closed first and had its TIME_WAIT.
    """
    kept, others = after_each(hosts(2), "--via", "master")
    assert (kept["plain"], kept["own"], kept["reusing"]) == (0, 0, WORLDS)
    assert (kept["waiting"], others["waiting"]) == (WORLDS, 0)


@pytest.mark.parametrize("options", [(), ("--master", "node1:23456")], ids=["found", "named"])
def test_a_port_that_is_not_held_is_free_for_a_plain_bind_after_every_world(
    hosts: Callable[..., Hosts], options: tuple[str, ...]
) -> None:
    """As soon as rank 0's command has ended."""
    counts = bound_after(hosts(2), "--via", "master", "--port-hold", "off", *options, worlds=SOME)
    assert (counts["plain"], counts["own"], counts["reusing"]) == (SOME, SOME, SOME)


def test_rank_0_alone_decides_whether_the_port_is_held(hosts: Callable[..., Hosts]) -> None:
    """What the others say makes no difference, and every world forms."""
    two = hosts(2)
    for on_0, on_1, free in (("on", "off", 0), ("off", "on", FEW)):
        counts = bound_after(two, "--via", "master", worlds=FEW, holds=(on_0, on_1))
        assert (counts["plain"], counts["own"], counts["reusing"]) == (free, free, FEW)


@pytest.mark.parametrize(("hold", "free"), [("on", False), ("off", True)])
def test_the_port_of_a_world_of_one_is_held_or_not_alike(hosts: Callable[..., Hosts], hold: str, *, free: bool) -> None:
    """By the variable too."""
    line = "import os, socket; socket.socket().bind(('', int(os.environ['MASTER_PORT'])))"
    argv = ["mingle", "exec", "--id", "job", "--nodes", "1", sys.executable, "-c", line]
    done = hosts(1)[0].run(argv, env={"MINGLE_PORT_HOLD": hold})
    assert (done.returncode == 0) is free, done.stderr


@pytest.mark.parametrize("way", ["id", "scan"])
def test_another_user_of_rank_0s_host_gets_the_port_in_no_try_before_the_command_starts(
    hosts: Callable[..., Hosts], way: str
) -> None:
    """Seen: it worked out the port from the id, and had it in the instant in which mingle let it go."""
    found = race(hosts(2), way, FEW)
    assert found.tries > found.worlds
    assert found.stolen_before == 0
