"""One training on all hosts by `mingle run`, under each starter; what can be lost of it; what of it is on each host."""

import os
import signal
import subprocess
from pathlib import Path

from cluster import ssh
from cluster.host import Host, namespace
from cluster.hosts import Hosts
from cluster.paths import MINGLE
from cluster.real_pbs import RealPbs
from cluster.slurm import SlurmCluster
from cluster.waiting import until

# A bound on what hangs, not a measure.
PATIENCE_S = 60.0
RUNNER = f"{MINGLE} run"
# A training with a grandchild in a session of its own. By USR1 it fails.
TRAINING = """\
trap 'exit 7' USR1
(setsid sh -c 'exec sleep 7717' &)
sleep 7718 & sleep 7719 &
echo $$ > "$UP/$NODE_RANK"
wait
"""
# What training may be at its worst: all of it heeds no TERM.
STUBBORN = f"trap '' TERM\n{TRAINING}"
# What is in the command lines of COMMAND's own, a grandchild's among them; and of all of a run.
OF_COMMAND = ("7717", "7718", "7719")
OF_RUN = ("__main__.py agent", "__main__.py sweep", "mingle", "training.sh", *OF_COMMAND)


class Scheduled:
    """Runs as a job's script, whose first host has the runner and rank 0."""

    def __init__(self, hosts: Hosts, ranked: list[Host]) -> None:
        self.hosts, self.ranked, self.home, self.job = hosts, ranked, ranked[0], ""

    def lost(self) -> Host:
        return self.hosts[3]

    def script(self, place: Path, head: str, words: tuple[str, ...]) -> str:
        line = " ".join([f"exec {MINGLE} run", *words, "sh", f"{place}/training.sh"])
        return f"#!/bin/sh\n{head}export UP={place}\n{line}\n"


class UnderSlurm(Scheduled):
    """Under Slurm."""

    def __init__(self, slurm: SlurmCluster) -> None:
        super().__init__(slurm.hosts, [*slurm.hosts])
        self._slurm = slurm

    def start(self, place: Path, *words: str) -> None:
        options = (f"--nodes={len(self.ranked)}", f"--output={place}/out")
        self.job = self._slurm.submit(self.script(place, "", words), *options, user="alice", cwd=str(place))

    def end(self, place: Path) -> tuple[int, str]:
        """Return the status and the output of what has ended, with all nodes as they were before."""
        self._slurm.wait(self.job, timeout=PATIENCE_S)
        status, _, number = self._slurm.job(self.job)["ExitCode"].partition(":")
        self._slurm.wait_idle()
        return int(number) + 128 if number != "0" else int(status), (place / "out").read_text()

    def stop(self) -> None:
        self._slurm.controller.run(["scancel", self.job], user="alice", check=True)


class UnderPbs(Scheduled):
    """Under OpenPBS, whose server is on a host of its own."""

    def __init__(self, pbs: RealPbs) -> None:
        super().__init__(pbs.hosts, [*pbs.hosts][1:])
        self._pbs = pbs

    def start(self, place: Path, *words: str) -> None:
        self._pbs.place = place
        select = "+".join(f"1:ncpus=1:host={host.name}" for host in self.ranked)
        head = f"#PBS -l select={select} -l place=scatter\n"
        self.job = self._pbs.submit(self.script(place, head, words), cwd=str(place))

    def end(self, place: Path) -> tuple[int, str]:  # noqa: ARG002
        status = self._pbs.wait(self.job, timeout=PATIENCE_S)
        self._pbs.wait_idle()
        return status - 256 + 128 if status > 256 else status, self._pbs.output(self.job)

    def stop(self) -> None:
        self._pbs.run("bin/qdel", self.job, user="alice", check=True)


class Bare:
    """Runs from the first host on all hosts, by ssh; ranks are the other way round, so that rank 0 is elsewhere."""

    def __init__(self, hosts: Hosts, place: Path, *, needs_network: bool = False) -> None:
        self.hosts, self.home = hosts, hosts[0]
        self.ranked: list[Host] = [*hosts][::-1]
        self._place, self._ssh = place, ssh.ssh(hosts, place, needs_network=needs_network)
        self._run: subprocess.Popen[str] | None = None

    def start(self, place: Path, *words: str) -> None:
        names = ",".join(host.name for host in self.ranked)
        argv = [str(MINGLE), "run", "--hosts", names, *words, "sh", f"{place}/training.sh"]
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


def until_nothing_is_left(runs: Runs) -> None:
    """Wait until nothing of the run is on any of its hosts; all are looked at in one go."""
    its, found = {namespace(host.pid) for host in runs.ranked}, list[str]()

    def gone() -> bool:
        lines = {pid: line for pid, line in runs.hosts.processes().items() if any(word in line for word in OF_RUN)}
        found[:] = [line for pid, line in lines.items() if namespace(pid) in its]
        return not found

    until(gone, found)


def begin(runs: Runs, place: Path, training: str, *words: str) -> None:
    """Start a training, and wait until all of it is there."""
    place.chmod(0o1777)
    (place / "training.sh").write_text(training)
    runs.start(place, *words)
    ranks = [place / str(rank) for rank in range(len(runs.ranked))]
    until(lambda: all(rank.exists() and rank.stat().st_size for rank in ranks), "the training did not begin")


def _of_lost(runs: Runs, why: str) -> str:
    """Return what the runner says of the host that is lost, with RANK for its rank."""
    return f"{runs.lost().name} (rank RANK): {why}"


def _signal_command(runs: Runs, place: Path, number: int, why: str) -> str:
    """Signal COMMAND's own process, not what it started."""
    rank = runs.ranked.index(runs.lost())
    os.kill(int((place / str(rank)).read_text()), number)
    return _of_lost(runs, f"{why} after")


def fail(runs: Runs, place: Path) -> str:
    return _signal_command(runs, place, signal.SIGUSR1, "exited with status 7")


def kill_command(runs: Runs, place: Path) -> str:
    return _signal_command(runs, place, signal.SIGKILL, "killed by SIGKILL")


def _kill_agent(runs: Runs, which: int) -> str:
    os.kill(of_run(runs.lost(), "__main__.py agent")[which], signal.SIGKILL)
    return _of_lost(runs, "its agent was killed or lost its connection")


def kill_agent(runs: Runs, _place: Path) -> str:
    return _kill_agent(runs, 1)


def kill_warden(runs: Runs, _place: Path) -> str:
    return _kill_agent(runs, 0)


def unplug(runs: Runs, _place: Path) -> str:
    runs.lost().unplug()
    return _of_lost(runs, "no sign of life for")


def freeze(runs: Runs, _place: Path) -> str:
    """Stop all that the run has on a host."""
    for pid in of_run(runs.lost(), *OF_RUN):
        os.kill(pid, signal.SIGSTOP)
    return _of_lost(runs, "no sign of life for")


def stop(runs: Runs, _place: Path) -> str:
    runs.stop()
    return "ending: SIGTERM received"


def kill_runner(runs: Runs, _place: Path) -> str:
    """Kill the runner, which is the batch script; nobody can say why any more."""
    os.kill(of_run(runs.home, RUNNER)[0], signal.SIGKILL)
    return ""
