"""`mingle exec --together`: hosts that somebody else starts, as a platform does, run COMMAND as one."""

import os
import secrets
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest
import runs_on_hosts as losses
from cluster.host import Host
from cluster.hosts import Hosts
from cluster.paths import MINGLE
from cluster.slurm import SlurmCluster
from runs_on_hosts import PATIENCE_S, STUBBORN, TRAINING, begin, until_nothing_is_left

TOGETHER = [MINGLE, "exec", "--together", "--id", "a"]
KEY = {"MINGLE_KEY": secrets.token_hex(32)}


class Together:
    """Three hosts without names for each other, on each of which somebody starts the same line."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts, self.ranked, self.home = hosts, [*hosts], hosts[0]
        self._members: list[Popen[str]] = []

    def start(self, place: Path, *words: str) -> None:
        env, line = {**KEY, "UP": str(place)}, [*TOGETHER, "--nodes", "3", "--via", "multicast", *words]
        for rank, host in enumerate(self.ranked):
            command = ("--rank", str(rank), "sh", f"{place}/training.sh")
            self._members.append(host.popen([*line, *command], env=env, cwd=str(place)))

    def end(self) -> tuple[set[int], str]:
        """Return the statuses of all, and what was said; nothing is left."""
        said = [member.communicate(timeout=PATIENCE_S) for member in self._members]
        until_nothing_is_left(self)
        return {member.returncode for member in self._members}, "".join(out + err for out, err in said)

    def lost(self) -> Host:
        return self.ranked[1]


@pytest.fixture
def three(hosts: Callable[..., Hosts]) -> Together:
    return Together(hosts(3))


def test_all_end_with_the_first_failure(three: Together, tmp_path: Path) -> None:
    """Rank 0's shows what all write, with the host in front; each tells COMMAND of the same world."""
    begin(three, tmp_path, f"echo $MINGLE_WORLD\n{TRAINING}")
    said = losses.fail(three, tmp_path).replace("RANK", "1")
    statuses, text = three.end()
    assert (statuses, said in text) == ({7}, True), text
    lines = [line.partition(": ") for line in text.splitlines() if line.startswith("node")]
    assert sorted(host for host, _, _ in lines) == ["node1", "node2", "node3"]
    assert len({world for _, _, world in lines}) == 1


def test_nothing_is_left_where_an_agent_is_killed(three: Together, tmp_path: Path) -> None:
    begin(three, tmp_path, TRAINING)
    said = losses.kill_agent(three, tmp_path).replace("RANK", "1")
    statuses, text = three.end()
    assert (statuses, said in text) == ({75}, True), text


def test_nothing_is_left_where_the_runner_is_killed(three: Together, tmp_path: Path) -> None:
    begin(three, tmp_path, STUBBORN)
    os.kill(losses.of_run(three.home, "exec --together")[0], signal.SIGKILL)
    assert three.end()[0] == {75, -signal.SIGKILL}


def test_a_step_of_slurm_ends_as_one(slurm: SlurmCluster, tmp_path: Path) -> None:
    script = f"srun {MINGLE} exec --together sh -c '[ $NODE_RANK != 2 ] || exit 5; exec sleep 7750'\n"
    job = slurm.submit(script, "-N3", "--ntasks-per-node=1", f"--output={tmp_path}/out", user="alice")
    assert (slurm.wait(job), slurm.job(job)["ExitCode"]) == ("FAILED", "5:0")
    assert "node3 (rank 2): exited with status 5" in (tmp_path / "out").read_text()


def test_one_member_becomes_the_command(hosts: Callable[..., Hosts]) -> None:
    (host,) = hosts(1)
    done = host.run([*TOGETHER, "--nodes", "1", "sh", "-c", "echo $WORLD_SIZE; exit 3"])
    assert (done.returncode, done.stdout) == (3, "1\n")
