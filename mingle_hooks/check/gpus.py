"""The state of this host's GPUs: what /sys and /proc tell any user, and NVIDIA's driver by nvidia-ml-py.

It is read in a child: reading the registers of a device, or its driver's counters, waits for the device. Nothing reads
/proc/driver/nvidia/gpus/*/information, which takes the driver's power lock.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from io import FileIO
from typing import Any

from mingle_hooks.net import devices
from mingle_hooks.net.addresses import list_entries, read_attribute
from mingle_hooks.rendezvous.fingerprint import dump_fingerprint, load_fingerprint

# A line for each fault, and parts of a fingerprint: what should be alike on all hosts.
GpuState = tuple[list[str], dict[str, str]]

NVML_IS_SILENT: GpuState = [], {"gpus.NVML": "without an answer"}


def with_gpus(fingerprint: str, parts: Mapping[str, str]) -> str:
    """Return a fingerprint with these parts, and with the number of GPUs that NVML lists if these are fewer."""
    known = load_fingerprint(fingerprint)
    count, _, model = known.get("gpus", "").partition(" ")
    if count.isdecimal() and int(parts.get("gpus", count)) < int(count):
        known["gpus"] = f"{parts['gpus']} {model}".strip()
    return dump_fingerprint({**parts, **known})


# What any user may read.

_NVIDIA, _AMD = "10de", "1002"
# PCI classes of VGA and 3D controllers, and of accelerators.
_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
# Services that have a GPU open and do not use it.
_SERVICES = ("nvidia-", "nv-hostengine", "nv-fabricmanage", "dcgm", "Xorg")
_DEVICES = ("/dev/nvidia", "/dev/dri/renderD", "/dev/kfd")
_KMSG_BYTES, _MOST_LINES = 8192, 20_000
_SHOWN = 200
# GT/s of PCIe's generations, from the first on.
_GENERATIONS = (2.5, 5.0, 8.0, 16.0, 32.0, 64.0)


def gpu_state(root: str = "/") -> GpuState:
    """Return what /sys and /proc tell."""
    faults = [*_of_bus(root), *_of_memory(root), *_of_log(f"{root}/dev/kmsg"), *_of_processes(root, _users(root))]
    links = _links(root)
    return faults, {"gpus.PCIe": _counted(links)} if links else {}


def has_gpu(root: str = "/") -> bool:
    """Return whether there is a GPU, without reading from it."""
    return next(_cards(root), None) is not None or bool(devices.visible_gpus({}, root))


def _cards(root: str) -> Iterator[str]:
    """Yield the PCI names of NVIDIA's and AMD's GPUs."""
    folder = f"{root}/sys/bus/pci/devices"
    for name in sorted(list_entries(folder)):
        vendor, kind = read_attribute(f"{folder}/{name}/vendor"), read_attribute(f"{folder}/{name}/class")
        if vendor.removeprefix("0x") in (_NVIDIA, _AMD) and kind.startswith(_CLASSES):
            yield name


def _of_bus(root: str) -> Iterator[str]:
    for name in _cards(root):
        path = f"{root}/sys/bus/pci/devices/{name}"
        with suppress(OSError), open(f"{path}/config", "rb") as file:
            if file.read(4) == b"\xff\xff\xff\xff":
                yield f"GPU {name} has fallen off the bus"
                continue
        for kind in ("fatal", "nonfatal"):
            total = "".join(read_attribute(f"{path}/aer_dev_{kind}").split()[-1:])  # the last line is the sum
            if total.isdecimal() and int(total):
                yield f"GPU {name}: {total} PCIe errors ({kind})"


def _links(root: str) -> list[str]:
    return [link for name in _cards(root) if (link := _link(f"{root}/sys/bus/pci/devices/{name}"))]


def _link(path: str) -> str:
    """Return `gen5 x16`: the width now, and the best generation of card and slot, as an idle GPU lowers its own."""
    width = read_attribute(f"{path}/current_link_width")
    speeds = [read_attribute(f"{end}/max_link_speed") for end in (path, f"{os.path.realpath(path)}/..")]  # 32.0 GT/s
    known = [float(speed.split()[0]) for speed in speeds if speed[:1].isdecimal()]
    if not width.isdecimal() or not known or min(known) not in _GENERATIONS:
        return ""
    return f"gen{_GENERATIONS.index(min(known)) + 1} x{width}"


def _counted(values: Iterable[str]) -> str:
    """Return the value of all GPUs, or `7 gen5 x16 + 1 gen5 x8`."""
    counts = Counter(values)
    return " + ".join(f"{counts[value]} {value}" for value in sorted(counts)) if len(counts) > 1 else "".join(counts)


def _of_memory(root: str) -> Iterator[str]:
    """Yield the uncorrected errors that AMD's driver counts."""
    for card in sorted(list_entries(f"{root}/sys/class/drm")):
        folder = f"{root}/sys/class/drm/{card}/device/ras"
        for name in sorted(list_entries(folder)) if "-" not in card else ():
            parts = read_attribute(f"{folder}/{name}").replace(":", " ").split()
            counts = dict(zip(parts[::2], parts[1::2], strict=False))
            if name.endswith("_err_count") and counts.get("ue", "0") not in ("0", ""):
                yield f"GPU {card}: {counts['ue']} uncorrected errors ({name.removesuffix('_err_count')})"


def _of_log(path: str) -> Iterator[str]:
    """Yield the last Xid of each GPU, if this user may read the kernel's log."""
    last: dict[str, str] = {}
    with suppress(OSError), FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK)) as log:
        for _ in range(_MOST_LINES):
            try:
                line = log.read(_KMSG_BYTES)
            except BrokenPipeError:  # the log went on meanwhile
                continue
            if not line:  # the end, for now
                break
            _, found, rest = line.decode(errors="replace").partition("NVRM: Xid (")
            if found:
                card, _, text = rest.partition("): ")
                last[card] = text.splitlines()[0][:_SHOWN]
    for card, text in sorted(last.items()):
        yield f"GPU {card.removeprefix('PCI:')}: Xid {text}"


def _users(root: str) -> dict[str, set[str]]:
    """Return the processes that have a GPU open, with its devices: this user's, for root all, and for AMD all."""
    found: dict[str, set[str]] = {}
    for pid in list_entries(f"{root}/proc"):
        if pid.isdecimal() and (opened := _open(f"{root}/proc/{pid}/fd")):
            found[pid] = opened
    for pid in list_entries(f"{root}/sys/class/kfd/kfd/proc"):
        found.setdefault(pid, set()).add("/dev/kfd")
    return found


def _of_processes(root: str, users: Mapping[str, set[str]]) -> Iterator[str]:
    for pid, opened in sorted(users.items()):
        name = read_attribute(f"{root}/proc/{pid}/comm")
        if name and not name.startswith(_SERVICES) and not _is_ours(root, pid):
            which = ", ".join(sorted(device.removeprefix("/dev/") for device in opened))
            yield f"process {pid} ({name}) of {_owner(f'{root}/proc/{pid}')} has {which} open"


def _is_ours(root: str, pid: str) -> bool:
    """Return whether a process is a check's: NVML of its other children has GPUs open meanwhile."""
    words = read_attribute(f"{root}/proc/{pid}/cmdline").split("\0")[:4]
    return pid == str(os.getpid()) or any(word.endswith(("/mingle", "mingle_hooks/__main__.py")) for word in words)


def _open(folder: str) -> set[str]:
    found = set()
    for descriptor in list_entries(folder):
        with suppress(OSError):
            target = os.readlink(f"{folder}/{descriptor}")
            if target.startswith(_DEVICES) and target[-1].isdecimal():
                found.add(target)
    return found


def _owner(path: str) -> str:
    import pwd

    try:
        number = os.stat(path).st_uid
        return pwd.getpwuid(number).pw_name
    except OSError:
        return "?"
    except KeyError:
        return str(number)


# What NVIDIA's driver reports (NVML), of the GPUs that this process may use.

# The bits of nvmlClocksThrottleReasons that no sound GPU has, idle or busy.
_SLOWDOWNS = {0x08: "by hardware", 0x20: "too hot", 0x40: "too hot, by hardware", 0x80: "power brake"}


def nvml_state(environ: Mapping[str, str], root: str = "/") -> GpuState:
    """Return what NVML tells; nothing without the package, the library or the driver."""
    try:
        import pynvml
    except ImportError:
        return [], {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        is_absent = error.value in (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        return [] if is_absent else [f"NVML does not start: {error}"], {}
    mask = environ.get("CUDA_VISIBLE_DEVICES")
    faults: list[str] = []
    values: list[tuple[str, str]] = []
    users: dict[str, set[str]] = {}
    count = 0
    for number in range(pynvml.nvmlDeviceGetCount()):
        gpu = _NvidiaGpu(pynvml, number)
        if gpu.is_visible(mask):
            count += 1
            faults += [f"GPU {number}: {fault}" for fault in gpu.faults()]
            values += gpu.values()
            for pid in gpu.processes():
                users.setdefault(pid, set()).add(f"nvidia{number}")
    names = dict.fromkeys(name for name, _ in values)
    parts = {f"gpus.{name}": _counted(value for key, value in values if key == name) for name in names}
    if _links(root):
        parts.pop("gpus.PCIe", None)
    if "MIG-" not in (mask or ""):  # there are more instances than GPUs
        parts["gpus"] = str(count)
    return [*faults, *_of_processes(root, users)], {"gpus.NVML": "ok", **parts}


class _NvidiaGpu:
    """One GPU, by its number in NVML and nvidia-smi."""

    def __init__(self, pynvml: Any, number: int) -> None:
        self._nvml, self._number, self._lost = pynvml, number, ""
        self._handle = self._ask("nvmlDeviceGetHandleByIndex", number)

    def is_visible(self, mask: str | None) -> bool:
        """Return whether CUDA_VISIBLE_DEVICES, if it is set, has this GPU; another job may have the others."""
        if self._handle is None:
            return bool(self._lost)
        if mask is None or "MIG-" in mask:
            return True
        wanted = mask.replace(" ", "").split(",")
        return str(self._number) in wanted or str(self._get("UUID")).startswith(tuple(one for one in wanted if one[4:]))

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with it by itself."""
        errors = self._get(
            "TotalEccErrors", self._nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, self._nvml.NVML_VOLATILE_ECC
        )
        if errors:
            yield f"{errors} uncorrected memory errors since the driver started"
        _, _, is_pending, has_failed = self._get("RemappedRows") or (0, 0, self._get("RetiredPagesPendingStatus"), 0)
        if is_pending:
            yield "bad memory is replaced at its next reset"
        if has_failed:
            yield "bad memory could not be replaced"
        bits = self._get("CurrentClocksThrottleReasons") or 0
        if reasons := [text for bit, text in _SLOWDOWNS.items() if bits & bit]:
            yield f"slowed down ({', '.join(reasons)})"
        if self._lost:
            yield self._lost

    def values(self) -> Iterator[tuple[str, str]]:
        """Yield what should be the same everywhere, as far as it does not vary with the load."""
        width, generation = self._get("CurrPcieLinkWidth"), self._get("MaxPcieLinkGeneration")
        if width and generation:
            yield "PCIe", f"gen{generation} x{width}"
        if (limit_mw := self._get("PowerManagementLimit")) is not None:
            yield "power", f"{limit_mw // 1000} W"
        if (ecc := self._get("EccMode")) is not None:
            yield "ECC", "on" if ecc[0] else "off"
        links = [self._get("NvLinkState", link) for link in range(self._nvml.NVML_NVLINK_MAX_LINKS)]
        if links.count(None) < len(links):
            yield "NVLinks", str(links.count(1))

    def processes(self) -> list[str]:
        """Return the processes that compute on it, of all users."""
        return [str(process.pid) for process in self._get("ComputeRunningProcesses") or ()]

    def _get(self, what: str, *arguments: int) -> Any:
        return self._ask(f"nvmlDeviceGet{what}", self._handle, *arguments)

    def _ask(self, function: str, *arguments: Any) -> Any:
        """Return an answer, None without one: many GPUs, drivers and versions of the package lack some."""
        if self._lost:
            return None
        try:
            return getattr(self._nvml, function)(*arguments)
        except (self._nvml.NVMLError, AttributeError) as error:
            lost = self._nvml.NVML_ERROR_GPU_IS_LOST, self._nvml.NVML_ERROR_RESET_REQUIRED
            self._lost = str(error) if getattr(error, "value", None) in lost else ""
            return None
