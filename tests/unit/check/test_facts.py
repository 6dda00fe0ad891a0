"""What a host has and has counted, deadlines that count running time only, and calls that may hang."""

import os
import time
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.gathering import PATIENCE_S, until
from support.running import children

from mingle_hooks.check import facts, gpus
from mingle_hooks.check.facts import POLL_S, ActiveDeadline, ChildCall
from mingle_hooks.rendezvous.connection import Loop

PORTS = "sys/class/infiniband/mlx5_0/ports"


def test_what_a_host_has_and_has_counted(tmp_path: Path) -> None:
    """The most errors of a port count; where nothing can be read there is nothing to compare."""
    files = {
        f"{PORTS}/1/counters/symbol_error": "7\n",
        f"{PORTS}/2/counters/symbol_error": "9\n",
        f"{PORTS}/1/state": "",
    }
    for path, text in {**files, "proc/meminfo": "MemTotal:       2113420340 kB\nMemFree: 1 kB\n"}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert dict(facts.own_amounts(str(tmp_path))) == {"cores": os.cpu_count(), "MiB of memory": 2063887}
    assert facts.rdma_errors(str(tmp_path)) == [("symbol errors", 9)]
    (took,) = facts.write_time(str(tmp_path))
    assert (took[0], list(tmp_path.glob("*.tmp"))) == ("ms to write 1 MiB of scratch", [])
    empty = str(tmp_path / "none")
    assert (len(facts.own_amounts(empty)), facts.rdma_errors(empty), facts.write_time(empty)) == (1, [], [])


def test_space_without_a_free_inode_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that has no inodes has space all the same, and scratch that is read-only has none."""
    for inodes, free, flags, expected in ((5, 1, 0, 2), (5, 0, 0, 0), (0, 0, 0, 2), (5, 1, os.ST_RDONLY, 0)):
        found = SimpleNamespace(f_bavail=2, f_frsize=1 << 20, f_blocks=10, f_files=inodes, f_favail=free, f_flag=flags)
        monkeypatch.setattr(os, "statvfs", lambda _path, found=found: found)
        assert facts.space_of(facts.SHM) == [expected, 10]


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


def test_a_driver_that_hangs_is_compared_with_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may only start slowly on all hosts; what else is known of the GPUs is kept."""
    monkeypatch.setattr(facts, "_DEVICE_LIMIT_S", 0.5)  # time enough to look at the rest
    monkeypatch.setattr(gpus, "has_gpu", lambda: True)
    monkeypatch.setattr(gpus, "gpu_state", lambda: (["process 9 (a) of b has kfd open", "GPU 0: Xid 79"], {}))
    monkeypatch.setattr(gpus, "nvml_state", lambda _environ: time.sleep(3 * PATIENCE_S))
    before = set(children())
    with Loop() as loop:
        known = facts.DeviceFacts(loop, {}, lambda: None)
        until(loop, lambda: known.is_known and set(children()) <= before)
    assert (known.faults, known.parts) == (["process 9 (a) of b has kfd open", "GPU 0: Xid 79"], gpus.NVML_IS_SILENT[1])
