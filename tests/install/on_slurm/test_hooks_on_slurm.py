"""The installed hooks on a real Slurm: what jobs get."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from hooked_slurm import MINGLE_HOOKS, SHOW, SITE_KEY, TRAIN, all_idle, shown
from light import TRAIN as LIGHT
from needs import need

if TYPE_CHECKING:
    from cluster.slurm import SlurmCluster


def test_one_task_per_node_gets_what_torchrun_reads(hooked: SlurmCluster) -> None:
    """A step of one task on each node has the whole set of PET_*, one address and one port."""
    seen = shown(hooked.srun("-N4", "python", SHOW, user="alice"))
    assert [s["PET_NODE_RANK"] for s in seen] == [s["NODE_RANK"] for s in seen] == list("0123")
    assert {s["MASTER_ADDR"] for s in seen} == {s["PET_MASTER_ADDR"] for s in seen} == {"node1"}
    assert len({s["MASTER_PORT"] for s in seen}) == len({s["PET_MASTER_PORT"] for s in seen}) == 1
    assert {s["PET_NNODES"] for s in seen} == {"1:4"}
    assert {s["RANK"] for s in seen} == {None}


def test_several_tasks_per_node_get_ranks_and_no_torchrun(hooked: SlurmCluster) -> None:
    """A step of two tasks on each node has every rank once, and no PET_*."""
    seen = shown(hooked.srun("-N4", "--ntasks-per-node=2", "python", SHOW, user="alice"))
    assert [s["RANK"] for s in seen] == [str(i) for i in range(8)]
    assert [s["LOCAL_RANK"] for s in seen] == list("01") * 4
    assert {s["WORLD_SIZE"] for s in seen} == {"8"}
    assert not [name for s in seen for name in s if name.startswith("PET_")]


@pytest.mark.timeout(240)
def test_an_unchanged_torch_script_trains(hooked: SlurmCluster) -> None:
    """A torch script whose user never heard of the project reduces over all nodes."""
    need("torch")
    done = hooked.srun("-N2", "-n3", "python", TRAIN, user="alice", timeout=200)
    found = sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))
    assert found == [f"rank {i} of 3 sum 6" for i in range(3)], done.stderr


@pytest.mark.timeout(240)
def test_an_unchanged_torchrun_starts_one_world(hooked: SlurmCluster) -> None:
    """The real torchrun, whose user says nothing to it, starts one process on each node: a script without torch."""
    need("torch")
    done = hooked.srun("-N2", "torchrun", LIGHT, user="alice", timeout=200)
    assert sorted(re.findall(r"rank \d of \d begins", done.stdout)) == [f"rank {i} of 2 begins" for i in range(2)], done


def test_a_step_on_part_of_a_job_has_its_own_world(hooked: SlurmCluster) -> None:
    """In a batch job, the batch script has no NODE_RANK, and a relative step starts at its own first host."""
    script = f"python {SHOW}\nsrun -N2 -n2 -r1 python {SHOW}\nsrun -N4 python {SHOW}\n"
    job = hooked.submit(script, "-N4", "--ntasks-per-node=1", "-o", "/home/alice/out", user="alice")
    assert hooked.wait(job) == "COMPLETED"
    lines = hooked.controller.outside("/home/alice/out").read_text().splitlines()
    seen = [json.loads(line) for line in lines if line.startswith("{")]  # srun tells when it has to wait
    batch, part, whole = seen[0], seen[1:3], seen[3:]
    assert batch["NODE_RANK"] is None
    assert batch["RANK"] is None
    assert (batch["MASTER_ADDR"], batch["NNODES"]) == ("node1", "4")
    assert {(s["MASTER_ADDR"], s["NNODES"]) for s in part} == {("node2", "2")}
    assert {(s["MASTER_ADDR"], s["NNODES"]) for s in whole} == {("node1", "4")}
    assert sorted(s["NODE_RANK"] for s in part) == ["0", "1"]
    assert len({part[0]["MASTER_PORT"], whole[0]["MASTER_PORT"]}) == 2


def test_what_the_user_set_stays(hooked: SlurmCluster) -> None:
    """A user's own MASTER_ADDR and MASTER_PORT reach every task, and torchrun is given the same."""
    env = {"MASTER_ADDR": "10.77.0.2", "MASTER_PORT": "4242"}
    seen = shown(hooked.srun("-N2", "python", SHOW, user="alice", env=env))
    assert {(s["MASTER_ADDR"], s["MASTER_PORT"]) for s in seen} == {("10.77.0.2", "4242")}
    assert {(s["PET_MASTER_ADDR"], s["PET_MASTER_PORT"]) for s in seen} == {("10.77.0.2", "4242")}
    assert len({s["MINGLE_ID"] for s in seen}) == 1


def test_two_jobs_at_once_have_two_ports(hooked: SlurmCluster) -> None:
    """Two jobs on the same nodes share the address and not the port."""
    script = f"srun -N4 --overlap python {SHOW}; sleep 1"
    jobs = [hooked.submit(script, "-N4", "-n4", "-o", f"/home/alice/two.{i}", user="alice") for i in range(2)]
    assert [hooked.wait(job) for job in jobs] == ["COMPLETED"] * 2
    seen = [
        json.loads(line)
        for i in range(2)
        for line in hooked.controller.outside(f"/home/alice/two.{i}").read_text().splitlines()
    ]
    assert len(seen) == 8
    assert {s["MASTER_ADDR"] for s in seen} == {"node1"}
    assert len({s["MASTER_PORT"] for s in seen}) == 2


def test_a_heterogeneous_job_gets_its_key_and_no_variables(hooked: SlurmCluster) -> None:
    """Slurm sorts such a step's host list by name, and nothing tells all of its groups."""
    argv = ["salloc", "-N1", "-w", "node4", ":", "-N2", "-w", "node2,node3"]
    key = "cat /run/mingle/$SLURM_JOB_ID/key"
    tasks = ["srun", "--het-group=0,1", "bash", "-c", f"python {SHOW}; {key}"]
    done = hooked.controller.run([*argv, *tasks], user="alice", timeout=60)
    seen = shown(done)
    assert [(s["MASTER_ADDR"], s["NODE_RANK"], s["MINGLE_ID"]) for s in seen] == [(None, None, None)] * 3
    keys = [line for line in done.stdout.splitlines() if not line.startswith("{")]
    assert len(keys) == 3
    assert len(set(keys)) == 1


def test_arrays_have_a_port_for_each_task(hooked: SlurmCluster) -> None:
    """The jobs of an array differ in their ports."""
    script = f"srun -N2 python {SHOW}"
    job = hooked.submit(script, "--array=1-2", "-N2", "-n2", "-o", "/home/alice/array.%a", user="alice")
    assert hooked.wait(job) == "COMPLETED"
    texts = [hooked.controller.outside(f"/home/alice/array.{i}").read_text() for i in (1, 2)]
    ports = [{json.loads(line)["MASTER_PORT"] for line in text.splitlines()} for text in texts]
    assert [len(each) for each in ports] == [1, 1]
    assert ports[0] != ports[1]


@pytest.mark.parametrize(("title", "address"), [("seen", "node3"), ("hidden", None)])
def test_a_batch_job_given_in_by_a_step_is_not_taken_for_a_step(
    hooked: SlurmCluster, title: str, address: str | None
) -> None:
    """Slurm 22.05 leaves the outer step's variables in such a job's environment; hidepid=2 hides slurmstepd's title."""
    inner = f"#!/bin/sh\\npython {SHOW}\\n"
    command = f"printf '{inner}' | sbatch --wait -N2 -n2 -w node3,node4 -o /home/alice/inner"
    with ExitStack() as stack:
        if title == "hidden":
            mount = ["mount", "-t", "proc", "-o", "hidepid=2", "proc", "/proc"]
            hooked.hosts[2].run(mount, check=True)
            stack.callback(hooked.hosts[2].run, ["umount", "/proc"], check=True)
        outer = ["-N2", "-n2", "-w", "node1,node2", "bash", "-c", f"[ $SLURM_PROCID = 1 ] || {command}"]
        done = hooked.srun(*outer, user="alice")
        hooked.wait_idle()
    assert done.returncode == 0, done.stderr
    seen = json.loads(hooked.controller.outside("/home/alice/inner").read_text())
    assert (seen["MASTER_ADDR"], seen["NODE_RANK"], seen.get("PET_NNODES")) == (address, None, None)


def test_every_node_has_the_jobs_key_and_nobody_else_reads_it(hooked: SlurmCluster) -> None:
    """The key is HMAC-SHA-256 of the site's key, the same on all nodes, the user's alone, gone afterwards."""
    command = "cat /run/mingle/$SLURM_JOB_ID/key; stat -c '%a %U' /run/mingle/$SLURM_JOB_ID{,/key}; ls /run/mingle"
    done = hooked.srun("-N4", "bash", "-c", f"echo $SLURM_JOB_ID; {command}", user="alice")
    lines = done.stdout.split("\n")
    job, uid = lines[0], hooked.controller.run(["id", "-u", "alice"]).stdout.strip()
    text = f"mingle job key 1|cluster|mingle|{job}|{uid}|0"
    key = hmac.new(bytes.fromhex(SITE_KEY), text.encode(), hashlib.sha256).hexdigest()
    assert lines.count(key) == 4
    assert lines.count("700 alice") == lines.count("600 alice") == 4
    hooked.wait_idle()
    hooked.until(
        lambda: not any(p.name for host in hooked.hosts for p in host.outside("/run/mingle").iterdir()),
        "empty",
    )


def test_a_requeued_job_has_its_variables_and_another_key(hooked: SlurmCluster) -> None:
    """The restart count is part of the key, so an attempt never meets its own past."""
    script = f"""
        python {SHOW} >> /home/alice/requeued
        cat /run/mingle/$SLURM_JOB_ID/key >> /home/alice/keys.${{SLURM_RESTART_COUNT:-0}}
        [ -n "$SLURM_RESTART_COUNT" ] || exec sleep 60
        """
    job = hooked.submit(script, "-N2", "--requeue", "-o", "/dev/null", user="alice")
    first = hooked.controller.outside("/home/alice/keys.0")
    hooked.until(lambda: first.exists() and first.read_text().endswith("\n"), "first key")
    # Not at once: slurmd revokes the first credential, and all that are made within the same second.
    for argv in (["requeue", job], ["update", f"jobid={job}", "starttime=now+3"]):
        hooked.controller.run(["scontrol", *argv], check=True)
    assert hooked.wait(job) == "COMPLETED"
    seen = hooked.controller.outside("/home/alice/requeued")
    shown = [json.loads(line) for line in seen.read_text().splitlines()]
    second = hooked.controller.outside("/home/alice/keys.1")
    keys = [first.read_text(), second.read_text()]
    for path in (seen, first, second):
        path.unlink()
    assert [(each["MASTER_ADDR"], each["NNODES"]) for each in shown] == [("node1", "2")] * 2
    assert keys[0] != keys[1]
    assert [len(key) for key in keys] == [65, 65]
    all_idle(hooked)


def test_opt_in_acts_where_the_comment_asks(hooked: SlurmCluster) -> None:
    """With opt_in, only jobs whose comment holds the word get anything."""
    hooked.controller.write("/etc/mingle/mingle.toml", '[hooks]\nopt_in = "please"\n')
    hooked.controller.run([*MINGLE_HOOKS, "install", "slurm", "--yes"], check=True)
    show = ("/bin/sh", "-c", "echo ${MASTER_ADDR-none}")
    for comment, address in (("a please, b", "node1"), ("pleased", "none"), ("", "none")):
        done = hooked.srun("-N2", f"--comment={comment}", *show, user="alice")
        assert done.stdout.split() == [address] * 2
