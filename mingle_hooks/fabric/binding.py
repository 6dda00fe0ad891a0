"""Which GPUs of the node a task sees, where the scheduler or a wrapper leaves it one: `--bind gpu` shows it all.

Frameworks take LOCAL_RANK for the number of a task's GPU, so each task has to see all of its node's; NCCL reaches a
GPU of another task directly (P2P, cuMem) where it sees it. What a task may see is what it may open: access(2) asks the
device cgroup too, and no driver.
"""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.fabric.gpus import visible_gpus
from mingle_hooks.fabric.sysfs import entries

if TYPE_CHECKING:
    from collections.abc import Mapping

# All that Slurm sets for a task's GPUs, of whatever make. An instance of MIG has no number, and no peers.
MASKS = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ZE_AFFINITY_MASK",
)
_MIG = "MIG-"


class Binding(NamedTuple):
    """The variables that show a task all GPUs of its node, and what a person should know."""

    variables: Mapping[str, str] = MappingProxyType({})
    note: str = ""


NONE = Binding()


def binding(
    environ: Mapping[str, str], local_rank: int, local_count: int, granted: int | None, *, asked: bool, root: str = "/"
) -> Binding:
    """Return how a task sees its node's GPUs, of which the scheduler `granted` so many to all tasks together.

    Nothing where it sees several, or where there is one for all.
    """
    masked = [name for name in MASKS if name in environ]
    mask = next((name for name in masked if name in MASKS[:3]), "")
    if not mask or visible_gpus(environ) != 1 or local_count == 1 or environ[mask].startswith(_MIG):
        return NONE
    usable = _usable(root)
    # Where nobody tells how many there are, several tasks may share one GPU: then its number is not their own.
    if granted is None and environ[mask].strip() != str(local_rank):
        return NONE
    count = granted or usable
    if count <= 1:
        return NONE
    seen = f"this task sees one of the node's {count} GPUs ({mask}={environ[mask]})"
    if not asked:
        breaks = "LOCAL_RANK cannot select another, and NCCL may not reach the other tasks' GPUs directly"
        return Binding(note=f"{seen}: {breaks}; try --bind gpu, or srun --gpu-bind=none")
    if why_not := _why_not(environ[mask].strip(), usable, count, local_count):
        return Binding(note=f"--bind gpu changes nothing: {seen}, and {why_not}")
    every = ",".join(str(number) for number in range(count))
    return Binding({name: every for name in masked if environ[name] != every})


def _why_not(device: str, usable: int, count: int, local_count: int) -> str:
    """Return why a task cannot see all GPUs under the numbers from 0 on; empty where it can."""
    if not device.isdigit():
        return "the scheduler names it by its UUID, not by a number"
    if usable < count:
        return f"its device cgroup allows only {usable} of them; try srun --gpu-bind=none"
    if usable > count:
        return f"mingle cannot tell which of this host's {usable} belong to the job; try srun --gpu-bind=none"
    if local_count > count:
        return f"{local_count} tasks share them"
    return ""


def _usable(root: str) -> int:
    """Return how many GPUs this process may open: NVIDIA's, else those that the kernel renders with."""
    for top, begin in ("dev", "nvidia"), ("dev/dri", "renderD"):
        names = [f"{root}/{top}/{name}" for name in entries(f"{root}/{top}") if _is_numbered(name, begin)]
        if names:
            return sum(1 for name in names if os.access(name, os.R_OK | os.W_OK))
    return 0


def _is_numbered(name: str, begin: str) -> bool:
    return name.startswith(begin) and name[len(begin) :].isdigit()
