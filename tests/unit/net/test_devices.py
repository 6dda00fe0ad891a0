"""GPUs and RDMA ports of this node, and which a task uses."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from support.nodes import silence

from mingle_hooks.net import devices
from mingle_hooks.net.addresses import read_attribute
from mingle_hooks.net.devices import NONE, GpuBinding, active_rdma_ports, gpu_binding, has_accelerator, visible_gpus

CUDA = {
    "0,1,2,3": 4,
    " 0, 3 ": 2,
    **dict.fromkeys(("", "-1", "NoDevFiles", "$(reboot),1"), 0),
    "0,-1,1": 1,
    "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,GPU-1": 2,
    "MIG-GPU-8932f937-d72c/1/0,MIG-2d0b-4c": 2,
}


def made(root: Path, **files: str) -> str:
    """Make files below a root, with `__` for each slash of a path, and return the root."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def host(root: Path, gpus: int, kind: str = "dev/nvidia") -> str:
    """Make a host's device files, with some that are no GPU's."""
    names = (*(f"{kind}{number}" for number in range(gpus)), "dev/nvidiactl", "dev/nvidia-uvm", "dev/null")
    return made(root, **dict.fromkeys(names, ""))


@pytest.mark.parametrize(
    ("environ", "count"),
    [
        *(({"CUDA_VISIBLE_DEVICES": value}, count) for value, count in CUDA.items()),
        ({"ROCR_VISIBLE_DEVICES": "0,1"}, 2),
        ({"ROCR_VISIBLE_DEVICES": "0,1,2", "HIP_VISIBLE_DEVICES": "1"}, 1),
        ({"ROCR_VISIBLE_DEVICES": "GPU-4d6c1a1f,GPU-5"}, 2),
        ({"ZE_AFFINITY_MASK": "0.0,0.1,1"}, 3),
        ({"NVIDIA_VISIBLE_DEVICES": "none"}, 0),
        ({"NVIDIA_VISIBLE_DEVICES": "0,2"}, 2),
        ({"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": "1"}, 1),
        *(({"NVIDIA_VISIBLE_DEVICES": value}, 8) for value in ("", "all", "void")),
        ({}, 8),
    ],
)
def test_a_visibility_variable_decides_and_else_the_device_files(
    environ: dict[str, str], count: int, tmp_path: Path
) -> None:
    assert visible_gpus(environ, host(tmp_path, 8)) == count


DRIVERS = {"proc__driver__nvidia__gpus__0000:01:00.0": "", "proc__driver__nvidia__gpus__0000:02:00.0": ""}
AMD = {f"sys__class__kfd__kfd__topology__nodes__{n}__gpu_id": f"{id_}\n" for n, id_ in enumerate((0, 7, 4660, 22136))}


@pytest.mark.parametrize(
    ("files", "count"), [({"dev__nvidia3": "", **DRIVERS}, 1), (DRIVERS, 2), (AMD, 3), ({}, None)], ids=str
)
def test_what_was_granted_comes_before_a_drivers_list(files: dict[str, str], count: int | None, tmp_path: Path) -> None:
    """A container lists the whole host's GPUs; AMD's nodes with an id are GPUs; nothing known is not zero."""
    assert visible_gpus({}, made(tmp_path, **files)) == count


ANY = ("dxg", "kfd", "accel0", "accel/accel0", "hl1", "neuron0", "davinci3", "mtgpu.0", "dri/renderD128", "vfio/7")


def test_any_accelerators_device_file_keeps_a_program_from_the_cpu(tmp_path: Path) -> None:
    others = dict.fromkeys(("dev/vfio/vfio", "dev/accelerate", "dev/hl", "dev/0"), "")
    assert not has_accelerator({}, made(tmp_path / "others", **others))
    assert not has_accelerator({"CUDA_VISIBLE_DEVICES": ""}, made(tmp_path / "hidden", **{f"dev/{ANY[0]}": ""}))
    assert has_accelerator({"CUDA_VISIBLE_DEVICES": "0"}, str(tmp_path / "none"))
    for name in ANY:
        assert has_accelerator({}, made(tmp_path / name, **{f"dev/{name}": ""})), name


# Which GPUs of its node a task sees, and what can be done where that is one.


def seen(
    root: str, environ: dict[str, str], *, tasks: int = 4, granted: int | None = 4, is_requested: bool = True
) -> GpuBinding:
    """Return how the second task of the node sees its GPUs."""
    return gpu_binding(environ, 1, tasks, granted, is_requested=is_requested, root=root)


@pytest.mark.parametrize("value", ["1", "0", " 1 "])
def test_a_task_that_sees_one_gpu_sees_all_of_the_nodes(tmp_path: Path, value: str) -> None:
    """Under its number on the host, or, behind the job's device cgroup, under its number there."""
    names = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK")
    found = seen(host(tmp_path, 4), {**dict.fromkeys(names, value), "SLURM_STEP_GPUS": "1"})
    assert found == GpuBinding(dict.fromkeys(names, "0,1,2,3"))
    # AMD's have no numbered device file; CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK needs no scheduler.
    assert seen(host(tmp_path / "amd", 4, "dev/dri/renderD12"), {names[1]: "1"}).variables == {names[1]: "0,1,2,3"}
    assert seen(str(tmp_path), {names[0]: "1"}, granted=None).variables == {names[0]: "0,1,2,3"}


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
@pytest.mark.parametrize("is_requested", [True, False])
def test_a_task_that_sees_all_its_gpus_gets_no_note(
    tmp_path: Path, environ: dict[str, str], tasks: int, granted: int | None, *, is_requested: bool
) -> None:
    """Where a task sees several, or there is one for all, or one task has the node; an instance of MIG has no peers."""
    assert seen(host(tmp_path, 4), environ, tasks=tasks, granted=granted, is_requested=is_requested) == NONE


def test_without_the_option_there_is_only_a_note(tmp_path: Path) -> None:
    """With what is seen, what it breaks, and the remedy."""
    assert seen(host(tmp_path, 4), {"CUDA_VISIBLE_DEVICES": "1"}, is_requested=False) == GpuBinding(
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
def test_a_note_explains_why_a_task_cannot_see_all_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: int, allowed: int, device: str, tasks: int, why: str
) -> None:
    """What it may open counts, as the device cgroup hides no file."""
    root = host(tmp_path, gpus)
    open_to = [f"{root}/dev/nvidia{number}" for number in range(allowed)]
    monkeypatch.setattr(os, "access", lambda path, mode: path in open_to and mode == os.R_OK | os.W_OK)
    found = seen(root, {"CUDA_VISIBLE_DEVICES": device}, tasks=tasks)
    assert found.variables == {}
    assert found.note.startswith("--bind gpu changes nothing: this task sees one of the node's 4 GPUs")
    assert why in found.note


# Asking devices in a child: who is waited for, and for how long.


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for a processor: other tests may have them."""
    monkeypatch.setattr(devices, "BUSY_S", 30.0)


SPINS_S, ANSWER_S = 0.4, 0.1


def test_a_child_that_gets_no_processor_is_not_taken_for_a_device_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has longer, also to end once it is killed; one that waits for anything else has not."""
    monkeypatch.setattr(devices, "ANSWER_S", ANSWER_S)
    monkeypatch.setattr(devices, "END_S", 1e-6)
    here = os.getpid()

    def is_requested(path: str) -> str:
        if os.getpid() == here:
            return read_attribute(path)
        if path == "hangs":
            time.sleep(60)
        end = time.process_time() + SPINS_S
        while time.process_time() < end:
            pass
        return path

    monkeypatch.setattr(devices, "read_attribute", is_requested)
    assert devices.read_in_child(["works"]) == {"works": "works"}
    began = time.monotonic()
    assert devices.read_in_child(["hangs"]) is None
    assert time.monotonic() - began < 30


def test_a_child_is_read_also_where_the_kernel_reaps_it() -> None:
    """A caller may ignore SIGCHLD, and a program keeps what is ignored."""
    code = "from mingle_hooks.net import devices; print(devices.read_in_child(['/proc/sys/kernel/ostype']))"
    ignoring = ["bash", "-c", 'trap "" CHLD; exec "$@"', "bash", sys.executable, "-c", code]
    done = subprocess.run(ignoring, capture_output=True, text=True, check=False)
    assert done.stdout == "{'/proc/sys/kernel/ostype': 'Linux'}\n", done.stderr


def test_active_ports_are_listed_in_the_order_of_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are unknown if a device does not answer, which is not waited for, or if no process can be started."""
    assert active_rdma_ports(str(tmp_path)) == ()
    states = {"mlx5_10:1": "4: ACTIVE", "mlx5_2:1": "1: DOWN", "mlx5_2:2": "4: ACTIVE", "qib0:1": "2: INIT"}
    for name, state in states.items():
        made(tmp_path, **{f"{name.replace(':', '__ports__')}__state": f"{state}\n"})
    assert active_rdma_ports(str(tmp_path)) == ("mlx5_2:2", "mlx5_10:1")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", Mock(side_effect=BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")))
        assert active_rdma_ports(str(tmp_path)) is None
    (tmp_path / "mlx5_0/ports/9").mkdir(parents=True)
    silence(monkeypatch, tmp_path / "mlx5_0/ports/9/state")
    assert active_rdma_ports(str(tmp_path)) is None
