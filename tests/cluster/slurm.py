"""A real Slurm on a set of hosts: a controller on the first one, and munged and slurmd on each."""

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.host import COMMAND_S, Host
from cluster.hosts import Hosts
from cluster.paths import PROJECT
from cluster.scheduler import Scheduler

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "sinfo", "munged")
CONF = "/etc/slurm/slurm.conf"
LOGS = "/run/slurm"
SLURM_CONF = PROJECT / "tests/data/slurm.conf"
# Everything that a job can come to rest in.
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"}


def missing() -> list[str]:
    """Return the programs that this machine lacks for Slurm."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return [program for program in PROGRAMS if shutil.which(program, path=path) is None]


def conf(names: Sequence[str], cpus: int, more: Iterable[str], gpus: int = 0, addresses: Sequence[str] = ()) -> str:
    """Return slurm.conf for hosts of these names, found by name without addresses; the later of two lines wins."""
    has = f"CPUs={cpus} RealMemory=4096" + f" Gres=gpu:{gpus}" * bool(gpus)
    has += f" NodeAddr={','.join(addresses)}" * bool(addresses)
    controller = f"{names[0]}({addresses[0]})" if addresses else names[0]
    text = SLURM_CONF.read_text().format(controller=controller, logs=LOGS, names=",".join(names), has=has)
    return "\n".join([text.rstrip("\n"), *more]) + "\n"


class SlurmCluster(Scheduler):
    """Slurm on hosts that already stand, as a context manager; its processes end with it.

    With `by_address` it does not need the hosts' names, which a test may then take away.
    """

    def __init__(
        self, hosts: Hosts, *, cpus: int = 4, gpus: int = 0, conf_lines: Iterable[str] = (), by_address: bool = False
    ) -> None:
        super().__init__(hosts)
        self.cpus, self.gpus, self.by_address = cpus, gpus, by_address
        self.conf_lines = list(conf_lines)
        self._slurmds: dict[str, subprocess.Popen[str]] = {}

    def _start(self) -> None:
        self.controller.write("/etc/munge/munge.key", secrets.token_hex(64), mode=0o400)
        self.write_conf()
        for host in self.hosts:
            for directory in ("/run/munge", f"{LOGS}/state", f"{LOGS}/spool.{host.name}"):
                host.outside(directory).mkdir(mode=0o755, parents=True, exist_ok=True)
            # One munged a host: each remembers the credentials it has seen, and a shared one takes those of
            # another host for replays.
            munge = ["--socket=/run/munge/munge.socket.2", "--pid-file=/run/munge/munged.pid"]
            more = ["--log-file=/run/munge/munged.log", "--seed-file=/run/munge/munged.seed"]
            self._daemon(host, ["munged", "--foreground", "--force", *munge, *more], f"{LOGS}/munged.log")
        sockets = [host.outside("/run/munge/munge.socket.2") for host in self.hosts]
        self.until(lambda: all(socket.exists() for socket in sockets), "munge sockets")
        self._daemon(self.controller, ["slurmctld", "-D"], f"{LOGS}/slurmctld.log")
        self.until(lambda: not self.controller.run(["scontrol", "ping"]).returncode, "slurmctld")
        for host in self.hosts:
            self._start_slurmd(host)

    def reboot(self, host: Host, *, lost: Iterable[str] = ()) -> None:
        """End slurmd and all jobs on a host at once, as a power cut does, and start slurmd anew.

        `lost` are directories that do not survive it. The host must not be the controller's.
        """
        for pid, line in host.processes().items():
            if "munged" not in line:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._slurmds[host.name].wait(COMMAND_S)
        self._daemons.remove(self._slurmds[host.name])
        for directory in lost:  # with what was mounted in it
            host.run(["sh", "-c", 'umount -l "$1"/*; rm -rf "$1"', "sh", directory], check=True)
        self._start_slurmd(host)
        self._first_processes.add(self._slurmds[host.name].pid)

    def _start_slurmd(self, host: Host) -> None:
        self._slurmds[host.name] = self._daemon(host, ["slurmd", "-D", "-N", host.name], f"{LOGS}/slurmd.log")

    def write_conf(self) -> None:
        """Write slurm.conf from `conf_lines`, for the start or before `reconfigure`."""
        addresses = [host.addr() for host in self.hosts] if self.by_address else []
        names = [host.name for host in self.hosts]
        self.controller.write(CONF, conf(names, self.cpus, self.conf_lines, self.gpus, addresses))
        # Where there are cgroups v2, slurmd asks systemd for one, over a D-Bus that these hosts do not have.
        self.controller.write("/etc/slurm/cgroup.conf", "IgnoreSystemd=yes\n")
        if self.gpus:
            self.controller.write("/etc/slurm/gres.conf", f"Name=gpu File=/run/gpu[1-{self.gpus}]\n")
        for host in self.hosts:
            for number in range(self.gpus):
                host.run(["mknod", f"/run/gpu{number + 1}", "c", "1", "3"], check=True)

    def reconfigure(self, *conf_lines: str) -> None:
        """Replace the additional lines of slurm.conf and let every daemon read it again."""
        self.conf_lines = list(conf_lines)
        self.write_conf()
        self.controller.run(["scontrol", "reconfigure"], check=True)
        self.wait_idle()

    def _logs(self, host: Host) -> list[Path]:
        return [log for log in (host.outside(f"{LOGS}/{name}.log") for name in ("slurmctld", "slurmd")) if log.exists()]

    def srun(
        self, *argv: str | Path, user: str = "root", timeout: float = COMMAND_S, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run srun with these arguments on the controller's host; its status and text come back."""
        return self.controller.run(["srun", *argv], user=user, timeout=timeout, **options)

    def submit(
        self,
        script: str,
        *sbatch: str,
        user: str = "root",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> str:
        """Give in a batch script (its text) with these options of sbatch, and return the job's id."""
        text = script if script.startswith("#!") else f"#!/bin/bash\n{script}"
        done = self.controller.run(
            ["sbatch", "--parsable", *sbatch], input=text, user=user, env=env, cwd=cwd, stdin=subprocess.PIPE
        )
        if done.returncode:
            raise AssertionError(f"sbatch {sbatch}: {done.stderr}\n{self.logs()}")
        return done.stdout.strip().partition(";")[0]

    def job(self, job: str) -> dict[str, str]:
        """Return what `scontrol show job` says of a job, of its first part when it has several."""
        shown = self.controller.run(["scontrol", "--oneliner", "show", "job", job], check=True).stdout
        return dict(re.findall(r"(\S+?)=(\S*)", shown.partition("\n")[0]))

    def states(self, job: str) -> list[str]:
        """Return the state of each part of a job: one, or one for each array task or het component."""
        shown = self.controller.run(["scontrol", "--oneliner", "show", "job", job], check=True).stdout
        return re.findall(r"^.*? JobState=(\S+)", shown, re.MULTILINE)

    def wait(self, job: str, timeout: float = COMMAND_S) -> str:
        """Wait for a job's end and return its state, such as COMPLETED; of several parts, the first other."""
        states = self.wait_state(job, *ENDED, timeout=timeout)
        return next((s for s in states if s != "COMPLETED"), states[0])

    def wait_state(self, job: str, *wanted: str, timeout: float = COMMAND_S) -> list[str]:
        """Wait until all parts of a job are in one of these states, and return them."""
        states: list[str] = []

        def is_so() -> bool:
            states[:] = self.states(job)
            return set(states) <= set(wanted)

        self.until(is_so, f"{wanted} of job {job}", timeout)
        return states

    def requeue(self, job: str) -> None:
        """Put a running job back into the queue, to start again at once."""
        self.controller.run(["scontrol", "requeue", job], check=True)
        # Slurm holds a requeued job back for two minutes, in case its nodes were the cause.
        self.until(lambda: "PENDING" in self.states(job), f"pending job {job}")
        # Not in the same second: a credential's time is in whole seconds, and slurmd would take the new life's
        # for the old one's, which it has just revoked.
        self.controller.run(["scontrol", "update", f"jobid={job}", "starttime=now+2"], check=True)

    def sinfo(self) -> dict[str, str]:
        """Return host name -> state, such as idle, allocated, drained."""
        shown = self.controller.run(["sinfo", "--Node", "--noheader", "--format=%N %T"], check=True).stdout
        return dict(line.split() for line in shown.splitlines())

    def is_idle(self) -> bool:
        """Tell whether every host is idle and no job is there."""
        return set(self.sinfo().values()) == {"idle"} and self.has_no_job()

    def has_no_job(self) -> bool:
        """Tell whether all jobs have ended."""
        queue = self.controller.run(["squeue", "--noheader", "--states=all", "--format=%T"], check=True).stdout
        return set(queue.split()) <= ENDED

    def cancel_all(self, states: Mapping[str, str] | None = None) -> None:
        """Cancel every job, let every host work again, and wait until all are idle; `states` are the hosts' now."""
        if set((states or self.sinfo()).values()) == {"idle"} and self.has_no_job():
            return
        self.controller.run(["scancel", "--state=pending"])
        self.controller.run(["scancel", "--state=running"])
        self.controller.run(["scancel", "--state=suspended"])
        for name, state in self.sinfo().items():
            if state.startswith(("drain", "down")):
                self.controller.run(["scontrol", "update", f"nodename={name}", "state=resume"], check=True)
        self.wait_idle()

    def _is_own(self, line: str) -> bool:
        return "slurmscriptd" in line  # slurmctld starts it anew, from 23.02 on

    def settle(self) -> None:
        """Make all hosts idle after a test, and fail it when a node was not well or something kept running."""
        self.hosts.clear_firewall()
        states = self.sinfo()
        unwell = {name: state for name, state in states.items() if state.startswith(("drain", "down"))}
        self.cancel_all(states)
        assert not unwell, f"the test left these nodes unwell: {unwell}\n{self.logs()}"
        left = self.strays()
        assert not left, f"the test left these running on its hosts: {left}"
