"""The hooks on a real Slurm whose jobs and nodes end when they should not, and hundreds of hooks at once."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from hooked_slurm import MINGLE_HOOKS, all_idle, installed, nothing_left, uninstalled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.slurm import SlurmCluster

HOOKS = "/etc/mingle/hooks/slurm"
KEY = "cat /run/mingle/$SLURM_JOB_ID/key"


def test_hundreds_of_hooks_at_once(fresh_slurm: Callable[..., SlurmCluster]) -> None:
    """A step of 400 tasks on 4 nodes runs as many TaskPrologs at once; 50 jobs as many Prologs and Epilogs.

    Each task has its own rank, every job its key, all nodes are idle afterwards and /run/mingle is empty.
    """
    slurm = fresh_slurm(4, cpus=100)
    installed(slurm)
    done = slurm.srun("-n400", "/bin/sh", "-c", "echo $RANK", user="alice", timeout=120)
    assert sorted(map(int, done.stdout.split())) == list(range(400)), done.stderr
    script = f"#!/bin/sh\n{KEY} >/dev/null"
    job = slurm.submit(script, "--array=1-50", "-N1", "-n1", "-o", "/dev/null", user="alice")
    assert slurm.wait(job, timeout=120) == "COMPLETED"
    nothing_left(slurm)


def test_many_jobs_at_once_leave_every_node_idle(hooked: SlurmCluster) -> None:
    """Twenty jobs through four nodes, with steps, and hooks for each: all end well, and nothing is left."""
    script = "srun --overlap -n2 /bin/sh -c '[ -n \"$MASTER_ADDR\" ]'"
    job = hooked.submit(script, "--array=1-20", "-N1", "-n2", "-o", "/dev/null", user="alice")
    assert hooked.wait(job, timeout=120) == "COMPLETED"
    nothing_left(hooked)


SLOW, MARK = "/etc/slurm/slow", "/run/in.prolog"


@pytest.fixture
def slow(slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """Give the shared Slurm with hooks and a slow Prolog of the site's, which leaves a mark when it begins."""
    text = f"#!/bin/sh\ntouch {MARK}\nsleep 2\n"
    with ExitStack() as last_first:
        for host in slurm.hosts:
            last_first.callback(host.run, ["rm", "-f", SLOW, MARK], check=True)
        last_first.callback(uninstalled, slurm)
        slurm.hosts.run_all(["rm", "-f", MARK])
        slurm.controller.write(SLOW, text, mode=0o755)
        installed(slurm, before=(f"Prolog={SLOW}",))
        yield slurm


def test_a_job_that_is_cancelled_in_its_prolog_leaves_nothing(slow: SlurmCluster) -> None:
    """The Epilog comes while the site's part of the Prolog still runs, or right after it."""
    job = slow.submit("sleep 60", "-N4", "-o", "/dev/null", user="alice")
    slow.until(lambda: all(host.outside(MARK).exists() for host in slow.hosts), "Prologs everywhere")
    slow.controller.run(["scancel", job], check=True)
    assert slow.wait(job) == "CANCELLED"
    nothing_left(slow)


def test_a_job_that_is_requeued_at_once_drains_no_node(hooked: SlurmCluster) -> None:
    """An admin who requeues a job and lets it start in the same second loses no node, and the Epilogs leave nothing."""
    script = '[ -n "$SLURM_RESTART_COUNT" ] && [ -n "$MASTER_ADDR" ] || exec sleep 60'
    job = hooked.submit(script, "-N4", "--requeue", "-o", "/dev/null", user="alice")
    hooked.wait_state(job, "RUNNING")
    hooked.controller.run(["scontrol", "requeue", job], check=True)
    hooked.wait_state(job, "PENDING")
    hooked.controller.run(["scontrol", "update", f"jobid={job}", "starttime=now"], check=True)
    # FAILED comes from Slurm, without any hooks too: slurmd may take the new life's credential for the one revoked
    # in that second. A job that ran without its variables would sleep, and the wait end with an error.
    assert hooked.wait(job) in {"COMPLETED", "FAILED"}
    nothing_left(hooked)


@pytest.mark.parametrize("keep_run", [False, True], ids=["the node", "slurmd alone"])
def test_a_node_that_starts_anew_takes_jobs(fresh_slurm: Callable[..., SlurmCluster], *, keep_run: bool) -> None:
    """A node goes down with a job on it and comes back, with its job's directory or without: the job runs again."""
    slurm = fresh_slurm(2)
    installed(slurm)
    script = f"[ -z \"$SLURM_RESTART_COUNT\" ] && exec sleep 600; srun /bin/sh -c '{KEY}' >/home/alice/again"
    job = slurm.submit(script, "-N2", "--requeue", "-o", "/dev/null", user="alice")
    slurm.wait_state(job, "RUNNING")
    slurm.reboot(slurm.hosts[1], lost=() if keep_run else ("/run/mingle",))
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
    assert str(current + 1) in done.stdout
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
    assert re.search(f"^BAD  {HOOKS}/epilog: +is missing; fix: mingle hooks install slurm$", told.stdout, re.MULTILINE)
    assert slurm.wait(job) == "COMPLETED"
    slurm.until(lambda: set(slurm.sinfo().values()) == {"drained"}, "drained nodes")
    host.run([*MINGLE_HOOKS, "install", "slurm", "--yes"], check=True)
    host.run(["scontrol", "update", "nodename=node[1-2]", "state=resume"], check=True)
    assert host.run([*MINGLE_HOOKS, "verify", "slurm"]).returncode == 0
    assert slurm.srun("-N2", "true", user="alice").returncode == 0
    all_idle(slurm)


def test_hooks_that_are_replaced_while_jobs_run_harm_none(hooked: SlurmCluster) -> None:
    """An installation of other settings, again and again, while jobs start and end: none is lost."""
    job = hooked.submit('[ -n "$MASTER_PORT" ]', "--array=1-30", "-N2", "-n2", "-o", "/dev/null", user="alice")
    for first in range(20000, 20006):
        hooked.controller.write("/etc/mingle/mingle.toml", f'port_range = "{first}-24999"\n')
        hooked.controller.run([*MINGLE_HOOKS, "install", "slurm", "--yes"], check=True)
    assert hooked.wait(job) == "COMPLETED"
    nothing_left(hooked)
