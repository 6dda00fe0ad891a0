"""What a host says of its GPUs, by files as a host with GPUs has them, and by a driver that is made up."""

import json
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import fake_pynvml
from support.check_reports import bad, fingerprint, report
from support.gathering import until
from support.needs import only_with
from support.running import children

from mingle_hooks.check import gpus
from mingle_hooks.check.facts import DeviceFacts, own_facts
from mingle_hooks.rendezvous.connection import Loop

ME = gpus._owner("/proc/self")  # a user of a container may have no name
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
    assert (gpus.has_gpu(root), gpus.gpu_state(root)) == (True, ([], {}))
    assert (gpus.has_gpu(str(tmp_path / "none")), gpus.gpu_state(str(tmp_path / "none"))) == (False, ([], {}))
    for name, text in (("vendor", "0x8086\n"), ("class", "0x040300\n")):  # another's, and a GPU's sound
        assert not gpus.has_gpu(tree(tmp_path / name, **{f"{CARD}/{name}": text}))


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
            "sys/class/drm/card1/device/ras/umc_err_count": "ce: 7\nue: 2\n",
            "sys/class/drm/card1/device/ras/features": "ue: 3\n",
            "sys/class/drm/card1/device/ras/xgmi_err_count": "ue: 0\nce: 1\n",
            "sys/class/drm/card1-DP-1/device/ras/umc_err_count": "ue: 4\n",
            "sys/class/kfd/kfd/proc/9900001/vram_1": "1\n",
            "proc/9900001/comm": "python\n",
            "proc/9900002/comm": "train\n",
            "proc/9900003/comm": "nvidia-persiste\n",
            "proc/9900004/comm": "python\n",
            "proc/9900004/cmdline": "/usr/bin/python3\0-I\0/opt/lib/mingle_hooks/__main__.py\0probe\0",
        },
    )
    for pid, device in (("9900002", "/dev/nvidia3"), ("9900003", "/dev/nvidia3"), ("9900004", "/dev/nvidia0")):
        (tmp_path / "proc" / pid / "fd").mkdir()
        (tmp_path / "proc" / pid / "fd" / "7").symlink_to(device)
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/kmsg")
    with (tmp_path / "dev/kmsg").open("r+b", buffering=0) as log:
        log.write(b"6,1,1,-;NVRM: Xid (PCI:0000:17:00): 79, pid=1, GPU has fallen off the bus.\n")
        found, _ = gpus.gpu_state(root)
    assert found == [
        "GPU 0000:17:00.0 has fallen off the bus",
        "GPU 0000:18:00.0: 3 PCIe errors (fatal)",
        "GPU card1: 2 uncorrected errors (umc)",
        "GPU 0000:17:00: Xid 79, pid=1, GPU has fallen off the bus.",
        f"process 9900001 (python) of {ME} has kfd open",
        f"process 9900002 (train) of {ME} has nvidia3 open",
    ]


@pytest.mark.parametrize(
    ("width", "card", "slot", "link"),
    [
        ("16", "32.0 GT/s PCIe", "32.0 GT/s PCIe", "gen5 x16"),
        ("8", "16.0 GT/s PCIe", "8 GT/s", "gen3 x8"),
        ("16", "16.0 GT/s PCIe", "", "gen4 x16"),
        ("", "16.0 GT/s PCIe", "", None),
        ("63", "Unknown", "Unknown", None),
    ],
)
def test_the_link_of_a_gpu_is_as_wide_as_now_and_as_fast_as_its_slot(
    tmp_path: Path, width: str, card: str, slot: str, link: str | None
) -> None:
    """AMD's too; the speed now says nothing, as an idle GPU lowers it."""
    files = {"vendor": "0x1002\n", "current_link_width": width, "max_link_speed": card, "../max_link_speed": slot}
    root = tree(tmp_path, **{f"{CARD}/{name}": text for name, text in files.items()})
    assert gpus.gpu_state(root) == ([], {"gpus.PCIe": link} if link else {})


SOUND = {"gpus.PCIe": "gen5 x16", "gpus.power": "700 W", "gpus.ECC": "on", "gpus.NVLinks": "18"}
LOST, RESET, UNSUPPORTED, FORBIDDEN = ({"error": number} for number in (15, 16, 3, 4))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Make NVML answer for four GPUs, otherwise of the second."""
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
        ({"TotalEccErrors": 2}, ["2 uncorrected memory errors since the driver started"], {}),
        ({"RemappedRows": (0, 1, 1, 0)}, ["bad memory is replaced at its next reset"], {}),
        (
            {"RemappedRows": UNSUPPORTED, "RetiredPagesPendingStatus": 1},
            ["bad memory is replaced at its next reset"],
            {},
        ),
        ({"CurrentClocksThrottleReasons": UNSUPPORTED, "MaxPcieLinkGeneration": UNSUPPORTED}, [], {}),
        ({"CurrPcieLinkWidth": UNSUPPORTED, "ComputeRunningProcesses": UNSUPPORTED}, [], {}),
        ({"RemappedRows": (0, 1, 0, 1)}, ["bad memory could not be replaced"], {}),
        ({"CurrentClocksThrottleReasons": 0x88}, ["slowed down (by hardware, power brake)"], {}),
        ({"CurrentClocksThrottleReasons": 0x61}, ["slowed down (too hot, too hot, by hardware)"], {}),
        ({"HandleByIndex": LOST}, ["error 15"], {}),
        ({"TotalEccErrors": RESET}, ["error 16"], {}),
        ({"CurrPcieLinkWidth": 8}, [], {"gpus.PCIe": odd("gen5 x8", "gen5 x16")}),
        ({"MaxPcieLinkGeneration": 4}, [], {"gpus.PCIe": odd("gen4 x16", "gen5 x16")}),
        ({"PowerManagementLimit": 400_000}, [], {"gpus.power": odd("400 W", "700 W")}),
        ({"EccMode": [0, 1]}, [], {"gpus.ECC": odd("off", "on")}),
        ({"NvLinkState": 0}, [], {"gpus.NVLinks": odd("0", "18")}),
        # Another job's, and what a GPU, its driver or the package does not have.
        ({"HandleByIndex": FORBIDDEN}, [], {"gpus": "3"}),
        (dict.fromkeys(("EccMode", "NvLinkState", "RemappedRows", "PowerManagementLimit"), UNSUPPORTED), [], {}),
    ],
)
def test_what_the_driver_reports(
    driver: Callable[..., None], tmp_path: Path, second: dict[str, Any], faults: list[str], parts: dict[str, str]
) -> None:
    """Of one of four GPUs: a fault is a line, and what should be alike a part."""
    driver(**second)
    expected = {"gpus.NVML": "ok", "gpus": "4", **SOUND, **parts}
    assert gpus.nvml_state({}, str(tmp_path)) == ([f"GPU 1: {fault}" for fault in faults], expected)


@pytest.mark.parametrize(
    ("mask", "count"),
    [("0,1", 2), ("3, 1", 2), ("0", 1), ("", 0), ("GPU-01", 1), ("GPU-02,GPU-01", 2), ("MIG-7", None)],
)
def test_another_jobs_gpus_do_not_count(driver: Callable[..., None], mask: str, count: int | None) -> None:
    """Nor do instances of one, which NVML does not list."""
    driver(TotalEccErrors=2)
    faults, parts = gpus.nvml_state({"CUDA_VISIBLE_DEVICES": mask})
    assert parts.get("gpus") == (None if count is None else str(count))
    assert bool(faults) == (mask not in {"0", ""})


def test_processes_of_others_on_a_gpu_are_named(driver: Callable[..., None], tmp_path: Path) -> None:
    """By NVML, which lists those of all users; services are left out."""
    root = tree(tmp_path, **{"proc/9900002/comm": "train\n", "proc/9900003/comm": "nvidia-cuda-mps-server\n"})
    driver(ComputeRunningProcesses=[9900002, 9900003, 9900004])
    assert gpus.nvml_state({}, root)[0] == [f"process 9900002 (train) of {ME} has nvidia1 open"]


def test_the_link_is_taken_from_files_where_they_have_it(driver: Callable[..., None], tmp_path: Path) -> None:
    files = {"current_link_width": "8", "max_link_speed": "16.0 GT/s PCIe"}
    root = tree(tmp_path, **{f"{CARD}/{name}": text for name, text in files.items()})
    driver()
    rest = {name: part for name, part in SOUND.items() if name != "gpus.PCIe"}
    assert gpus.nvml_state({}, root) == ([], {"gpus.NVML": "ok", "gpus": "4", **rest})


def test_the_last_xid_of_each_gpu_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Though the log goes on meanwhile, and without waiting for its end; a process's owner may have no name."""
    lines = [
        b"6,1;NVRM: Xid (PCI:0000:18:00): 31, a\n more",
        BrokenPipeError(),
        b"6,2;NVRM: Xid (PCI:0000:17:00): 13, b",
    ]
    lines += [b"6,3;eth0: up", b"6,4;NVRM: Xid (PCI:0000:17:00): " + b"x" * 300, None, b"6,5;NVRM: Xid (PCI:1): 1"]

    def read(_most: int) -> bytes | None:
        line = lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return line

    log = SimpleNamespace(read=read)
    (tmp_path / "kmsg").write_text("")
    monkeypatch.setattr(gpus, "FileIO", lambda file: os.close(file) or nullcontext(log))
    found = [*gpus._of_log(str(tmp_path / "kmsg"))]
    assert found == [f"GPU 0000:17:00: Xid {'x' * 200}", "GPU 0000:18:00: Xid 31, a"]
    monkeypatch.setattr("pwd.getpwuid", lambda number: {}[number])
    assert [gpus._owner(str(path)) for path in (tmp_path, tmp_path / "none")] == [str(os.getuid()), "?"]
    monkeypatch.setattr(gpus.devices, "visible_gpus", lambda *_: 2)
    assert gpus.has_gpu(str(tmp_path))


@pytest.mark.parametrize(("value", "faults"), [(12, []), (9, []), (18, ["NVML does not start: error 18"])])
def test_nothing_is_known_without_library_or_driver(
    driver: Callable[..., None], tmp_path: Path, value: int, faults: list[str]
) -> None:
    """That the two do not fit each other is a fault, as of a node that was not restarted after an update."""
    driver()
    (tmp_path / "init").write_text(str(value))
    assert gpus.nvml_state({}) == (faults, {})


def test_nothing_is_known_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is optional."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpus.nvml_state({}) == ([], {})


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"gpus": "7"}, "GPUs 7 H100, 4 others 8 H100"),
        ({"gpus.power": "400 W"}, "power 400 W, 3 others 700 W"),
        ({"gpus.PCIe": "gen5 x8"}, "PCIe gen5 x8, 3 others gen5 x16"),
        (gpus.NVML_IS_SILENT[1], "NVML without an answer, 3 others in order"),
        ({}, ""),
    ],
)
def test_a_host_with_other_gpus_is_named(parts: dict[str, str], text: str) -> None:
    """Once, and a host without the package has nothing to compare."""
    known = {"gpus.NVML": "ok", "gpus": "8", **SOUND}

    def change(number: str) -> str:
        return gpus.with_gpus(
            fingerprint(), {**known, **parts} if number == "node2" else {} if number == "node5" else known
        )

    made = report(5, lambda its: its._replace(fingerprint=change(its.name)))
    assert (bad(made), made.exclude) == (([f"node2: {text}"], ("node2",)) if text else ([], ()))


@only_with("nvidia-smi", "pynvml")
def test_this_machines_gpus_are_compared_with_recorded_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's own driver answers before the deadline; a hidden GPU is missed, and another power limit named."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    before = set(children())

    def read(**environ: str) -> str:
        known = DeviceFacts(loop, environ, lambda: None)
        until(loop, lambda: known.is_known and set(children()) <= before)
        return gpus.with_gpus(own_facts(environ)["fingerprint"], known.parts)

    with Loop() as loop:
        here, hidden = read(), read(CUDA_VISIBLE_DEVICES="")
    capped = gpus.with_gpus(here.replace("gpus.power=", "was="), {"gpus.power": "1 W"})
    for text, line in ((here, ""), (hidden, "node2: GPUs none, 3 others "), (capped, "node2: power 1 W, 3 others ")):
        made = report(4, lambda its, text=text: its._replace(fingerprint=text if its.name == "node2" else here))  # type: ignore[misc]
        assert "".join(bad(made)[:1]).startswith(line)
        assert made.exclude == (("node2",) if line else ())
