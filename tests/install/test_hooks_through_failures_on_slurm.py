"""The hooks on a real Slurm whose jobs and nodes end when they should not, and a thousand hooks at once."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

import pytest
from hooked_slurm import MINGLE_HOOKS, all_idle, installed, nothing_left

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.hosts import Host
    from cluster.slurm import SlurmCluster

HOOKS = "/etc/mingle/hooks/slurm"
KEY = "cat /run/mingle/$SLURM_JOB_ID/key"


@pytest.mark.timeout(300)
def test_a_thousand_hooks_at_once(fresh_slurm: Callable[..., SlurmCluster]) -> None:
    """A step of 1,000 tasks on 4 nodes runs 1,000 TaskPrologs at once; 300 jobs as many Prologs and Epilogs.

    Each task has its own rank, every job its key, all nodes are idle afterwards and /run/mingle is empty.
    """
    slurm = fresh_slurm(4, cpus=256)
    installed(slurm)
    done = slurm.srun("-n1000", "/bin/sh", "-c", "echo $RANK", user="alice", timeout=120)
    assert sorted(map(int, done.stdout.split())) == list(range(1000)), done.stderr
    script = f'#!/bin/sh\n[ -n "$MASTER_PORT" ] && {KEY} >/dev/null'
    job = slurm.submit(script, "--array=1-300", "-N1", "-n1", "-o", "/dev/null", user="alice")
    assert slurm.wait(job, timeout=150) == "COMPLETED"
    nothing_left(slurm)


def test_many_jobs_at_once_leave_every_node_idle(hooked: SlurmCluster) -> None:
    """Forty jobs through four nodes, with steps, and hooks for each: all end well, and nothing is left."""
    script = "srun --overlap -n2 /bin/sh -c '[ -n \"$MASTER_ADDR\" ]'"
    job = hooked.submit(script, "--array=1-40", "-N1", "-n2", "-o", "/dev/null", user="alice")
    assert hooked.wait(job, timeout=240) == "COMPLETED"
    nothing_left(hooked)


def test_a_job_that_is_cancelled_in_its_prolog_leaves_nothing(hooked: SlurmCluster) -> None:
    """The Epilog comes while the site's part of the Prolog still runs, or right after it."""
    hooked.controller.write("/etc/slurm/slow", "#!/bin/sh\ntouch /run/in.prolog\nsleep 2\n", mode=0o755)
    installed(hooked, before=("Prolog=/etc/slurm/slow",))
    job = hooked.submit("sleep 60", "-N4", "-o", "/dev/null", user="alice")
    hooked.until(lambda: all(host.outside("/run/in.prolog").exists() for host in hooked.hosts), "Prologs everywhere")
    hooked.controller.run(["scancel", job], check=True)
    assert hooked.wait(job) == "CANCELLED"
    nothing_left(hooked)


def test_a_job_that_is_requeued_at_once_runs_again(hooked: SlurmCluster) -> None:
    """An admin who requeues a job and lets it start in the same second loses neither the job nor a node."""
    script = '[ -n "$SLURM_RESTART_COUNT" ] && [ -n "$MASTER_ADDR" ] || exec sleep 60'
    job = hooked.submit(script, "-N4", "--requeue", "-o", "/dev/null", user="alice")
    hooked.wait_state(job, "RUNNING")
    hooked.controller.run(["scontrol", "requeue", job], check=True)
    hooked.wait_state(job, "PENDING")
    hooked.controller.run(["scontrol", "update", f"jobid={job}", "starttime=now"], check=True)
    assert hooked.wait(job) == "COMPLETED"
    nothing_left(hooked)


def reboot(slurm: SlurmCluster, host: Host, *, keep_run: bool) -> None:
    """End all of Slurm and of its jobs on a host, as a power cut does, and start slurmd anew."""
    for pid, line in host.processes().items():
        if "munged" not in line:
            os.kill(pid, signal.SIGKILL)
    ended = [daemon for daemon in slurm._daemons if str(host.pid) in daemon.args and "slurmd" in daemon.args]
    for daemon in ended:
        daemon.wait(10)
        slurm._daemons.remove(daemon)
    if not keep_run:
        host.run(["rm", "-rf", "/run/mingle"], check=True)
    slurm._daemon(host, "slurmd", ["slurmd", "-D", "-N", host.name])
    slurm._first_processes = set(slurm.hosts.processes())


@pytest.mark.parametrize("keep_run", [False, True], ids=["the node", "slurmd alone"])
def test_a_node_that_starts_anew_takes_jobs(fresh_slurm: Callable[..., SlurmCluster], keep_run: bool) -> None:  # noqa: FBT001
    """A node goes down with a job on it and comes back, with its job's directory or without: the job runs again."""
    slurm = fresh_slurm(2)
    installed(slurm)
    script = f"[ -z \"$SLURM_RESTART_COUNT\" ] && exec sleep 600; srun /bin/sh -c '{KEY}' >/home/alice/again"
    job = slurm.submit(script, "-N2", "--requeue", "-o", "/dev/null", user="alice")
    slurm.wait_state(job, "RUNNING")
    reboot(slurm, slurm.hosts[1], keep_run=keep_run)
    slurm.requeue(job)
    assert slurm.wait(job) == "COMPLETED"
    keys = slurm.controller.outside("/home/alice/again").read_text().split()
    assert len(keys) == 2
    assert len(set(keys)) == 1
    nothing_left(slurm)


@pytest.mark.parametrize("owner", ["alice", "bob", "root"])
def test_a_directory_of_an_earlier_life_of_the_cluster_is_replaced(hooked: SlurmCluster, owner: str) -> None:
    """Job ids can begin anew: what a job of the same id left is not taken for this one's, whosever it was."""
    current = int(hooked.submit("true", "-o", "/dev/null", user="alice"))
    all_idle(hooked)
    place = f"/run/mingle/{current + 1}"
    uid = hooked.controller.run(["id", "-u", owner]).stdout.strip()
    old = f"mkdir -p -m 0755 /run/mingle; mkdir -m 0700 {place}; echo old >{place}/key; chown -R {uid} {place}"
    for host in hooked.hosts:
        host.run(["sh", "-c", f"{old}; echo {uid} 1 >{place}.stamp"], check=True)
    done = hooked.srun("-N4", "/bin/sh", "-c", f"echo $SLURM_JOB_ID; {KEY}", user="alice")
    assert done.stdout.split()[::2] == [str(current + 1)] * 4 or str(current + 1) in done.stdout
    keys = {word for word in done.stdout.split() if word != str(current + 1)}
    assert len(keys) == 1
    assert len(keys.pop()) == 64
    nothing_left(hooked)


def test_a_hook_that_an_admin_removes_is_told_and_mended(fresh_slurm: Callable[..., SlurmCluster]) -> None:
    """Slurm drains a node whose Epilog is gone, which no file can prevent.

    The running job ends well, verify tells of it, installing again mends it, and uninstall would have refused.
    """
    slurm = fresh_slurm(2)
    installed(slurm)
    host = slurm.controller
    job = slurm.submit("sleep 1", "-N2", "-o", "/dev/null", user="alice")
    slurm.wait_state(job, "RUNNING")
    assert host.run([*MINGLE_HOOKS, "uninstall", "slurm", "--yes"]).returncode == 76
    host.run(["rm", f"{HOOKS}/epilog"], check=True)
    told = host.run([*MINGLE_HOOKS, "verify", "slurm"])
    assert told.returncode == 1
    assert re.search(f"^BAD  {HOOKS}/epilog: +is missing; mend: mingle hooks install slurm$", told.stdout, re.MULTILINE)
    assert slurm.wait(job) == "COMPLETED"
    slurm.until(lambda: set(slurm.sinfo().values()) == {"drained"}, "drained nodes")
    host.run([*MINGLE_HOOKS, "install", "slurm", "--yes"], check=True)
    host.run(["scontrol", "update", "nodename=node[1-2]", "state=resume"], check=True)
    assert host.run([*MINGLE_HOOKS, "verify", "slurm"]).returncode == 0
    assert slurm.srun("-N2", "true", user="alice").returncode == 0
    all_idle(slurm)


def test_hooks_that_are_replaced_while_jobs_run_harm_none(hooked: SlurmCluster) -> None:
    """An installation of other settings, again and again, while jobs start and end: none is lost."""
    job = hooked.submit('[ -n "$MASTER_PORT" ]', "--array=1-30", "-N1", "-n1", "-o", "/dev/null", user="alice")
    for first in range(20000, 20006):
        hooked.controller.write("/etc/mingle/mingle.toml", f'port_range = "{first}-24999"\n')
        hooked.controller.run([*MINGLE_HOOKS, "install", "slurm", "--yes"], check=True)
    assert hooked.wait(job) == "COMPLETED"
    nothing_left(hooked)
