"""What usual programs do in the tasks that were recorded, with what the TaskProlog adds and without.

Whole job scripts run on a real Slurm 22.05, in tests/install/on_slurm/test_usual_jobs.py; this is for 26.05 too.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
import usual_programs
from rendered import environ, recorded, written

if TYPE_CHECKING:
    from pathlib import Path

TASKS = recorded("slurm-*/taskprolog.*")
GPUS = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "SLURM_GPUS_ON_NODE": "4"}
# Those that are told all by their options are left alone in every task.
ONE = "torchrun --standalone --nproc_per_node=4 train.py"
C10D = "torchrun --nnodes=3 --nproc_per_node=4 --rdzv_id=1 --rdzv_backend=c10d --rdzv_endpoint=node1:29500 train.py"
STATIC = "torchrun --nnodes=3 --nproc_per_node=4 --node_rank=1 --master_addr=node1 --master_port=29500 train.py"
MACHINES = "accelerate launch --num_machines 3 --num_processes 12 --machine_rank 1 --main_process_ip a train.py"
TOLD = [ONE, C10D, STATIC, f"{MACHINES} --main_process_port 29500", "deepspeed train.py"]
# One that looks whether it is one of several: but in steps of several tasks on a node.
LOOKING = ["trainer"]
# torchrun on one node: but in steps of several.
TORCHRUN = ["torchrun train.py", "torchrun --nproc_per_node=4 train.py", "torchrun --standalone train.py"]
# Those that take an address and a port, or a free one: but where there are several nodes or tasks.
FREE = ["spawn", "env_init", "lightning", "accelerate launch --num_processes 4 train.py"]


def counts(env: dict[str, str]) -> tuple[int, int]:
    """Return how many nodes and tasks a step has; a batch script is one task."""
    if env.get("SLURM_STEP_ID", "-5") == "-5":
        return int(env["SLURM_JOB_NUM_NODES"]), 1
    return int(env["SLURM_STEP_NUM_NODES"]), int(env["SLURM_STEP_NUM_TASKS"])


def said(argv: str, env: dict[str, str]) -> str:
    """Return what a program says of what it would do."""
    name, *words = argv.split()
    with patch.dict(os.environ, env, clear=True):
        found: str = getattr(usual_programs, name)(words)
    return found


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the TaskProlog of a site without settings."""
    return written(tmp_path_factory.mktemp("hooks"), "slurm", "taskprolog")


@pytest.mark.parametrize("path", TASKS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_they_do_the_same(script: Path, path: Path) -> None:
    """Where they do not want to be one of several."""
    env = environ(path) | GPUS
    done = subprocess.run(["/bin/sh", script], env=env, capture_output=True, text=True, check=True)
    lines = [line.removeprefix("export ").partition("=") for line in done.stdout.splitlines()]
    hooked = env | {name: value for name, _, value in lines}
    nodes, tasks = (1, 1) if "SLURM_HET_SIZE" in env else counts(env)
    programs = [*TOLD]
    programs += LOOKING if tasks <= nodes else []
    programs += TORCHRUN if tasks == 1 else []
    programs += FREE if tasks == nodes == 1 else []
    assert {argv: said(argv, hooked) for argv in programs} == {argv: said(argv, env) for argv in programs}
