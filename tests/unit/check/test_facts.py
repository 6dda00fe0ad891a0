"""What a host says of its GPUs, deadlines that count running time only, and calls that may hang."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

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


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def waited(clock: Clock, deadline: ActiveDeadline, *passed_s: float) -> ActiveDeadline:
    """Look after each of these seconds."""
    for its in passed_s:
        clock.now += its
        deadline.look()
    return deadline


def test_where_looks_are_in_time_it_lasts_as_long_as_it_says() -> None:
    """And nothing was late."""
    clock = Clock()
    deadline = waited(clock, ActiveDeadline(clock, 1.0, 60.0), *[POLL_S] * 49)
    assert not deadline.is_over
    waited(clock, deadline, POLL_S, POLL_S)
    assert (deadline.has_lasted, deadline.is_over, deadline.late_s) == (True, True, 0.0)


def test_time_in_which_nothing_ran_does_not_count() -> None:
    """After a stop it goes on for nearly as long as without one, and says how long that was."""
    clock = Clock()
    deadline = waited(clock, ActiveDeadline(clock, 1.0, 60.0), 10.0, *[POLL_S] * 40)
    assert not deadline.is_over
    assert 9.9 < deadline.late_s < 10.0
    assert waited(clock, deadline, *[POLL_S] * 10).has_lasted


def test_by_the_clock_it_ends_some_time_and_has_not_lasted_then() -> None:
    """What did not come in so little time says nothing."""
    clock = Clock()
    deadline = waited(clock, ActiveDeadline(clock, 1.0, 5.0), 2.0, 2.9)
    assert not deadline.is_over
    waited(clock, deadline, 0.2)
    assert (deadline.is_over, deadline.has_lasted) == (True, False)


def test_it_lasts_as_long_as_it_says_where_there_is_no_more_time() -> None:
    """A limit by the clock that is shorter is none."""
    clock = Clock()
    assert not waited(clock, ActiveDeadline(clock, 1.0, 0.0), *[POLL_S] * 40).is_over


LIMIT_S = 30.0  # a bound on what hangs, not a measure


def until(loop: Loop, holds: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    loop.run(lambda: bool(holds()) or time.monotonic() > end)
    assert holds()


def children() -> set[str]:
    """Return this process's children, whichever of its threads made them."""
    return {pid for its in Path("/proc/self/task").iterdir() for pid in (its / "children").read_text().split()}


def test_a_question_that_hangs_is_left_behind() -> None:
    """And one that fails is no answer."""
    with Loop() as loop:
        answers: list[object] = []
        before = children()
        ChildCall(loop, lambda: {"free": 1}, LIMIT_S, answers.append)
        until(loop, lambda: answers)
        ChildCall(loop, lambda: time.sleep(3 * LIMIT_S), 0.05, answers.append)
        until(loop, lambda: len(answers) == 2)
        ChildCall(loop, object, LIMIT_S, answers.append)
        until(loop, lambda: len(answers) == 3)
        assert answers == [{"free": 1}, None, None]
        until(loop, lambda: children() <= before)
