"""The hooks on a real Slurm: what jobs, shells and `mingle env` get, and failures."""

import json
import re
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from cluster.slurm import SlurmCluster
from hooked_slurm import MINGLE_HOOKS, SHOW, installed, nothing_left, shown, uninstalled
from light import BIN, TRAIN as LIGHT
from support.needs import need

KEY = "cat /run/mingle/$SLURM_JOB_ID/key"


# Plain torch.distributed, as a user would write it: all from the environment, and a sum that needs everybody.
TRAIN = """
import gc, os
gc.disable()  # it would take a third of this process's time, for what torch loads
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
os.write(1, f"rank {dist.get_rank()} of {dist.get_world_size()} sum {total.item():.0f}\\n".encode())
dist.destroy_process_group()
gc.freeze()  # nor at its end
"""


@pytest.mark.timeout(240)
def test_an_unchanged_torch_script_trains(hooked: SlurmCluster) -> None:
    """A torch script whose user never heard of the project reduces over all nodes."""
    need("torch")
    done = hooked.srun("-N2", "-n3", "python", "-c", TRAIN, user="alice", timeout=200)
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
    its = sorted((s["NODE_RANK"], s["PET_NODE_RANK"], s["PET_NNODES"], s["RANK"]) for s in whole)
    assert its == [(rank, rank, "1:4", None) for rank in "0123"]
    assert all((s["PET_MASTER_ADDR"], s["PET_MASTER_PORT"]) == (s["MASTER_ADDR"], s["MASTER_PORT"]) for s in whole)
    assert len({part[0]["MASTER_PORT"], whole[0]["MASTER_PORT"]}) == 2


def test_a_heterogeneous_job_gets_its_key_and_no_variables(hooked: SlurmCluster) -> None:
    """Slurm sorts such a step's host list by name, and nothing tells all of its groups."""
    argv = ["salloc", "-N1", "-w", "node4", ":", "-N2", "-w", "node2,node3"]
    tasks = ["srun", "--het-group=0,1", "bash", "-c", f"python {SHOW}; {KEY}"]
    done = hooked.controller.run([*argv, *tasks], user="alice", timeout=60)
    seen = shown(done)
    assert [(s["MASTER_ADDR"], s["NODE_RANK"], s["MINGLE_ID"]) for s in seen] == [(None, None, None)] * 3
    keys = [line for line in done.stdout.splitlines() if not line.startswith("{")]
    assert (len(keys), len(set(keys))) == (3, 1)


def test_opt_in_acts_where_the_comment_asks(hooked: SlurmCluster) -> None:
    """With opt_in, only jobs whose comment holds the word get anything."""
    hooked.controller.write("/etc/mingle/mingle.toml", '[hooks]\nopt_in = "please"\n')
    hooked.controller.run([*MINGLE_HOOKS, "install", "slurm", "--yes"], check=True)
    show = ("/bin/sh", "-c", "echo ${MASTER_ADDR-none}")
    for comment, address in (("a please, b", "node1"), ("pleased", "none"), ("", "none")):
        done = hooked.srun("-N2", f"--comment={comment}", *show, user="alice")
        assert done.stdout.split() == [address] * 2


# It stands in for the shell that a person would type in.
SHELL = "/home/alice/shell"


def at_a_terminal(hooked: SlurmCluster, command: str) -> list[dict[str, str | None]]:
    """Run a command as alice at a terminal, with SHELL as her shell, and return what it and its step see."""
    text = f"#!/bin/bash\npython {SHOW}\nsrun --overlap python {SHOW}\n"
    hooked.controller.write(SHELL, text, mode=0o755, user="alice")
    done = hooked.controller.run(["script", "-qec", command, "/dev/null"], user="alice", timeout=60)
    hooked.wait_idle()
    lines = [line[line.index("{") :] for line in done.stdout.splitlines() if "{" in line]
    assert lines, done.stdout
    return [json.loads(line) for line in lines]


def test_the_shell_of_salloc_is_a_batch_script(hooked: SlurmCluster) -> None:
    """A shell that salloc starts on the first node has no ranks where there are several; its steps have them.

    A shell on one node and its step are left alone: people try things out there, one after the other or side by side.
    """
    options = f'InteractiveStepOptions="--interactive --preserve-env --pty {SHELL}"'
    for flags in ("Alloc", "Contain"):  # without and with an extern step
        hooked.reconfigure(*hooked.conf_lines, f"PrologFlags={flags}", "LaunchParameters=use_interactive_step", options)
        shell, *steps = at_a_terminal(hooked, "salloc -N3")
        assert (shell["MASTER_ADDR"], shell["NNODES"], shell["NODE_RANK"]) == ("node1", "3", None)
        assert not [name for name in shell if name.startswith("PET_")]
        assert sorted(str(each["PET_NODE_RANK"]) for each in steps) == ["0", "1", "2"]
        assert len({shell["MASTER_PORT"], *(each["MASTER_PORT"] for each in steps)}) == 2
    for command in ("salloc -N1", f"srun -N1 --pty {SHELL}"):
        for seen in at_a_terminal(hooked, command):
            assert not [name for name, value in seen.items() if value and not name.startswith("SLURM")]


ENV = 'v=$(mingle env) || exit; eval "$v"; '


def test_mingle_env_makes_one_world_of_a_hooked_job(hooked: SlurmCluster) -> None:
    """What the hook worked out is replaced by the world that formed, and nothing of both is mixed."""
    gpus = {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    tasks = shown(hooked.srun("-N4", "bash", "-c", f"{ENV} python {SHOW}", user="alice", env=gpus))
    assert [(each["NODE_RANK"], each["NNODES"], each["WORLD_SIZE"]) for each in tasks] == [
        (str(rank), "4", "16") for rank in range(4)
    ]
    assert len({(each["MASTER_ADDR"], each["MASTER_PORT"]) for each in tasks}) == 1
    assert str(tasks[0]["MASTER_ADDR"]).startswith("10.")  # found by asking, not the hook's name of a host
    assert all((each["PET_MASTER_ADDR"], each["RANK"]) == (each["MASTER_ADDR"], None) for each in tasks)
    assert [each["PET_NODE_RANK"] for each in tasks] == ["0", "1", "2", "3"]


def test_torchrun_in_a_step_after_mingle_env_in_the_batch_script_is_in_one_world(hooked: SlurmCluster) -> None:
    """The hook adds no node rank to what the batch script exported, and the static form of its own to nothing."""
    lines = [f"PATH={BIN}:$PATH", ENV, f"python {SHOW}", f"srun python {SHOW}", f"srun torchrun {LIGHT}"]
    job = hooked.submit("\n".join(lines), "-N2", "-n2", "-o", "/home/alice/steps", user="alice")
    state = hooked.wait(job)
    text = hooked.controller.outside("/home/alice/steps").read_text()
    assert (state, text.count("SIZE=2")) == ("COMPLETED", 2), text
    batch, *tasks = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert batch["MASTER_ADDR"].startswith("10.")  # found by asking, not the hook's name of a host
    names = {name for name in batch if name.startswith("PET_") and batch[name]}
    assert {*names} >= {"PET_NNODES", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT"}
    assert [{name for name in task if name.startswith("PET_")} for task in tasks] == [names] * 2
    assert [{task[name] for task in tasks} for name in names] == [{batch[name]} for name in names]


def test_a_job_that_is_cancelled_in_its_prolog_leaves_nothing(slurm: SlurmCluster) -> None:
    """The Epilog comes while the site's part of the Prolog still runs, or right after it."""
    slow, mark = "/etc/slurm/slow", "/run/in.prolog"
    with ExitStack() as last_first:
        for host in slurm.hosts:
            last_first.callback(host.run, ["rm", "-f", slow, mark], check=True)
        last_first.callback(uninstalled, slurm)
        slurm.controller.write(slow, f"#!/bin/sh\ntouch {mark}\nsleep 2\n", mode=0o755)
        installed(slurm, before=(f"Prolog={slow}",))
        job = slurm.submit("sleep 60", "-N4", "-o", "/dev/null", user="alice")
        slurm.until(lambda: all(host.outside(mark).exists() for host in slurm.hosts), "Prologs everywhere")
        slurm.controller.run(["scancel", job], check=True)
        assert slurm.wait(job) == "CANCELLED"
        nothing_left(slurm)


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


def test_a_node_that_starts_anew_takes_jobs(fresh_slurm: Callable[..., SlurmCluster]) -> None:
    """A node goes down with a job on it and comes back, with its job's directory or without: the job runs again.

    The restart count is part of the key, so an attempt never meets its own past.
    """
    slurm = fresh_slurm(2)
    installed(slurm)
    first, again = (slurm.controller.outside(f"/home/alice/{name}") for name in ("first", "again"))
    script = f"[ -n \"$SLURM_RESTART_COUNT\" ] || {{ {KEY} >first; exec sleep 600; }}; srun /bin/sh -c '{KEY}' >again"
    for lost in ((), ("/run/mingle",)):
        first.unlink(missing_ok=True)
        job = slurm.submit(script, "-N2", "--requeue", "-D", "/home/alice", "-o", "/dev/null", user="alice")
        slurm.until(lambda: first.exists() and first.read_text().endswith("\n"), "its key")
        slurm.reboot(slurm.hosts[1], lost=lost)
        slurm.requeue(job)
        assert slurm.wait(job) == "COMPLETED"
        keys = again.read_text().split()
        assert (len(keys), len(set(keys))) == (2, 1)
        assert keys[0] != first.read_text().strip()
        nothing_left(slurm)


HOSTILE = "$(touch /run/lock/owned);`touch /run/lock/owned`'\"\n\x1b[2J;touch /run/lock/owned #"


def test_hostile_text_of_a_user_runs_nowhere(hooked: SlurmCluster) -> None:
    """Comment, job name, working directory and environment go through the hooks without being run."""
    host = hooked.controller
    place = "/home/alice/a $(touch &)'\";`b`"
    host.run(["mkdir", "-p", place], user="alice", check=True)
    names = ("MINGLE_EXPORTS", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_COMMENT", "SPANK_X", "IFS", "ENV", "BASH_ENV", "PS4")
    env = dict.fromkeys(names, HOSTILE)
    text = HOSTILE.replace("\n", " ")
    job_options = ["--comment", text, "-J", text, "--chdir", place]
    done = hooked.srun("-N4", *job_options, "/bin/sh", "-c", "echo $MASTER_ADDR", user="alice", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["node1"] * 4
    hooked.wait_idle()
    assert not any(each.outside("/run/lock/owned").exists() for each in hooked.hosts)
