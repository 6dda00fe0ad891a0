"""`mingle exec --together`: hosts that somebody else starts, as a platform does, run COMMAND as one."""

from __future__ import annotations

import os
import re
import secrets
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster.host import Host
from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster

MINGLE = str(Path(sys.executable).parent / "mingle")
TOGETHER = [MINGLE, "exec", "--together", "--id", "a"]
KEY = {"MINGLE_KEY": secrets.token_hex(32)}
# A bound on what hangs, not a measure.
PATIENCE_S = 60.0
# What no TERM ends, with a grandchild in a session of its own.
STUBBORN = """\
trap '' TERM
(setsid sh -c 'trap "" TERM; exec sleep 7747' &)
touch "$UP/$NODE_RANK"
while :; do sleep 7748; done
"""
# Rank 1 fails once all have written.
FAILS = """\
echo "$MINGLE_WORLD"
touch "$UP/$NODE_RANK"
[ $NODE_RANK = 1 ] || exec sleep 7749
until [ -e "$UP/0" ] && [ -e "$UP/2" ]; do sleep 0.02; done
exit 7
"""
WAITS = """\
(setsid sleep 7751 &)
touch "$UP/$NODE_RANK"
exec sleep 7752
"""


class World:
    """Three hosts without names for each other, on each of which somebody starts the same line."""

    def __init__(self, hosts: Hosts, place: Path, command: str) -> None:
        (place / "command").write_text(command)
        self.hosts, self._place = hosts, place
        env = {**KEY, "UP": str(place)}
        line = [*TOGETHER, "--nodes", "3", "--via", "multicast", "sh", f"{place}/command"]
        self.members = [host.popen(line, env=env, cwd=str(place)) for host in hosts]

    def up(self) -> None:
        """Wait until COMMAND runs on all hosts."""
        end = time.monotonic() + PATIENCE_S
        while not all((self._place / str(rank)).exists() for rank in range(3)):
            assert time.monotonic() < end
            time.sleep(0.02)

    def end(self) -> tuple[set[int], str]:
        """Return the statuses of all, and what was said; nothing is left."""
        said = [member.communicate(timeout=PATIENCE_S) for member in self.members]
        end = time.monotonic() + PATIENCE_S
        while self.hosts.processes():
            assert time.monotonic() < end, self.hosts.processes()
            time.sleep(0.02)
        return {member.returncode for member in self.members}, "".join(out + err for out, err in said)

    def of(self, text: str) -> list[tuple[Host, int]]:
        """Return the processes with this text in their command lines, host by host."""
        return [(host, pid) for host in self.hosts for pid, line in sorted(host.processes().items()) if text in line]


def test_all_end_with_the_first_failure(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """Rank 0's shows what all write, with the host in front; each tells COMMAND of the same world."""
    world = World(hosts(3), tmp_path, FAILS)
    statuses, said = world.end()
    assert statuses == {7}
    lines = [line.partition(": ") for line in said.splitlines() if line.startswith("node")]
    assert sorted(host for host, _, _ in lines) == ["node1", "node2", "node3"]
    assert len({text for _, _, text in lines}) == 1
    assert "(rank 1): exited with status 7" in said


@pytest.mark.parametrize(("killed", "command"), [("__main__.py agent", WAITS), ("exec --together", STUBBORN)])
def test_nothing_is_left_where_mingle_itself_is_killed(
    hosts: Callable[..., Hosts], tmp_path: Path, killed: str, command: str
) -> None:
    """An agent, or the runner."""
    world = World(hosts(3), tmp_path, command)
    world.up()
    host, pid = world.of(killed)[-1]
    os.kill(pid, signal.SIGKILL)
    statuses, said = world.end()
    assert statuses <= {75, -signal.SIGKILL}
    if killed == "exec --together":
        assert statuses == {75, -signal.SIGKILL}
    else:
        assert re.search(rf"{host.name} \(rank \d\): its supervisor was killed or lost its connection", said)


def test_replicas_of_one_host_have_names_of_their_own(hosts: Callable[..., Hosts]) -> None:
    (host,) = hosts(1)
    line = [*TOGETHER, "--nodes", "2", "--via", "multicast", "sh", "-c", "echo here"]
    members = [host.popen(line, env=KEY) for _ in range(2)]
    said = "".join("".join(member.communicate(timeout=PATIENCE_S)) for member in members)
    assert {member.returncode for member in members} == {0}
    assert sorted(line for line in said.splitlines() if "here" in line) == ["node1.2: here", "node1: here"]


def test_a_step_of_slurm_ends_as_one(slurm: SlurmCluster, tmp_path: Path) -> None:
    script = f"srun {MINGLE} exec --together sh -c '[ $NODE_RANK != 2 ] || exit 5; exec sleep 7750'\n"
    job = slurm.submit(script, "-N3", "--ntasks-per-node=1", f"--output={tmp_path}/out", user="alice")
    assert slurm.wait(job) == "FAILED"
    assert slurm.job(job)["ExitCode"] == "5:0"
    assert "node3 (rank 2): exited with status 5" in (tmp_path / "out").read_text()


def test_one_member_becomes_the_command(hosts: Callable[..., Hosts]) -> None:
    (host,) = hosts(1)
    done = host.run([*TOGETHER, "--nodes", "1", "sh", "-c", "echo $WORLD_SIZE; exit 3"])
    assert (done.returncode, done.stdout) == (3, "1\n")
