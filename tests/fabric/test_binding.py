"""Which GPUs of its node a task sees, and what can be done where that is one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mingle_hooks.net.devices import NONE
from mingle_hooks.net.devices import GpuBinding as Binding
from mingle_hooks.net.devices import gpu_binding as binding

if TYPE_CHECKING:
    from pathlib import Path


def host(root: Path, gpus: int, kind: str = "dev/nvidia") -> str:
    """Make a host's device files, with some that are no GPU's."""
    for name in (*(f"{kind}{number}" for number in range(gpus)), "dev/nvidiactl", "dev/nvidia-uvm", "dev/null"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return str(root)


def seen(root: str, environ: dict[str, str], *, tasks: int = 4, granted: int | None = 4, asked: bool = True) -> Binding:
    """Return how the second task of the node sees its GPUs."""
    return binding(environ, 1, tasks, granted, asked=asked, root=root)


@pytest.mark.parametrize("value", ["1", "0", " 1 "])
def test_a_task_that_sees_one_gpu_sees_all_of_the_nodes(tmp_path: Path, value: str) -> None:
    """Under its number on the host, or, behind the job's device cgroup, under its number there."""
    names = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK")
    found = seen(host(tmp_path, 4), {**dict.fromkeys(names, value), "SLURM_STEP_GPUS": "1"})
    assert found == Binding(dict.fromkeys(names, "0,1,2,3"))


def test_amds_are_those_that_the_kernel_renders_with(tmp_path: Path) -> None:
    """They have no numbered device file of their own."""
    root = host(tmp_path, 4, "dev/dri/renderD12")
    assert seen(root, {"ROCR_VISIBLE_DEVICES": "1"}).variables == {"ROCR_VISIBLE_DEVICES": "0,1,2,3"}


@pytest.mark.parametrize(
    ("environ", "tasks", "granted"),
    [
        ({}, 4, 4),
        ({"CUDA_VISIBLE_DEVICES": ""}, 4, 4),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, 4, 4),
        ({"CUDA_VISIBLE_DEVICES": "2,3"}, 2, 4),
        ({"CUDA_VISIBLE_DEVICES": "0"}, 4, 1),
        ({"CUDA_VISIBLE_DEVICES": "0"}, 4, None),
        ({"CUDA_VISIBLE_DEVICES": "1"}, 1, 4),
        ({"CUDA_VISIBLE_DEVICES": "MIG-2d0b-4c"}, 4, 4),
    ],
)
@pytest.mark.parametrize("asked", [True, False])
def test_nothing_is_wrong_and_nothing_is_said(
    tmp_path: Path, environ: dict[str, str], tasks: int, granted: int | None, *, asked: bool
) -> None:
    """Where a task sees several, or there is one for all, or one task has the node; an instance of MIG has no peers."""
    assert seen(host(tmp_path, 4), environ, tasks=tasks, granted=granted, asked=asked) == NONE


def test_what_a_wrapper_does_is_seen_without_a_scheduler(tmp_path: Path) -> None:
    """As `CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK` in front of the program."""
    found = seen(host(tmp_path, 4), {"CUDA_VISIBLE_DEVICES": "1"}, granted=None)
    assert found.variables == {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}


def test_who_does_not_ask_is_told_and_nothing_changes(tmp_path: Path) -> None:
    """With what is seen, what it breaks, and the remedy."""
    assert seen(host(tmp_path, 4), {"CUDA_VISIBLE_DEVICES": "1"}, asked=False) == Binding(
        note="this task sees one of the node's 4 GPUs (CUDA_VISIBLE_DEVICES=1): LOCAL_RANK cannot select another, and"
        " NCCL may not reach the other tasks' GPUs directly; try --bind gpu, or srun --gpu-bind=none"
    )


@pytest.mark.parametrize(
    ("gpus", "allowed", "device", "tasks", "why"),
    [
        (4, 1, "0", 4, "its device cgroup allows only 1 of them"),
        (8, 8, "5", 4, "mingle cannot tell which of this host's 8 belong"),
        (4, 4, "1", 8, "8 tasks share them"),
        (4, 4, "GPU-8932f937-d72c", 4, "by its UUID"),
        (0, 0, "1", 4, "its device cgroup allows only 0 of them"),
    ],
)
def test_where_a_task_cannot_see_them_all_it_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: int, allowed: int, device: str, tasks: int, why: str
) -> None:
    """What it may open counts, as the device cgroup hides no file."""
    root = host(tmp_path, gpus)
    open_to = [f"{root}/dev/nvidia{number}" for number in range(allowed)]
    monkeypatch.setattr(os, "access", lambda path, _mode: path in open_to)
    found = seen(root, {"CUDA_VISIBLE_DEVICES": device}, tasks=tasks)
    assert found.variables == {}
    assert found.note.startswith("--bind gpu changes nothing: this task sees one of the node's 4 GPUs")
    assert why in found.note
