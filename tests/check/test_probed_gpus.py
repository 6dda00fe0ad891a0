"""What a host says of its GPUs, read from a tree that is made up."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mingle_hooks.check import facts as gpus

if TYPE_CHECKING:
    from pathlib import Path

CARD = "sys/bus/pci/devices/0000:17:00.0"


def tree(root: Path, **files: str | bytes) -> str:
    """Make files by path, and return the root."""
    for path, text in {f"{CARD}/vendor": "0x10de\n", f"{CARD}/class": "0x030200\n", **files}.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(root)


def test_a_healthy_one_says_nothing(tmp_path: Path) -> None:
    """Nor does a host without any."""
    root = tree(tmp_path, **{f"{CARD}/config": b"\xde\x10\x30\x23", f"{CARD}/aer_dev_fatal": "TOTAL_ERR_FATAL 0\n"})
    assert (gpus.has_gpu(root), gpus.gpu_faults(root)) == (True, [])
    assert (gpus.has_gpu(str(tmp_path / "none")), gpus.gpu_faults(str(tmp_path / "none"))) == (False, [])


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    """Off the bus, errors of PCIe and of memory, the last Xid, and who else has it open."""
    other = "sys/bus/pci/devices/0000:18:00.0"
    root = tree(
        tmp_path,
        **{
            f"{CARD}/config": b"\xff\xff\xff\xff",
            f"{other}/vendor": "0x1002\n",
            f"{other}/class": "0x120000\n",
            f"{other}/aer_dev_fatal": "DLP 0\nTOTAL_ERR_FATAL 3\n",
            "sys/class/drm/card1/device/ras/umc_err_count": "ue: 2\nce: 7\n",
            "sys/class/kfd/kfd/proc/41/vram_1": "1\n",
            "proc/41/comm": "python\n",
            "proc/42/comm": "train\n",
            "proc/43/comm": "nvidia-persiste\n",
        },
    )
    for pid, device in (("42", "/dev/nvidia3"), ("43", "/dev/nvidia3")):
        (tmp_path / "proc" / pid / "fd").mkdir()
        (tmp_path / "proc" / pid / "fd" / "7").symlink_to(device)
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/kmsg")
    with (tmp_path / "dev/kmsg").open("r+b", buffering=0) as log:
        log.write(b"6,1,1,-;NVRM: Xid (PCI:0000:17:00): 79, pid=1, GPU has fallen off the bus.\n")
        found = gpus.gpu_faults(root)
    assert found == [
        "GPU 0000:17:00.0 has fallen off the bus",
        "GPU 0000:18:00.0: 3 PCIe errors (fatal)",
        "GPU card1: 2 uncorrected errors (umc)",
        "GPU 0000:17:00: Xid 79, pid=1, GPU has fallen off the bus.",
        "process 41 (python) of root has kfd open",
        "process 42 (train) of root has nvidia3 open",
    ]
