"""Slurm's variables of a step of two nodes with a task each, without a task's own numbers."""

from __future__ import annotations

from support.recorded import assigned

STEP = assigned(
    "SLURM_JOB_ID=5 SLURM_JOB_NODELIST=node[1-2] SLURM_STEP_ID=0 SLURM_STEP_NODELIST=node[1-2] SLURM_STEP_NUM_NODES=2"
    " SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_LOCALID=0"
)
