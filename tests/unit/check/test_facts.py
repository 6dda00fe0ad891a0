"""What a host says of its GPUs, deadlines that count running time only, and calls that may hang."""

import os
import time
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.gathering import PATIENCE_S, until
from support.running import children

from mingle_hooks.check import facts as gpus
from mingle_hooks.check.facts import POLL_S, ActiveDeadline, ChildCall
from mingle_hooks.rendezvous.connection import Loop

CARD = "sys/bus/pci/devices/0000:17:00.0"


def tree(root: Path, **files: str | bytes) -> str:
    """Make files by path, and return the root."""
    for path, text in {f"{CARD}/vendor": "0x10de\n", f"{CARD}/class": "0x030200\n", **files}.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(root)


def test_a_healthy_gpu_has_no_faults(tmp_path: Path) -> None:
    """Nor does a host without any."""
    root = tree(tmp_path, **{f"{CARD}/config": b"\xde\x10\x30\x23", f"{CARD}/aer_dev_fatal": "TOTAL_ERR_FATAL 0\n"})
    assert (gpus.has_gpu(root), gpus.gpu_faults(root)) == (True, [])
    assert gpus.has_gpu(tree(tmp_path / "off", **{f"{CARD}/vendor": "", "proc/driver/nvidia/gpus/0": ""}))
    assert (gpus.has_gpu(str(tmp_path / "none")), gpus.gpu_faults(str(tmp_path / "none"))) == (False, [])
    for name, text in (("vendor", "0x8086\n"), ("class", "0x040300\n")):  # another's, and a GPU's sound
        assert not gpus.has_gpu(tree(tmp_path / name, **{f"{CARD}/{name}": text}))


def test_space_without_a_free_inode_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that has no inodes has space all the same."""
    for inodes, free, expected in ((5, 1, [2, 10]), (5, 0, [0, 10]), (0, 0, [2, 10])):
        found = SimpleNamespace(f_bavail=2, f_frsize=1 << 20, f_blocks=10, f_files=inodes, f_favail=free)
        monkeypatch.setattr(os, "statvfs", lambda _path, found=found: found)
        assert gpus.space_of("/") == expected


def test_each_fault_of_a_gpu_is_one_line(tmp_path: Path) -> None:
    """Off the bus, errors of PCIe and of memory, the last Xid, and who else has it open."""
    other = "sys/bus/pci/devices/0000:18:00.0"
    root = tree(
        tmp_path,
        **{
            f"{CARD}/config": b"\xff\xff\xff\xff",
            f"{other}/vendor": "0x1002\n",
            f"{other}/class": "0x120000\n",
            f"{other}/aer_dev_fatal": "Undefined 0\nDLP 0\n" * 20 + "TOTAL_ERR_FATAL 3\n",
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


@pytest.mark.parametrize(
    ("most_s", "passed_s", "is_over", "has_lasted", "late_s"),
    [
        (60.0, [POLL_S] * 49, False, False, 0.0),
        (60.0, [POLL_S] * 51, True, True, 0.0),
        # It does not run for 10 s: then it goes on for nearly as long as without that.
        (60.0, [10.0, *[POLL_S] * 40], False, False, 10.0 - 2 * POLL_S),
        (60.0, [10.0, *[POLL_S] * 50], True, True, 10.0 - 2 * POLL_S),
        # By the clock it ends some time, and has not lasted then.
        (5.0, [2.0, 2.9], False, False, 4.9 - 4 * POLL_S),
        (5.0, [2.0, 2.9, 0.2], True, False, 5.1 - 6 * POLL_S),
        # A limit by the clock that is shorter is none.
        (0.0, [POLL_S] * 40, False, False, 0.0),
        (0.0, [POLL_S] * 51, True, True, 0.0),
    ],
)
def test_a_deadline_counts_the_time_in_which_the_process_ran(
    most_s: float, passed_s: list[float], late_s: float, *, is_over: bool, has_lasted: bool
) -> None:
    """Of one second, looked at after each of these seconds."""
    times = accumulate(passed_s, initial=100.0)
    deadline = ActiveDeadline(lambda: next(times), 1.0, most_s)
    for _ in passed_s:
        deadline.look()
    assert (deadline.is_over, deadline.has_lasted, deadline.late_s) == (is_over, has_lasted, pytest.approx(late_s))


def test_a_question_that_hangs_is_left_behind() -> None:
    """And one that fails is no answer."""
    with Loop() as loop:
        answers: list[object] = []
        before = set(children())
        ChildCall(loop, lambda: {"free": 1}, PATIENCE_S, answers.append)
        until(loop, lambda: answers)
        ChildCall(loop, lambda: time.sleep(3 * PATIENCE_S), 0.05, answers.append)
        until(loop, lambda: len(answers) == 2)
        ChildCall(loop, object, PATIENCE_S, answers.append)
        until(loop, lambda: len(answers) == 3)
        assert answers == [{"free": 1}, None, None]
        until(loop, lambda: set(children()) <= before)
