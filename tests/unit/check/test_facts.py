"""What a host has and has counted, deadlines that count running time only, and calls that may hang."""

import os
import time
from collections.abc import Callable
from ipaddress import ip_interface
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.gathering import PATIENCE_S, Clock, until
from support.running import children

from mingle_hooks.check import facts, gpus
from mingle_hooks.check.facts import POLL_S, ActiveDeadline, ChildCall
from mingle_hooks.check.report import Address
from mingle_hooks.errors import NetworkError
from mingle_hooks.net.addresses import Interface
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


def test_the_addresses_of_a_host_and_those_for_its_guests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With what the kernel says of their interfaces, or why there are none."""
    for path, text in {"e0/mtu": "9000\n", "e0/address": "02:00\n", "e0/bridge/x": "", "e1/mtu": "-"}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    ends = {"e0": ("10.0.0.1/24",), "e1": ("10.0.1.1/8",), "docker0": ("172.17.0.1/16", "169.254.0.1/16")}
    kinds: dict[str, Any] = {"docker0": "virtual"}
    found = [
        Interface(name, 2, kinds.get(name, "ethernet"), 1000, up=True, addresses=tuple(map(ip_interface, its)))
        for name, its in ends.items()
    ]
    monkeypatch.setattr(facts, "_NET", str(tmp_path))
    monkeypatch.setattr(facts.addresses, "interfaces", lambda: found)
    one = Address("e0", "bridge", "10.0.0.1", 24, 9000, 1000, 0, mac="02:00")
    two = Address("e1", "ethernet", "10.0.1.1", 8, None, 1000, 0)
    guests = (("docker0", "172.17.0.1"),)
    assert facts.reachable_addresses(()) == ((one, two), guests, "")
    del found[:2]
    none = facts.reachable_addresses(())
    assert (none[:2], none[2].startswith("expected ")) == (((), guests), True)


def test_what_the_kernel_says_of_ports_and_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or does not say."""
    for text, expected in (("1024\t65535", (1024, 65_535)), ("", (32_768, 60_999))):
        monkeypatch.setattr(facts, "read_attribute", lambda _path, text=text: text)
        assert facts.ephemeral_ports() == expected
    listed = [SimpleNamespace(address=ip) for ip in ("127.0.0.1", "10.0.0.1", "::1", "fd00::1")]
    monkeypatch.setattr(facts, "list_addresses", lambda: listed)
    assert facts.all_addresses() == ["10.0.0.1", "fd00::1"]
    monkeypatch.setattr(facts, "list_addresses", lambda: raised(NetworkError("a", "b", "c")))
    assert facts.all_addresses() == []
    monkeypatch.setattr("socket.gethostname", lambda: "h" * 300)
    assert facts.own_facts({})["hostname"] == "h" * 252 + "…"


def raised(error: Exception) -> Any:
    raise error


def test_which_directories_need_space(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each once, and no file system that is as it is; a home may be read-only by intent."""
    monkeypatch.chdir(tmp_path)
    for home, places in (("/", ()), ("home", ()), ("/home//a", ("/home/a",))):
        assert facts.space_places({"TMPDIR": "/tmp/", "HOME": home}) == ("/dev/shm", "/tmp", *places, str(tmp_path))  # noqa: S108
    assert facts.space_of(str(tmp_path / "none")) == []
    found = SimpleNamespace(f_bavail=2, f_frsize=1 << 20, f_blocks=10, f_files=0, f_favail=0, f_flag=os.ST_RDONLY)
    monkeypatch.setattr(os, "statvfs", lambda _path: found)
    assert facts.space_of("/home") == [2, 10]


def test_names_are_looked_up_four_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once; after an error, or the end, no more of them."""
    begun: dict[str, Callable[..., None]] = {}
    closed: list[str] = []

    def look(_loop: Loop, name: str, on_result: Callable[..., None]) -> Any:
        if name == "none":
            raise OSError
        begun[name] = on_result
        return SimpleNamespace(close=lambda: closed.append(name))

    monkeypatch.setattr(facts, "Lookup", look)
    loop: Any = None
    names = facts.NameLookups(loop, tuple("abacdef"))
    assert [*begun] == [*"abcd"]
    begun["b"]("b", ["10.0.0.2"])
    assert ([*begun], names.found, names.is_done) == ([*"abcde"], {"b": ["10.0.0.2"]}, False)
    names.close()
    for name in "acde":
        assert not names.is_done
        begun[name](name, [])
    assert (names.is_done, [*begun], closed) == (True, [*"abcde"], [*"acde"])
    assert (facts.NameLookups(loop, ("none", "f")).is_done, "f" in begun) == (True, False)


def test_a_long_answer_of_a_host_that_stood_still_is_taken() -> None:
    """It may take ten times as long by the clock."""
    clock, answers, before = Clock(), [], set(children())
    with Loop(clock) as loop:
        ChildCall(loop, lambda: [time.sleep(0.05), "x" * 200_000], 5.0, answers.append)
        clock.ahead += 30
        until(loop, lambda: answers and set(children()) <= before)
    assert answers == [[None, "x" * 200_000]]


@pytest.mark.parametrize("is_silent", [False, True])
def test_what_may_hang_is_read_in_children(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_silent: bool) -> None:
    """Directories keep their order, and one that is not there has no row."""
    calls: list[tuple[Callable[[], object], float, Callable[[object], None]]] = []
    spaces = {"/far": [1, 2], "/none": [], "/near": [3, 4]}
    made = {
        "ChildCall": lambda _loop, *its: calls.append(its),
        "own_amounts": lambda: [("cores", 1)],
        "space_places": lambda _environ: (*spaces,),
        "network_type": lambda path: path == "/far",
        "space_of": lambda path: spaces[path],
        "file_system": lambda path: "ext4" if path == "/scratch" else "tmpfs",
        "write_time": lambda path: [(path, 7)],
        "rdma_errors": lambda: [("errors", 3)],
    }
    for name, its in made.items():
        monkeypatch.setattr(facts, name, its)
    monkeypatch.setattr(facts.devices, "RDMA", str(tmp_path))
    monkeypatch.setattr(gpus, "has_gpu", lambda: True)
    monkeypatch.setattr(gpus, "gpu_state", lambda: ([f"process {n} (a) has b" for n in range(20)], {"gpus.PCIe": "x"}))
    monkeypatch.setattr(gpus, "nvml_state", lambda _environ: (["process 0 (a) has c"], {"gpus.NVML": "ok"}))
    told: list[bool] = []
    loop: Any = None
    known = facts.DeviceFacts(loop, {"TMPDIR": "/scratch"}, lambda: told.append(known.is_known))
    rows = [{"path": "/far", "free_mb": None, "total_mb": None}, {"path": "/near", "free_mb": 3, "total_mb": 4}]
    assert (known.is_known, known.spaces, known.faults, {limit_s for _, limit_s, _ in calls}) == (
        False,
        rows,
        [],
        {1.0},
    )
    for function, _, take in calls:
        take(None if is_silent else function())
    assert told == [False, False, False, False, True]
    if is_silent:
        assert known.faults == ["its GPUs did not report their state within 1 s"]
        assert (known.amounts, known.parts) == ([("cores", 1), (facts.WRITE_MS, 1000)], gpus.NVML_IS_SILENT[1])
    else:
        rows[0] |= {"free_mb": 1, "total_mb": 2}
        assert known.faults == [f"process {n} (a) has b" for n in range(16)]
        assert (known.amounts, known.parts) == (
            [("cores", 1), ("errors", 3), ("/scratch", 7)],
            {"gpus.PCIe": "x", "gpus.NVML": "ok"},
        )
    assert known.spaces == rows
