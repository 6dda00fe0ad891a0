"""What a host has and has counted, deadlines that count running time only, calls that may hang, and GPUs."""

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from ipaddress import ip_interface
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from support import fake_pynvml
from support.check_reports import bad, fingerprint, report
from support.gathering import PATIENCE_S
from support.needs import only_with
from support.running import children

from mingle_hooks.check import facts
from mingle_hooks.check.facts import POLL_S, ActiveDeadline
from mingle_hooks.check.report import Address, Space
from mingle_hooks.errors import NetworkError
from mingle_hooks.net.addresses import Interface
from mingle_hooks.rendezvous.connection import Loop

PORTS = "sys/class/infiniband/mlx5_0/ports"


def tree(root: Path, **files: str | bytes) -> str:
    """Make files by path, and return the root."""
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(root)


def test_what_a_host_has_and_has_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The most errors of a port count; where nothing can be read there is nothing to compare."""
    files = {f"{PORTS}/1/counters/symbol_error": "7\n", f"{PORTS}/2/counters/symbol_error": "9\n"}
    root = tree(tmp_path, **files, **{"proc/meminfo": "MemTotal:       2113420340 kB\nMemFree: 1 kB\n"})
    assert dict(facts.own_amounts(root)) == {"cores": os.cpu_count(), "MiB of memory": 2063887}
    assert facts.rdma_errors(root) == [("symbol errors", 9)]
    monkeypatch.setattr(facts, "file_system", lambda path: "tmpfs" if path == "memory" else "ext4")
    assert facts.write_time("memory") == []
    (took,) = facts.write_time(root)
    assert (took[0], list(tmp_path.glob("*.tmp"))) == ("ms to write 1 MiB of scratch", [])
    empty = str(tmp_path / "none")
    assert (len(facts.own_amounts(empty)), facts.rdma_errors(empty), facts.write_time(empty)) == (1, [], [])


def test_how_much_space_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none without an inode, nor in scratch that is read-only; a home may be read-only by intent."""
    for path, blocks, inodes, favail, flags, space in (
        (facts.SHM, 10, 5, 1, 0, [2, 10]),
        (facts.SHM, 10, 5, 0, 0, [0, 10]),
        (facts.SHM, 10, 0, 0, 0, [2, 10]),  # a file system that has no inodes
        (facts.SHM, 10, 5, 1, os.ST_RDONLY, [0, 10]),
        ("/home", 10, 0, 0, os.ST_RDONLY, []),
        ("/sys", 0, 0, 0, 0, []),
    ):
        its = {"f_bavail": 2, "f_frsize": 1 << 20, "f_blocks": blocks, "f_files": inodes, "f_favail": favail}
        monkeypatch.setattr(os, "statvfs", mock.Mock(return_value=SimpleNamespace(**its, f_flag=flags)))
        assert facts.space_of(path) == space, (path, inodes, favail, flags)


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
    """The deadline is after one second, and is looked at after each of these intervals."""
    times = accumulate(passed_s, initial=100.0)
    deadline = ActiveDeadline(lambda: next(times), 1.0, most_s)
    for _ in passed_s:
        deadline.look()
    assert (deadline.is_over, deadline.has_lasted, deadline.late_s) == (is_over, has_lasted, pytest.approx(late_s))


def test_a_call_in_a_child_that_hangs_or_fails_has_no_result() -> None:
    """A long result is taken whole, and the limit is of time in which this process ran."""
    there, here = os.pipe()  # as the pipe of a starter that waits for the end of a probe's output
    calls: dict[str, tuple[Callable[[], object], Any]] = {
        "hangs": (lambda: time.sleep(3 * PATIENCE_S), 1),
        "fails": (object, 2),
        "long": (lambda: [time.sleep(0.05), "x" * 200_000], 3),
    }
    steps = accumulate([0.0, 15.0, *[POLL_S] * 10_000])
    before = children()  # what the session's fixtures have started
    with mock.patch.object(os, "kill") as kill:
        found = facts.call_in_children(calls, 2.0, lambda: next(steps))
    assert found == {"hangs": 1, "fails": 2, "long": [None, "x" * 200_000]}
    os.close(here)
    assert select.select([there], [], [], PATIENCE_S)[0], "a child that cannot be killed holds nothing open"
    os.close(there)
    (killed,) = children().keys() - before.keys()
    assert kill.call_args_list == [mock.call(killed, signal.SIGKILL)]
    os.kill(*kill.call_args.args)
    assert os.waitstatus_to_exitcode(os.waitpid(killed, 0)[1]) == -signal.SIGKILL


def test_the_addresses_of_a_host_and_those_for_its_guests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each has what the kernel says of its interface; the reason is known where there is none."""
    tree(tmp_path, **{"e0/mtu": "9000\n", "e0/address": "02:00\n", "e0/bridge/x": "", "e1/mtu": "-"})
    ends = {"e0": ("10.0.0.1/24",), "e1": ("10.0.1.1/8",), "docker0": ("172.17.0.1/16", "169.254.0.1/16")}
    ends["lo"] = ("127.0.0.1/8", "::1/128")
    kinds: dict[str, Any] = {"docker0": "virtual", "lo": "loopback"}
    found = [
        Interface(name, 2, kinds.get(name, "ethernet"), 1000, up=True, addresses=tuple(map(ip_interface, its)))
        for name, its in ends.items()
    ]
    monkeypatch.setattr(facts, "_NET", str(tmp_path))
    monkeypatch.setattr(facts.addresses, "interfaces", lambda: found)
    one = Address("e0", "bridge", "10.0.0.1", 24, 9000, 1000, 0, mac="02:00")
    two = Address("e1", "ethernet", "10.0.1.1", 8, None, 1000, 0)
    guests, every = (("docker0", "172.17.0.1"),), ("10.0.0.1", "10.0.1.1", "172.17.0.1", "169.254.0.1")
    assert facts.own_network(None) == ((one, two), guests, every, "", ())
    assert [end.iface for end in facts.own_network("e1").addresses] == ["e1"]
    del found[:2]
    none = facts.own_network(None)
    assert (none[:3], none.trouble.startswith("expected ")) == (((), guests, every[2:]), True)
    mistyped = facts.own_network("10.0.0.0/99")
    assert (mistyped[:3], "10.0.0.0/99" in mistyped.trouble, mistyped.prefer) == (none[:3], True, ())
    monkeypatch.setattr(facts.addresses, "interfaces", lambda: raised(NetworkError("a", "b", "c")))
    assert facts.own_network(None) == facts.OwnNetwork(trouble="expected a, saw b")
    monkeypatch.setattr("socket.gethostname", lambda: "h" * 300)
    assert facts.own_facts({})["hostname"] == "h" * 252 + "…"


def raised(error: Exception) -> Any:
    raise error


def test_which_directories_need_space(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each is listed once; a relative path and the root directory are left out."""
    monkeypatch.chdir(tmp_path)
    for home, places in (("/", ()), ("home", ()), ("/home//a", ("/home/a",))):
        assert facts.space_places({"TMPDIR": "/tmp/", "HOME": home}) == ("/dev/shm", "/tmp", *places, str(tmp_path))  # noqa: S108
    assert facts.space_of(str(tmp_path / "none")) == []
    (tmp_path / "removed").mkdir()
    monkeypatch.chdir(tmp_path / "removed")
    (tmp_path / "removed").rmdir()
    assert [row["path"] for row in facts.own_facts({})["spaces"]] == ["/dev/shm", "/tmp"]  # noqa: S108


def test_names_are_looked_up_four_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name is looked up once; after an error or the end, no more are."""
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


@pytest.mark.parametrize("is_silent", [False, True])
def test_what_may_hang_is_read_in_children(monkeypatch: pytest.MonkeyPatch, *, is_silent: bool) -> None:
    """Directories keep their order, and one that is not there has no row."""

    def call(calls: dict[str, tuple[Callable[[], object], Any]], limit_s: float) -> dict[str, object]:
        assert limit_s == 1.0
        return {name: silent if is_silent else function() for name, (function, silent) in calls.items()}

    spaces = {"/far": [1, 2], "/none": [], "/near": [3, 4]}
    made = {
        "call_in_children": call,
        "own_amounts": lambda: [("cores", 1)],
        "space_places": lambda _environ: (*spaces,),
        "space_of": lambda path: spaces[path],
        "write_time": lambda path: [(path, 7)],
        "rdma_errors": lambda: [("errors", 3)],
        "has_gpu": lambda: True,
        "gpu_state": lambda: (["process 0 (a) has b", "b"], {"gpus.PCIe": "x"}),
        "nvml_state": lambda _environ: (["process 0 (a) has c"], {"gpus.NVML": "ok"}),
    }
    for name, its in made.items():
        monkeypatch.setattr(facts, name, its)
    found, parts = facts.device_facts({"TMPDIR": "/scratch"})
    rows = [Space("/far", 1, 2), Space("/near", 3, 4)]
    amounts, faults = [("cores", 1), ("errors", 3), ("/scratch", 7)], ["process 0 (a) has b", "b"]
    expected = {"gpus.PCIe": "x", "gpus.NVML": "ok"}
    if is_silent:
        rows, amounts = [Space(path, None, None) for path in spaces], [("cores", 1), (facts.WRITE_MS, 1000)]
        faults, expected = ["its GPUs did not report their state within 1 s"], facts.NVML_IS_SILENT[1]
    assert (found, parts) == (
        {"spaces": [row._asdict() for row in rows], "amounts": amounts, "faults": faults},
        expected,
    )


# GPUs, by files as a host with GPUs has them, and by a driver that is made up.

ME = facts._owner("/proc/self")  # a user of a container may have no name
CARD = "sys/bus/pci/devices/0000:17:00.0"


def gpu_tree(root: Path, **files: str | bytes) -> str:
    """Make a GPU, and files by path; return the root."""
    return tree(root, **{f"{CARD}/vendor": "0x10de\n", f"{CARD}/class": "0x030200\n", **files})


def test_a_healthy_gpu_has_no_faults(tmp_path: Path) -> None:
    """A host without a GPU has no faults either. Services may have it open, and a check's own probes."""
    gpu = {f"{CARD}/config": b"\xde\x10\x30\x23", f"{CARD}/aer_dev_fatal": "TOTAL_ERR_FATAL 0\n"}
    memory = {"umc": "ce: 7\nue: 0\n", "xgmi": "none\n"}
    root = gpu_tree(
        tmp_path,
        **gpu,
        **{f"sys/class/drm/card1/device/ras/{name}_err_count": text for name, text in memory.items()},
        **{"sys/class/drm/card1/device/ras/features": "ue: 3\n"},
        **{"sys/class/drm/card1-DP-1/device/ras/umc_err_count": "ue: 4\n"},
        **{"proc/9900003/comm": "nvidia-persiste\n", "proc/9900004/comm": "python\n"},
        **{"proc/9900004/cmdline": "/usr/bin/python3\0-I\0/opt/lib/mingle_hooks/__main__.py\0probe\0"},
    )
    for pid in ("9900003", "9900004"):
        (tmp_path / "proc" / pid / "fd").mkdir()
        (tmp_path / "proc" / pid / "fd" / "7").symlink_to("/dev/nvidia3")
    assert (facts.has_gpu(root), facts.gpu_state(root)) == (True, ([], {}))
    assert (facts.has_gpu(str(tmp_path / "none")), facts.gpu_state(str(tmp_path / "none"))) == (False, ([], {}))
    for name, text in (("vendor", "0x8086\n"), ("class", "0x040300\n")):  # another's, and a GPU's sound
        assert not facts.has_gpu(gpu_tree(tmp_path / name, **{f"{CARD}/{name}": text}))


def test_the_sum_of_pcie_errors_counts_and_the_state_of_a_lost_gpu_does_not(tmp_path: Path) -> None:
    """Of AMD's, too, which are accelerators; every process that has one open is named once, with all of them."""
    other = "sys/bus/pci/devices/0000:18:00.0"
    root = gpu_tree(
        tmp_path,
        **{f"{CARD}/config": b"\xff\xff\xff\xff", f"{CARD}/aer_dev_fatal": "TOTAL_ERR_FATAL 3\n"},
        **{f"{other}/vendor": "0x1002\n", f"{other}/class": "0x120000\n"},
        **{f"{other}/aer_dev_fatal": "Undefined 0\nDLP 0\n" * 20 + "TOTAL_ERR_FATAL 3\n"},
        **{"sys/class/kfd/kfd/proc/9900002/vram_1": "1\n", "proc/9900002/comm": "train\n"},
    )
    (tmp_path / "proc/9900002/fd").mkdir()
    (tmp_path / "proc/9900002/fd/7").symlink_to("/dev/nvidia3")
    found, _ = facts.gpu_state(root)
    assert found == [
        "GPU 0000:17:00.0 has fallen off the bus",
        "GPU 0000:18:00.0: 3 PCIe errors (fatal)",
        f"process 9900002 (train) of {ME} has kfd, nvidia3 open",
    ]


def test_the_link_of_a_gpu_is_as_wide_as_now_and_as_fast_as_its_slot(tmp_path: Path) -> None:
    """An idle GPU lowers its speed, so the current one does not count."""
    for width, card, slot, link in (
        ("16", "32.0 GT/s PCIe", "32.0 GT/s PCIe", "gen5 x16"),
        ("8", "16.0 GT/s PCIe", "8 GT/s", "gen3 x8"),
        ("16", "16.0 GT/s PCIe", "", "gen4 x16"),
        ("", "16.0 GT/s PCIe", "", None),
        ("63", "Unknown", "Unknown", None),
    ):
        files = {"vendor": "0x1002\n", "current_link_width": width, "max_link_speed": card, "../max_link_speed": slot}
        root = gpu_tree(tmp_path, **{f"{CARD}/{name}": text for name, text in files.items()})
        assert facts.gpu_state(root) == ([], {"gpus.PCIe": link} if link else {})


SOUND = {"gpus.PCIe": "gen5 x16", "gpus.power": "700 W", "gpus.ECC": "on", "gpus.NVLinks": "18"}
RESET, UNSUPPORTED, FORBIDDEN = ({"error": number} for number in (16, 3, 4))
OPTIONAL = ("EccMode", "NvLinkState", "RemappedRows", "PowerManagementLimit", "CurrentClocksThrottleReasons")
OPTIONAL += ("MaxPcieLinkGeneration", "CurrPcieLinkWidth", "ComputeRunningProcesses")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Make NVML answer for four GPUs, of which the second may differ."""
    monkeypatch.setitem(sys.modules, "pynvml", fake_pynvml)
    monkeypatch.setattr(fake_pynvml, "DRIVER", tmp_path)

    def make(**second: Any) -> None:
        for name, content in {"count": 4, "1.json": second}.items():
            (tmp_path / name).write_text(json.dumps(content))

    return make


def odd(value: str, usual: str) -> str:
    """Return a part in which one of four GPUs differs."""
    return " + ".join(sorted((f"1 {value}", f"3 {usual}"), key=lambda its: its[2:]))


@pytest.mark.parametrize(
    ("second", "faults", "parts"),
    [
        ({}, [], {}),
        ({"CurrentClocksThrottleReasons": 0x61}, ["slowed down (too hot, too hot, by hardware)"], {}),
        ({"TotalEccErrors": RESET}, ["error 16"], {}),
        ({"MaxPcieLinkGeneration": 4}, [], {"gpus.PCIe": odd("gen4 x16", "gen5 x16")}),
        # Another job's, and what a GPU, its driver or the package does not have.
        ({"HandleByIndex": FORBIDDEN}, [], {"gpus": "3"}),
        *(({name: UNSUPPORTED}, [], {}) for name in OPTIONAL),
    ],
)
def test_what_the_driver_reports(
    driver: Callable[..., None], tmp_path: Path, second: dict[str, Any], faults: list[str], parts: dict[str, str]
) -> None:
    """A fault of one of four GPUs is a line, and what should be alike is a part of the fingerprint."""
    driver(**second)
    expected = {"gpus.NVML": "ok", "gpus": "4", **SOUND, **parts}
    assert facts.nvml_state({}, str(tmp_path)) == ([f"GPU 1: {fault}" for fault in faults], expected)


@pytest.mark.parametrize(
    ("mask", "count"),
    [("0,1", 2), ("3, 1", 2), ("0", 1), ("", 0), ("GPU-01", 1), ("GPU-02,GPU-01", 2), ("MIG-7", None)],
)
def test_another_jobs_gpus_do_not_count(driver: Callable[..., None], mask: str, count: int | None) -> None:
    """Instances of one GPU are not counted, as NVML does not list them."""
    driver(TotalEccErrors=2)
    faults, parts = facts.nvml_state({"CUDA_VISIBLE_DEVICES": mask})
    assert parts.get("gpus") == (None if count is None else str(count))
    assert bool(faults) == (mask not in {"0", ""})


def test_processes_of_others_on_a_gpu_are_named(driver: Callable[..., None], tmp_path: Path) -> None:
    """NVML lists the processes of all users; services are left out."""
    root = gpu_tree(tmp_path, **{"proc/9900002/comm": "train\n", "proc/9900003/comm": "nvidia-cuda-mps-server\n"})
    driver(ComputeRunningProcesses=[9900002, 9900003, 9900004])
    assert facts.nvml_state({}, root)[0] == [f"process 9900002 (train) of {ME} has nvidia1 open"]


def test_the_link_is_taken_from_files_where_they_have_it(driver: Callable[..., None], tmp_path: Path) -> None:
    files = {"current_link_width": "8", "max_link_speed": "16.0 GT/s PCIe"}
    root = gpu_tree(tmp_path, **{f"{CARD}/{name}": text for name, text in files.items()})
    driver()
    rest = {name: part for name, part in SOUND.items() if name != "gpus.PCIe"}
    assert facts.nvml_state({}, root) == ([], {"gpus.NVML": "ok", "gpus": "4", **rest})


def test_the_last_xid_of_each_gpu_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The log may go on meanwhile, and its end is not waited for; a process's owner may have no name."""
    lines = [
        b"6,1;NVRM: Xid (PCI:0000:18:00): 68, a\n more",
        BrokenPipeError(),
        b"6,2;NVRM: Xid (PCI:0000:17:00): 79, b",
    ]
    # Those of an application are no fault, and hide none.
    lines += [b"6,2;NVRM: Xid (PCI:0000:%d:00): %d, pid=1" % its for its in ((18, 13), (18, 45), (19, 31), (19, 69))]
    lines += [b"6,3;eth0: up", b"6,4;NVRM: Xid (PCI:0000:17:00): " + b"x" * 300, None, b"6,5;NVRM: Xid (PCI:1): 1"]
    log = SimpleNamespace(read=mock.Mock(side_effect=lines))
    (tmp_path / "kmsg").write_text("")
    monkeypatch.setattr(facts, "FileIO", lambda file: os.close(file) or nullcontext(log))
    found = [*facts._of_log(str(tmp_path / "kmsg"))]
    assert found == [f"GPU 0000:17:00: Xid {'x' * 200}", "GPU 0000:18:00: Xid 68, a"]
    monkeypatch.setattr("pwd.getpwuid", lambda number: {}[number])
    assert [facts._owner(str(path)) for path in (tmp_path, tmp_path / "none")] == [str(os.getuid()), "?"]
    monkeypatch.setattr(facts.devices, "visible_gpus", lambda *_: 2)
    assert facts.has_gpu(str(tmp_path))


@pytest.mark.parametrize(("value", "faults"), [(12, []), (9, []), (18, ["NVML does not start: error 18"])])
def test_nothing_is_known_without_library_driver_or_package(
    driver: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: int, faults: list[str]
) -> None:
    """A library that does not fit the driver is a fault: the node was not restarted after an update."""
    driver()
    (tmp_path / "init").write_text(str(value))
    assert facts.nvml_state({}) == (faults, {})
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert facts.nvml_state({}) == ([], {})


def test_what_the_driver_tells_is_compared_with_the_fingerprint() -> None:
    """Fewer GPUs than there are files count; a host without the package has nothing to compare."""
    known, usual = fingerprint(), {"gpus.NVML": "ok", "gpus": "8", **SOUND}
    assert [facts.with_gpus(known, {"gpus": count}) for count in ("7", "9")] == [fingerprint(gpus="7 H100"), known]
    parts = {"node2": {**usual, "gpus.power": "400 W"}, "node5": {}}
    made = report(5, lambda its: its._replace(fingerprint=facts.with_gpus(known, parts.get(its.name, usual))))
    assert (bad(made), made.exclude) == (["node2: power 400 W, 3 others 700 W"], ("node2",))


@only_with("nvidia-smi", "pynvml")
def test_this_machines_gpus_are_compared_with_recorded_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's own driver answers before the deadline; a hidden GPU is missed, and another power limit named."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    here, hidden = (facts.own_facts(environ)["fingerprint"] for environ in ({}, {"CUDA_VISIBLE_DEVICES": ""}))
    capped = facts.with_gpus(here.replace("gpus.power=", "was="), {"gpus.power": "1 W"})
    for text, line in ((here, ""), (hidden, "node2: GPUs none, 3 others "), (capped, "node2: power 1 W, 3 others ")):
        made = report(4, lambda its, text=text: its._replace(fingerprint=text if its.name == "node2" else here))  # type: ignore[misc]
        assert "".join(bad(made)[:1]).startswith(line)
        assert made.exclude == (("node2",) if line else ())
