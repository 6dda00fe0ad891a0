from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mingle_hooks.net.devices import visible_gpus

if TYPE_CHECKING:
    from pathlib import Path


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
