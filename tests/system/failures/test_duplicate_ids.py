"""More processes with one id than its world has nodes."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from subprocess import Popen

import pytest
from cluster.host import Host
from cluster.hosts import Hosts
from forked import Forked
from support.members import KEYED, agreed, ended, wait_for

TRIES = 2  # at once, as a process too many waits for the deadline
# Half of the time in which a leader that is called has to answer.
STOPPED_S = 2.5
# A member that has failed stays only a second to tell others.
SOON_GONE = """
from mingle_hooks.rendezvous import rendezvous
rendezvous.LINGER_S = 1.0
from mingle_hooks.cli.main import main
main()
"""


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


def test_of_two_leaders_that_one_directory_announces_none_forms_a_world_behind_the_others_back(
    four: Hosts, tmp_path: Path
) -> None:
    """Twice two processes: one leader has all its members while the other has not answered yet, and waits for that."""

    def start(host: Host, rank: str) -> Popen[str]:
        words = ("--id", "job", "--nodes", "2", "--timeout", "20", "--via", "directory", "--directory", str(tmp_path))
        line = [sys.executable, "-c", SOON_GONE, "env", "--shell", "json", *words, "--rank", rank]
        return host.popen(line, env=KEYED)

    def announced() -> int:
        return len(list(tmp_path.glob("*.mingle")))

    first = start(four[0], "0")
    wait_for(announced)
    second = start(four[1], "0")
    wait_for(lambda: announced() > 1)
    os.kill(second.pid, signal.SIGSTOP)
    member, until = start(four[2], "1"), time.monotonic() + STOPPED_S
    wait_for(lambda: first.poll() is not None or time.monotonic() > until)
    os.kill(second.pid, signal.SIGCONT)
    late = start(four[3], "1")
    for done in [ended(process) for process in (first, second, member, late)]:
        assert (done.returncode, "two leaders" in done.stderr, "WORLD_SIZE" in done.stdout) == (76, True, False)
