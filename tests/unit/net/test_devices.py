"""GPUs and RDMA ports of this node, and which a task uses."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mingle_hooks.net import devices
from mingle_hooks.net.addresses import read_attribute
from mingle_hooks.net.devices import NONE, GpuBinding, active_rdma_ports, gpu_binding, visible_gpus


@pytest.mark.parametrize(
    ("environ", "count"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, 4),
        ({"CUDA_VISIBLE_DEVICES": " 0, 3 "}, 2),
        ({"CUDA_VISIBLE_DEVICES": ""}, 0),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 0),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, 1),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, 0),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,GPU-1"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "MIG-GPU-8932f937-d72c/1/0,MIG-2d0b-4c"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "$(reboot),1"}, 0),
        ({"ROCR_VISIBLE_DEVICES": "0,1"}, 2),
        ({"ROCR_VISIBLE_DEVICES": "0,1,2", "HIP_VISIBLE_DEVICES": "1"}, 1),
        ({"ROCR_VISIBLE_DEVICES": "GPU-4d6c1a1f,GPU-5"}, 2),
        ({"ZE_AFFINITY_MASK": "0.0,0.1,1"}, 3),
        ({"NVIDIA_VISIBLE_DEVICES": "none"}, 0),
        ({"NVIDIA_VISIBLE_DEVICES": "0,2"}, 2),
        ({"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": "1"}, 1),
    ],
)
def test_a_visibility_variable_decides(environ: dict[str, str], count: int, tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for number in range(8):
        (tmp_path / "dev" / f"nvidia{number}").touch()
    assert visible_gpus(environ, str(tmp_path)) == count


@pytest.mark.parametrize("value", [None, "", "all", "void"])
def test_device_files_decide_where_no_variable_does(value: str | None, tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / "dev" / name).touch()
    assert visible_gpus({} if value is None else {"NVIDIA_VISIBLE_DEVICES": value}, str(tmp_path)) == 2


def test_what_a_container_was_granted_counts_not_the_whole_host(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia3").touch()
    for bus in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / "proc/driver/nvidia/gpus" / bus).mkdir(parents=True)
    assert visible_gpus({}, str(tmp_path)) == 1


def test_the_driver_is_asked_where_no_device_file_was_made_yet(tmp_path: Path) -> None:
    for bus in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / "proc/driver/nvidia/gpus" / bus).mkdir(parents=True)
    assert visible_gpus({}, str(tmp_path)) == 2


def test_amd_nodes_with_a_gpu_id_are_gpus_and_processors_are_not(tmp_path: Path) -> None:
    for node, gpu_id in enumerate(("0", "0", "4660", "22136")):
        folder = tmp_path / "sys/class/kfd/kfd/topology/nodes" / str(node)
        folder.mkdir(parents=True)
        (folder / "gpu_id").write_text(gpu_id + "\n")
    assert visible_gpus({}, str(tmp_path)) == 2


def test_nothing_known_is_none_and_not_zero(tmp_path: Path) -> None:
    assert visible_gpus({}, str(tmp_path)) is None


# Which GPUs of its node a task sees, and what can be done where that is one.


def host(root: Path, gpus: int, kind: str = "dev/nvidia") -> str:
    """Make a host's device files, with some that are no GPU's."""
    for name in (*(f"{kind}{number}" for number in range(gpus)), "dev/nvidiactl", "dev/nvidia-uvm", "dev/null"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return str(root)


def seen(
    root: str, environ: dict[str, str], *, tasks: int = 4, granted: int | None = 4, asked: bool = True
) -> GpuBinding:
    """Return how the second task of the node sees its GPUs."""
    return gpu_binding(environ, 1, tasks, granted, asked=asked, root=root)


@pytest.mark.parametrize("value", ["1", "0", " 1 "])
def test_a_task_that_sees_one_gpu_sees_all_of_the_nodes(tmp_path: Path, value: str) -> None:
    """Under its number on the host, or, behind the job's device cgroup, under its number there."""
    names = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK")
    found = seen(host(tmp_path, 4), {**dict.fromkeys(names, value), "SLURM_STEP_GPUS": "1"})
    assert found == GpuBinding(dict.fromkeys(names, "0,1,2,3"))


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
    assert seen(host(tmp_path, 4), {"CUDA_VISIBLE_DEVICES": "1"}, asked=False) == GpuBinding(
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


# Asking devices in a child: who is waited for, and for how long.


SPINS_S, ANSWER_S = 0.4, 0.05


def test_a_child_that_gets_no_processor_is_not_taken_for_a_device_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has longer; one that waits for anything else has not."""
    monkeypatch.setattr(devices, "ANSWER_S", ANSWER_S)
    monkeypatch.setattr(devices, "BUSY_S", 30.0)  # other tests may have the processors
    here = os.getpid()

    def asked(path: str) -> str:
        if os.getpid() == here:
            return read_attribute(path)
        if path == "hangs":
            time.sleep(60)
        end = time.process_time() + SPINS_S
        while time.process_time() < end:
            pass
        return path

    monkeypatch.setattr(devices, "read_attribute", asked)
    assert devices.read_in_child(["works"]) == {"works": "works"}
    began = time.monotonic()
    assert devices.read_in_child(["hangs"]) is None
    assert time.monotonic() - began < 30


def port(root: Path, device: str, number: int, state: str, layer: str | None) -> None:
    folder = root / device / "ports" / str(number)
    folder.mkdir(parents=True)
    (folder / "state").write_text(state + "\n")
    if layer:
        (folder / "link_layer").write_text(layer + "\n")


def test_active_ports_are_listed_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for device in ("mlx5_10", "mlx5_2", "mlx5_0"):
        port(tmp_path, device, 1, "4: ACTIVE", "InfiniBand")
    assert [name for name, _ in active_rdma_ports(str(tmp_path))] == ["mlx5_0:1", "mlx5_2:1", "mlx5_10:1"]


def test_ports_that_are_not_active_are_left_out(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", 1, "1: DOWN", "InfiniBand")
    port(tmp_path, "mlx5_0", 2, "4: ACTIVE", "InfiniBand")
    port(tmp_path, "mlx5_1", 1, "2: INIT", "InfiniBand")
    assert active_rdma_ports(str(tmp_path)) == (("mlx5_0:2", "InfiniBand"),)


def test_the_link_layer_tells_roce_from_infiniband(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", 1, "4: ACTIVE", "Ethernet")
    port(tmp_path, "qib0", 1, "4: ACTIVE", None)
    assert active_rdma_ports(str(tmp_path)) == (("mlx5_0:1", "Ethernet"), ("qib0:1", "InfiniBand"))


def test_a_device_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", 1, "4: ACTIVE", "InfiniBand")
    (tmp_path / "mlx5_0/ports/2").mkdir()
    os.mkfifo(tmp_path / "mlx5_0/ports/2/state")
    assert active_rdma_ports(str(tmp_path)) is None


def test_a_host_without_rdma_devices_has_no_ports(tmp_path: Path) -> None:
    assert active_rdma_ports(str(tmp_path / "absent")) == ()
