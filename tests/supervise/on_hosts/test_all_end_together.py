"""Eight hosts, under Slurm and bare, and three of a real OpenPBS: what is lost on one of them ends all.

With one cause, and nothing is left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cluster import hosts as cluster_hosts
from cluster import slurm as cluster_slurm
from cluster.ssh import ssh
from needs import skip_for_want_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.host import Host
    from cluster.hosts import Hosts
    from cluster.real_pbs import RealPbs
    from cluster.slurm import SlurmCluster

HOSTS = 8
# A bound on what hangs, not a measure.
PATIENCE_S = 60.0
SILENCE_S = 4
MINGLE = Path(sys.executable).parent / "mingle"
# What training may be at its worst: it heeds no TERM, and has a grandchild in a session of its own that heeds none.
STUBBORN = """\
trap '' TERM
(setsid sh -c 'trap "" TERM; exec sleep 7717' &)
echo "$NODE_RANK" > "$UP/$NODE_RANK"
sleep 7718 & sleep 7719
"""
RUNNER = f"{MINGLE} run"
# COMMAND's own processes, the grandchild among them.
OF_COMMAND = ("7717", "7718", "7719", "stubborn.sh")


class UnderSlurm:
    """Runs as the batch script of a job, whose first host has the runner and rank 0."""

    def __init__(self, slurm: SlurmCluster) -> None:
        self.ranked, self._slurm = [*slurm.hosts], slurm
        self.home = self.ranked[0]
        self.job = ""

    def start(self, place: Path, *words: str) -> None:
        line = " ".join([f"exec {MINGLE} run", *words, "sh", f"{place}/stubborn.sh"])
        script = f"#!/bin/sh\nexport UP={place}\n{line}\n"
        self.job = self._slurm.submit(
            script, f"--nodes={len(self.ranked)}", f"--output={place}/out", user="alice", cwd=str(place)
        )

    def end(self, place: Path) -> tuple[int, str]:
        """Return the status and the output of what has ended, with all nodes as they were before."""
        self._slurm.wait(self.job, timeout=PATIENCE_S)
        status, _, number = self._slurm.job(self.job)["ExitCode"].partition(":")
        self._slurm.wait_idle()
        return int(number) + 128 if number != "0" else int(status), (place / "out").read_text()

    def stop(self) -> None:
        self._slurm.controller.run(["scancel", self.job], user="alice", check=True)

    def lost(self) -> Host:
        return self.ranked[3]


class UnderPbs:
    """Runs as the script of a job of OpenPBS, whose first host has the runner and rank 0; the server is elsewhere."""

    def __init__(self, pbs: RealPbs) -> None:
        self.ranked, self._pbs = [*pbs.hosts][1:], pbs
        self.home = self.ranked[0]
        self.job = ""

    def start(self, place: Path, *words: str) -> None:
        self._pbs.place = place
        line = " ".join([f"exec {MINGLE} run", *words, "sh", f"{place}/stubborn.sh"])
        select = "+".join(f"1:ncpus=1:host={host.name}" for host in self.ranked)
        head = f"#!/bin/sh\n#PBS -l select={select} -l place=scatter\n"
        self.job = self._pbs.submit(f"{head}export UP={place}\n{line}\n", cwd=str(place))

    def end(self, place: Path) -> tuple[int, str]:  # noqa: ARG002
        status = self._pbs.wait(self.job, timeout=PATIENCE_S)
        self._pbs.wait_idle()
        return status - 256 + 128 if status > 256 else status, self._pbs.output(self.job)

    def stop(self) -> None:
        self._pbs.run("bin/qdel", self.job, user="alice", check=True)

    def lost(self) -> Host:
        return self.ranked[2]


class Bare:
    """Runs from the first host on all hosts, by ssh; ranks are the other way round, so that rank 0 is elsewhere."""

    def __init__(self, hosts: Hosts, place: Path) -> None:
        self.home, self.ranked = hosts[0], [*hosts][::-1]
        self._ssh = ssh(hosts, place)
        self._run: subprocess.Popen[str] | None = None

    def start(self, place: Path, *words: str) -> None:
        names = ",".join(host.name for host in self.ranked)
        argv = [str(MINGLE), "run", "--hosts", names, *words, "sh", f"{place}/stubborn.sh"]
        with (place / "out").open("w") as file:
            env = {"PATH": f"{self._ssh}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "UP": str(place)}
            self._run = self.home.popen(argv, env=env, cwd=str(place), stdout=file, stderr=subprocess.STDOUT)

    def end(self, place: Path) -> tuple[int, str]:
        assert self._run is not None
        status = self._run.wait(timeout=PATIENCE_S)
        return 128 - status if status < 0 else status, (place / "out").read_text()

    def stop(self) -> None:
        assert self._run is not None
        self._run.terminate()

    def lost(self) -> Host:
        return self.ranked[0]


Runs = UnderSlurm | UnderPbs | Bare


def of_run(host: Host, *words: str) -> list[int]:
    """Return the run's processes on a host whose command lines have one of these words."""
    return sorted(pid for pid, line in host.processes().items() if any(word in line for word in words))


def everything(host: Host) -> list[int]:
    return of_run(host, "supervise/node", "mingle", *OF_COMMAND)


def until(holds: Callable[[], object], what: str) -> None:
    began = time.monotonic()
    while not holds():
        waited_s = time.monotonic() - began
        assert waited_s < PATIENCE_S, what
        # Most look at all processes of the machine: what takes long is looked at less often.
        time.sleep(0.02 + waited_s / 10)


def kill_command(runs: Runs) -> str:
    """Kill COMMAND's own process, not what it started."""
    host = runs.lost()
    os.kill(of_run(host, "stubborn.sh")[0], signal.SIGKILL)
    return f"{host.name} (rank RANK): killed by SIGKILL"


def kill_supervisor(runs: Runs) -> str:
    host = runs.lost()
    os.kill(of_run(host, "node/start.py")[1], signal.SIGKILL)
    return f"{host.name} (rank RANK): its supervisor was killed or lost its connection"


def kill_warden(runs: Runs) -> str:
    host = runs.lost()
    os.kill(of_run(host, "node/start.py")[0], signal.SIGKILL)
    return f"{host.name} (rank RANK): its supervisor was killed or lost its connection"


def unplug(runs: Runs) -> str:
    host = runs.lost()
    host.unplug()
    return f"{host.name} (rank RANK): no sign of life for"


def freeze(runs: Runs) -> str:
    """Stop all that the run has on a host."""
    host = runs.lost()
    for pid in everything(host):
        os.kill(pid, signal.SIGSTOP)
    return f"{host.name} (rank RANK): no sign of life for"


def stop(runs: Runs) -> str:
    runs.stop()
    return "ends, as SIGTERM has come"


def kill_runner(runs: Runs) -> str:
    """Kill the runner, which is the batch script; nobody can say why any more."""
    os.kill(of_run(runs.home, RUNNER)[0], signal.SIGKILL)
    return ""


INFRASTRUCTURE, KILLED, TERMINATED = 75, 128 + signal.SIGKILL, 128 + signal.SIGTERM
LOSSES: list[tuple[Callable[[Runs], str], int]] = [
    (kill_command, KILLED),
    (kill_supervisor, INFRASTRUCTURE),
    (kill_warden, INFRASTRUCTURE),
    (unplug, INFRASTRUCTURE),
    (freeze, INFRASTRUCTURE),
    (stop, TERMINATED),
    (kill_runner, KILLED),
]


@pytest.fixture(scope="module", params=["slurm", "bare", pytest.param("pbs", id="real-pbs")])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Start the hosts once, and a scheduler on them, for all losses one after the other."""
    if request.param == "pbs":
        yield UnderPbs(request.getfixturevalue("real_pbs_session"))
        return
    skip_for_want_of(cluster_hosts.missing() + (cluster_slurm.missing() if request.param == "slurm" else []))
    place = tmp_path_factory.getbasetemp()
    place.chmod(0o755)
    with cluster_hosts.Hosts(HOSTS, share=[place]) as made:
        if request.param == "bare":
            yield Bare(made, tmp_path_factory.mktemp("ssh"))
            return
        with cluster_slurm.SlurmCluster(made) as slurm:
            yield UnderSlurm(slurm)


def begin(runs: Runs, place: Path) -> None:
    """Start a stubborn training, and wait until all of it is there."""
    place.chmod(0o1777)
    (place / "stubborn.sh").write_text(STUBBORN)
    runs.start(place, "--grace", "1", "--silence", str(SILENCE_S))
    until(lambda: len([*place.glob("[0-7]")]) == len(runs.ranked), "the training did not begin")


@pytest.mark.parametrize(("lose", "status"), LOSSES, ids=[lose.__name__ for lose, _ in LOSSES])
def test_all_end_with_one_cause_and_nothing_is_left(
    runs: Runs, tmp_path: Path, lose: Callable[[Runs], str], status: int
) -> None:
    """Also what heeds no TERM and has a session of its own, and what is on the host that was lost."""
    begin(runs, tmp_path)
    host = runs.lost()
    said = lose(runs).replace("RANK", str(runs.ranked.index(host)))
    try:
        until(lambda: not of_run(runs.home, RUNNER), "the runner goes on")
    finally:
        host.clear_firewall()
    seen, text = runs.end(tmp_path)
    assert seen == status, text
    assert text.count(f"mingle run: {said}") == 1 or not said, text
    until(lambda: not any(map(everything, runs.ranked)), f"left: {[*map(everything, runs.ranked)]}")


def test_what_loses_the_runners_host_ends_by_itself(real_pbs: RealPbs, tmp_path: Path) -> None:
    """Nobody reaches it, and PBS tells nobody: both sides end before the network is back."""
    runs = UnderPbs(real_pbs)
    begin(runs, tmp_path)
    runs.home.unplug()
    try:
        until(lambda: not any(map(everything, runs.ranked)), f"left: {[*map(everything, runs.ranked)]}")
    finally:
        runs.home.clear_firewall()
    assert runs.end(tmp_path)[0] == INFRASTRUCTURE
