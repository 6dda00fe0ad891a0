"""The facts that a host reports of itself, without root; what may hang is read in a child.

The state of GPUs is what /sys and /proc tell any user, and NVIDIA's driver by nvidia-ml-py. Reading the registers of a
device, or its driver's counters, waits for the device. Nothing reads /proc/driver/nvidia/gpus/*/information, which
takes the driver's power lock.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from io import FileIO
from typing import Any, NamedTuple

from mingle_hooks import values
from mingle_hooks.check.report import MOST_ADDRESSES, MOST_OF_HOST, Address, Space
from mingle_hooks.errors import MingleError, printable
from mingle_hooks.files import close_descriptors_except, file_system, fill_standard_descriptors
from mingle_hooks.net import addresses, devices
from mingle_hooks.net.addresses import UsableAddress, list_entries, read_attribute
from mingle_hooks.rendezvous.connection import Lookup, Loop
from mingle_hooks.rendezvous.fingerprint import (
    FingerprintRequest,
    dump_fingerprint,
    fingerprint,
    load_fingerprint,
    own_limits,
)
from mingle_hooks.rendezvous.wire import Body

Clock = Callable[[], float]  # a time in seconds
_MIB = 1 << 20
_NET = "/sys/class/net"
_LONGEST = 300
SHM = "/dev/shm"  # noqa: S108 - that of all programs, as the next
_SCRATCH = (SHM, "/tmp")  # noqa: S108

# The network and the software.


class OwnNetwork(NamedTuple):
    """The addresses that others may use, those for guests alone, all but loopback's; and what is wrong, if anything.

    `prefer` are the networks to use; of this host's own MINGLE_IFACE that is mistyped none.
    """

    addresses: tuple[Address, ...] = ()
    guests: tuple[tuple[str, str], ...] = ()
    every: tuple[str, ...] = ()
    trouble: str = ""
    prefer: Sequence[Any] = ()


def own_network(wanted: str | None) -> OwnNetwork:
    """Return what the kernel tells of this host's interfaces, as far as it does; `wanted` is its MINGLE_IFACE."""
    found = OwnNetwork()
    try:
        interfaces = addresses.interfaces()
        ends = [(interface, address) for interface in interfaces for address in interface.addresses]
        guests = [(its.name, str(end.ip)) for its, end in ends if its.kind == "virtual" and not end.is_link_local]
        every = [str(end.ip) for _, end in ends if not end.ip.is_loopback]
        found = OwnNetwork(guests=tuple(guests[:MOST_ADDRESSES]), every=tuple(every[:MOST_OF_HOST]))
        found = found._replace(prefer=values.networks(wanted) if wanted else ())
        chosen = addresses.usable(interfaces, prefer=found.prefer)[:MOST_ADDRESSES]
    except MingleError as wrong:  # the others know it by the rest
        return found._replace(trouble=printable(f"expected {wrong.expected}, saw {wrong.seen}", _LONGEST))
    return found._replace(addresses=tuple(map(_address, chosen)))


def _address(end: UsableAddress) -> Address:
    name, folder = end.interface.name, f"{_NET}/{end.interface.name}"
    mtu, mac = read_attribute(f"{folder}/mtu"), printable(read_attribute(f"{folder}/address"), _LONGEST)
    kind = "bridge" if os.path.isdir(f"{folder}/bridge") else end.interface.kind
    mtu_bytes = int(mtu) if mtu.isdecimal() else None
    return Address(name, kind, end.host, end.address.network.prefixlen, mtu_bytes, end.interface.speed_mbps, 0, 0, mac)


def own_facts(environ: Mapping[str, str]) -> Body:
    """Return what a host reports of itself, except for its network."""
    found, parts = device_facts(environ)
    text, _ = fingerprint(FingerprintRequest(environ, directory=_own_directory(), limits=own_limits()))
    return {
        "hostname": printable(socket.gethostname(), 253),
        "identity": addresses.machine_id(),
        "gpus": devices.visible_gpus(environ),
        "fingerprint": with_gpus(text, parts),
        **found,
    }


# Rows of Amount: what a host has of these, and what it has counted.

SYMBOL_ERRORS, LINK_DOWNS, WRITE_MS = "symbol errors", "link failures", "ms to write 1 MiB of scratch"
CORES, MEMORY = "cores", "MiB of memory"
_COUNTERS = {SYMBOL_ERRORS: "symbol_error", LINK_DOWNS: "link_downed"}


def own_amounts(root: str = "/") -> list[tuple[str, int]]:
    """Return cores and memory of the whole host, whatever of it the job has."""
    memory = read_attribute(f"{root}/proc/meminfo").split()[1:2]  # MemTotal: 2113420340 kB
    return [(CORES, os.cpu_count() or 0), *((MEMORY, int(kib) >> 10) for kib in memory)]


def rdma_errors(root: str = "/") -> list[tuple[str, int]]:
    """Return the most errors that a port has counted since it was started; reading them waits for the device."""
    ports = devices.rdma_ports(f"{root}{devices.RDMA}").values()
    counts = {name: [read_attribute(f"{port}/counters/{file}") for port in ports] for name, file in _COUNTERS.items()}
    known = {name: [int(text) for text in texts if text.isdecimal()] for name, texts in counts.items()}
    return [(name, max(values)) for name, values in known.items() if values]


def write_time(folder: str) -> list[tuple[str, int]]:
    """Return how long it takes to write to a directory, nothing if that is in memory or does not support O_TMPFILE."""
    if file_system(folder) == "tmpfs":
        return []
    began = time.monotonic()
    try:
        with FileIO(os.open(folder, os.O_TMPFILE | os.O_WRONLY), "w") as file:
            file.write(bytes(_MIB))
            os.fdatasync(file.fileno())
    except OSError:
        return []
    return [(WRITE_MS, int((time.monotonic() - began) * 1000))]


def space_places(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories that need free space."""
    wanted = (*_SCRATCH, environ.get("TMPDIR", ""), environ.get("HOME", ""), _own_directory())
    return tuple(dict.fromkeys(os.path.normpath(path) for path in wanted if path.startswith("/") and path != "/"))


def _own_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return "/"


def space_of(path: str) -> list[int]:
    """Return a file system's free space for this user and its size, in MiB; nothing if it has no such figures.

    Scratch that is read-only has no space; a home or a program's directory may be so by intent, as CVMFS is.
    """
    try:
        found = os.statvfs(path)
    except OSError:
        return []
    is_read_only = found.f_flag & os.ST_RDONLY
    if not found.f_blocks or (is_read_only and path not in _SCRATCH):
        return []
    free = 0 if is_read_only or (found.f_files and not found.f_favail) else found.f_bavail  # or no inode is left
    return [free * found.f_frsize // _MIB, found.f_blocks * found.f_frsize // _MIB]


# Names as this host resolves them, a few at a time.

_AT_ONCE = 4


class NameLookups:
    """Looks names up; `found` has the answers so far, by name."""

    def __init__(self, loop: Loop, names: Sequence[str]) -> None:
        self._loop, self._waiting = loop, list(dict.fromkeys(names))[::-1]
        self._running: dict[str, Lookup] = {}
        self.found: dict[str, list[str]] = {}
        for _ in range(_AT_ONCE):
            self._next()

    @property
    def is_done(self) -> bool:
        """Whether all lookups have ended."""
        return not self._running and not self._waiting

    def close(self) -> None:
        """Drop the answers that have not arrived."""
        self._waiting.clear()
        for lookup in self._running.values():
            lookup.close()

    def _next(self) -> None:
        if not self._waiting:
            return
        name = self._waiting.pop()
        try:
            self._running[name] = Lookup(self._loop, name, self._answered)
        except (OSError, MingleError):  # no descriptor, or no thread: as if there were no answer
            self._waiting.clear()

    def _answered(self, name: str, addresses: list[str]) -> None:
        del self._running[name]
        self.found[name] = addresses
        self._next()


# How often deadlines are checked, in seconds.
POLL_S = 0.02
# No more than this counts of the time since the last check, in seconds: for the rest, this process did not run.
_COUNTED_S = 2 * POLL_S


class ActiveDeadline:
    """A deadline after `limit_s` seconds in which this process ran, and `most_s` by the clock at the latest.

    `late_s` is for how long it did not run, in seconds.
    """

    def __init__(self, clock: Clock, limit_s: float, most_s: float) -> None:
        self._clock, self._left_s = clock, limit_s
        self._last = clock()
        self._end = self._last + max(limit_s, most_s)
        self.late_s = 0.0

    @property
    def has_lasted(self) -> bool:
        """Whether the process has run for the whole limit."""
        return self._left_s <= 0.0

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return self.has_lasted or self._last >= self._end

    def look(self) -> None:
        """Note that the process runs."""
        now = self._clock()
        passed_s, self._last = now - self._last, now
        self.late_s += max(passed_s - _COUNTED_S, 0.0)
        self._left_s -= min(passed_s, _COUNTED_S)


# Calls that may hang in the kernel, made in children: a thread that hangs there would hold up the end of this process.

_READ_BYTES = 64 * 1024
# A host that does not run at times may take this many times as long by the clock.
_MOST_TIMES = 10


# A call, and what stands for its result where there is none.
Call = tuple[Callable[[], object], Any]


def call_in_children(calls: Mapping[str, Call], limit_s: float, clock: Clock = time.monotonic) -> dict[str, Any]:
    """Return the results of calls by name, each made in a child of its own; one may fail or take too long."""
    found = {name: silent for name, (_, silent) in calls.items()}
    outputs, pids = dict.fromkeys(calls, b""), dict.fromkeys(calls, 0)
    with selectors.DefaultSelector() as selector:
        for name, (function, _) in calls.items():
            reading, writing = os.pipe()
            pids[name] = os.fork()
            if not pids[name]:
                _write_result(function, writing)
            os.close(writing)
            selector.register(reading, selectors.EVENT_READ, name)
        deadline = ActiveDeadline(clock, limit_s, limit_s * _MOST_TIMES)
        while selector.get_map() and not deadline.is_over:
            for key, _ in selector.select(POLL_S):
                data = os.read(key.fd, _READ_BYTES)
                outputs[key.data] += data
                if not data:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    os.waitpid(pids[key.data], 0)
                    with suppress(ValueError, RecursionError):
                        found[key.data] = values.from_json(outputs[key.data])
            deadline.look()
        for key in [*selector.get_map().values()]:
            os.close(key.fd)
            os.kill(pids[key.data], signal.SIGKILL)  # one that hangs in the kernel stays, so none is waited for
    return found


def _write_result(function: Callable[[], object], writing: int) -> None:
    """Write the result, and exit; after an error there is none."""
    try:
        close_descriptors_except(writing)  # a child that stays must not hold the output that the starter waits for
        fill_standard_descriptors(os.O_RDWR)  # so that what a driver's library prints goes to no device
        data = values.to_json(function()).encode()
        while data:
            data = data[os.write(writing, data) :]
    finally:
        os._exit(0)


# The state of GPUs.

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
# Xids that NVIDIA's catalog blames on the application, or has it checked for; the GPU is sound.
_XIDS_OF_APPLICATIONS = ("13", "31", "43", "45", "69", "137")
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
            _, _, rest = read_attribute(f"{folder}/{name}").partition("ue:")  # ue: 2, and in the next line ce: 7
            count = "".join(rest.split()[:1])
            if name.endswith("_err_count") and count not in ("0", ""):
                yield f"GPU {card}: {count} uncorrected errors ({name.removesuffix('_err_count')})"


def _of_log(path: str) -> Iterator[str]:
    """Yield the last Xid of each GPU that is not an application's, if this user may read the kernel's log."""
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
                if text.partition(",")[0] not in _XIDS_OF_APPLICATIONS:
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
    """Return the owner's name; the number of one without a name."""
    from pathlib import Path  # 5 ms, needed only where there is such a process

    try:
        return Path(path).owner()
    except KeyError:
        return str(os.stat(path).st_uid)
    except OSError:
        return "?"


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
    every = [_NvidiaGpu(pynvml, number) for number in range(pynvml.nvmlDeviceGetCount())]
    gpus = [gpu for gpu in every if gpu.is_visible(mask)]
    faults = [f"GPU {gpu.number}: {fault}" for gpu in gpus for fault in gpu.faults()]
    alike: defaultdict[str, list[str]] = defaultdict(list)
    users: defaultdict[str, set[str]] = defaultdict(set)
    for gpu in gpus:
        for name, value in gpu.values():
            alike[f"gpus.{name}"].append(value)
        for pid in gpu.processes():
            users[pid].add(f"nvidia{gpu.number}")
    parts = {name: _counted(values) for name, values in alike.items()}
    if _links(root):
        parts.pop("gpus.PCIe", None)
    if "MIG-" not in (mask or ""):  # there are more instances than GPUs
        parts["gpus"] = str(len(gpus))
    return [*faults, *_of_processes(root, users)], {"gpus.NVML": "ok", **parts}


class _NvidiaGpu:
    """One GPU, by its number in NVML and nvidia-smi."""

    def __init__(self, pynvml: Any, number: int) -> None:
        self.number, self._nvml, self._lost = str(number), pynvml, ""
        self._handle = self._ask("nvmlDeviceGetHandleByIndex", number)

    def is_visible(self, mask: str | None) -> bool:
        """Return whether CUDA_VISIBLE_DEVICES, if it is set, has this GPU; another job may have the others."""
        if self._handle is None:
            return bool(self._lost)
        if mask is None or "MIG-" in mask:
            return True
        wanted = mask.replace(" ", "").split(",")
        return self.number in wanted or str(self._get("UUID")).startswith(tuple(one for one in wanted if one[4:]))

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


# How long a file system or a device may take to answer, in seconds.
_ANSWER_S = 1.0


def device_facts(environ: Mapping[str, str]) -> tuple[Body, dict[str, str]]:
    """Return free space, amounts and faults of GPUs, and parts of a fingerprint; all of it may hang."""
    places, scratch = space_places(environ), environ.get("TMPDIR") or "/tmp"  # noqa: S108 - what programs use
    calls: dict[str, Call] = {path: (partial(space_of, path), [None, None]) for path in places}
    calls["RDMA"] = rdma_errors, []
    calls["scratch"] = partial(write_time, scratch), [(WRITE_MS, int(_ANSWER_S * 1000))]
    if has_gpu():
        calls["GPUs"] = gpu_state, ([f"its GPUs did not report their state within {_ANSWER_S:g} s"], {})
        calls["NVML"] = partial(nvml_state, environ), NVML_IS_SILENT
    found = call_in_children(calls, _ANSWER_S)
    faults: dict[str, str] = {}
    parts: dict[str, str] = {}
    for name in ("GPUs", "NVML"):
        its_faults, its_parts = found.get(name, ([], {}))
        for fault in its_faults:  # both may know of a process
            faults.setdefault(fault.partition(" has ")[0], printable(fault, _LONGEST))
        parts |= its_parts
    return {
        "spaces": [Space(printable(path, _LONGEST), *found[path])._asdict() for path in places if found[path]],
        "amounts": [*own_amounts(), *found["RDMA"], *found["scratch"]],
        "faults": [*faults.values()],
    }, parts
