"""`mingle env` and `mingle exec` in jobs that the hooks have given variables already, on a real Slurm."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hooked_slurm import SHOW, shown
from light import BIN
from light import TRAIN as LIGHT

if TYPE_CHECKING:
    from cluster.slurm import SlurmCluster

ENV = 'v=$(mingle env) || exit; eval "$v"; '
GPUS = {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}


def seen(hooked: SlurmCluster, *options: str, script: str, env: dict[str, str] | None = None) -> list[dict[str, str]]:
    """Run a script in each task of a step, show what is set at its end, and return it in rank order."""
    done = hooked.srun(*options, "bash", "-c", f"{script} python {SHOW}", user="alice", env=GPUS | (env or {}))
    return [{name: value for name, value in each.items() if value is not None} for each in shown(done)]


def test_mingle_env_makes_one_world_of_a_hooked_job(hooked: SlurmCluster) -> None:
    """What the hook worked out is replaced by the world that formed, and nothing of both is mixed."""
    tasks = seen(hooked, "-N4", script=ENV)
    assert [(each["NODE_RANK"], each["NNODES"], each["WORLD_SIZE"]) for each in tasks] == [
        (str(rank), "4", "16") for rank in range(4)
    ]
    assert len({(each["MASTER_ADDR"], each["MASTER_PORT"]) for each in tasks}) == 1
    assert tasks[0]["MASTER_ADDR"].startswith("10.")  # found by asking, not the hook's name of a host
    assert all(each["PET_MASTER_ADDR"] == each["MASTER_ADDR"] and "RANK" not in each for each in tasks)
    assert [each["PET_NODE_RANK"] for each in tasks] == ["0", "1", "2", "3"]


def test_mingle_env_uses_the_key_that_the_prolog_made(hooked: SlurmCluster) -> None:
    """With no other key in reach it works, and with the Prolog's key gone it refuses."""
    command = "mingle env >/dev/null || echo refused $?"
    assert hooked.srun("-N2", "bash", "-c", f"HOME=/nonexistent {command}", user="alice").stdout == ""
    gone = f"rm /run/mingle/$SLURM_JOB_ID/key; HOME=/nonexistent {command}"
    assert hooked.srun("-N2", "bash", "-c", gone, user="alice").stdout == "refused 77\n" * 2


def test_tasks_have_their_ranks_from_mingle_env(hooked: SlurmCluster) -> None:
    """In task scope all tasks of all nodes are in one world, with the ranks that the hook gave them too."""
    tasks = seen(hooked, "-N4", "--ntasks-per-node=2", script=ENV.replace("env", "env --scope task"))
    assert [(each["RANK"], each["LOCAL_RANK"], each["WORLD_SIZE"]) for each in tasks] == [
        (str(rank), str(rank % 2), "8") for rank in range(8)
    ]
    assert len({(each["MASTER_ADDR"], each["MASTER_PORT"]) for each in tasks}) == 1


def test_mingle_exec_gives_torchruns_variables_anew(hooked: SlurmCluster) -> None:
    """PET_* are those of the world that formed, all of them, and fit to its MASTER_ADDR."""
    tasks = seen(hooked, "-N2", script="exec mingle exec --for torchrun --")
    assert [each["PET_NODE_RANK"] for each in tasks] == ["0", "1"]
    assert {each["PET_NPROC_PER_NODE"] for each in tasks} == {"4"}
    assert all(each["PET_MASTER_ADDR"] == each["MASTER_ADDR"] == tasks[0]["MASTER_ADDR"] for each in tasks)
    assert all(each["PET_MASTER_PORT"] == each["MASTER_PORT"] for each in tasks)


def test_what_the_user_gave_srun_stays(hooked: SlurmCluster) -> None:
    """Hook and `mingle env` both keep the user's address and port, and the sizes are the world's, not the step's."""
    own = {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "4242"}
    tasks = seen(hooked, "-N2", script=ENV, env=own)
    assert {(each["MASTER_ADDR"], each["MASTER_PORT"]) for each in tasks} == {("10.77.0.1", "4242")}
    assert {(each["WORLD_SIZE"], each["LOCAL_WORLD_SIZE"]) for each in tasks} == {("8", "4")}


def test_what_the_user_sets_after_the_hook_stays(hooked: SlurmCluster) -> None:
    """A script that exports MASTER_ADDR or MINGLE_ID itself means it, although the hook had set them before."""
    own = "export MASTER_ADDR=10.78.0.1 MASTER_PORT=4243 MINGLE_ID=mine; "
    tasks = seen(hooked, "-N2", "-w", "node1,node2", script=own + ENV)
    assert {(each["MASTER_ADDR"], each["MASTER_PORT"]) for each in tasks} == {("10.78.0.1", "4243")}
    assert all(each["MINGLE_ID"].startswith("mine") for each in tasks)


def test_a_step_after_mingle_env_in_the_batch_script_has_its_own_world(hooked: SlurmCluster) -> None:
    """`mingle env` in the batch script, then in a step on other hosts of the job: the step's world is its own."""
    inner = f"srun -N2 -n2 -r1 bash -c '{ENV} python {SHOW}'"
    job = hooked.submit(ENV + inner, "-N3", "-n3", "-o", "/home/alice/inner", user="alice")
    state = hooked.wait(job)
    text = hooked.controller.outside("/home/alice/inner").read_text()
    assert state == "COMPLETED", text
    tasks = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert sorted(each["NODE_RANK"] for each in tasks) == ["0", "1"]
    assert {each["NNODES"] for each in tasks} == {"2"}
    assert len({each["MASTER_ADDR"] for each in tasks}) == 1


def test_torchrun_in_a_step_after_mingle_env_in_the_batch_script_is_in_one_world(hooked: SlurmCluster) -> None:
    """The hook adds no node rank to what the batch script exported, and the static form of its own to nothing."""
    lines = [f"PATH={BIN}:$PATH", ENV, f"python {SHOW}", f"srun python {SHOW}", f"srun torchrun {LIGHT}"]
    job = hooked.submit("\n".join(lines), "-N2", "-n2", "-o", "/home/alice/steps", user="alice")
    state = hooked.wait(job)
    text = hooked.controller.outside("/home/alice/steps").read_text()
    assert (state, text.count("SIZE=2")) == ("COMPLETED", 2), text
    batch, *tasks = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    names = {name for name in batch if name.startswith("PET_") and batch[name]}
    assert {*names} >= {"PET_NNODES", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT"}
    assert [{name for name in task if name.startswith("PET_")} for task in tasks] == [names] * 2
    assert [{task[name] for task in tasks} for name in names] == [{batch[name]} for name in names]
