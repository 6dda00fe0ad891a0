"""What a host says of itself, without root, and nothing that can hang but in a child."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from io import FileIO
from typing import Any

from mingle_hooks import values
from mingle_hooks.check.report import Address, Space
from mingle_hooks.check.session import MOST_ADDRESSES, MOST_OF_HOST
from mingle_hooks.errors import MingleError, NetworkError, printable
from mingle_hooks.keys import on_network
from mingle_hooks.net import devices
from mingle_hooks.net.addresses import (
    Interface,
    Preference,
    interfaces,
    list_addresses,
    list_entries,
    machine_id,
    read_attribute,
    usable,
)
from mingle_hooks.rendezvous.connection import READ, Lookup, Loop
from mingle_hooks.rendezvous.fingerprint import FingerprintRequest, fingerprint, own_limits
from mingle_hooks.rendezvous.wire import Body

_MIB = 1 << 20
_LOOPBACK = ("127.", "::1")
_NET = "/sys/class/net"
_LONGEST = 300


def reachable_addresses(prefer: Sequence[Preference]) -> tuple[tuple[Address, ...], tuple[tuple[str, str], ...], str]:
    """Return the addresses that others may use, what is for guests alone, and what is wrong where there are none."""
    found = interfaces()
    guests = [
        (its.name, str(address.ip))
        for its in found
        for address in its.addresses
        if its.kind == "virtual" and not address.is_link_local
    ]
    try:
        chosen = usable(found, prefer=prefer)
    except NetworkError as wrong:
        return (), tuple(guests[:MOST_ADDRESSES]), f"expected {wrong.expected}, saw {wrong.seen}"
    addresses = [
        Address(
            its.interface.name,
            _kind(its.interface),
            its.host,
            its.address.network.prefixlen,
            _number(read_attribute(f"{_NET}/{its.interface.name}/mtu")),
            its.interface.speed_mbps,
            0,
        )
        for its in chosen[:MOST_ADDRESSES]
    ]
    return tuple(addresses), tuple(guests[:MOST_ADDRESSES]), ""


def all_addresses() -> list[str]:
    """Return all addresses of this host but loopback's, none where it does not tell."""
    try:
        return [its.address for its in list_addresses() if not its.address.startswith(_LOOPBACK)][:MOST_OF_HOST]
    except NetworkError:
        return []


def _kind(interface: Interface) -> str:
    return "bridge" if os.path.isdir(f"{_NET}/{interface.name}/bridge") else interface.kind


def own_facts(environ: Mapping[str, str]) -> Body:
    """Return what needs nobody's answer."""
    text, _ = fingerprint(FingerprintRequest(environ, directory=os.getcwd(), limits=own_limits()))
    return {
        "hostname": printable(socket.gethostname(), 253),
        "identity": machine_id(),
        "gpus": devices.visible_gpus(environ),
        "fingerprint": text,
    }


def space_places(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories that have to have room."""
    wanted = ("/dev/shm", "/tmp", environ.get("TMPDIR", ""), environ.get("HOME", ""), os.getcwd())  # noqa: S108
    return tuple(dict.fromkeys(os.path.normpath(path) for path in wanted if path.startswith("/") and path != "/"))


def space_of(path: str) -> list[int]:
    """Return how much of a file system is free for this user and how large it is, in MiB; nothing where it is gone."""
    try:
        its = os.statvfs(path)
    except OSError:
        return []
    free = its.f_bavail if its.f_favail or not its.f_files else 0  # no inode is left
    return [free * its.f_frsize // _MIB, its.f_blocks * its.f_frsize // _MIB]


def _number(digits: str) -> int | None:
    return int(digits) if digits.isdecimal() else None


# What is wrong with the GPUs here, as far as anybody may read: errors, what fell off the bus, who else uses them.
#
# Asked in a child: reading a device's own registers, or the counters that its driver keeps, waits for the device.
# Nothing reads /proc/driver/nvidia/gpus/*/information, which takes the driver's power lock.

MOST_FAULTS = 16
_NVIDIA, _AMD = "10de", "1002"
# PCI classes of VGA and 3D controllers, and of accelerators.
_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
# Services that have a GPU open and take none of it.
_SERVICES = ("nvidia-persiste", "nv-hostengine", "nvidia-fabricma", "nv-fabricmanage", "nvidia-smi", "dcgm", "Xorg")
_DEVICES = ("/dev/nvidia", "/dev/dri/renderD", "/dev/kfd")
_KMSG_BYTES, _MOST_LINES = 8192, 20_000
_SHOWN = 200


def gpu_faults(root: str = "/") -> list[str]:
    """Return one line for each fault."""
    found = [*_of_bus(root), *_of_memory(root), *_of_log(f"{root}/dev/kmsg"), *_users(root)]
    return found[:MOST_FAULTS]


def has_gpu(root: str = "/") -> bool:
    """Tell whether there is a GPU to ask, without asking it."""
    return next(_cards(root), None) is not None or bool(list_entries(f"{root}/proc/driver/nvidia/gpus"))


def _cards(root: str) -> Iterator[str]:
    """Yield the PCI names of GPUs of those makes that train."""
    devices = f"{root}/sys/bus/pci/devices"
    for name in sorted(list_entries(devices)):
        vendor, kind = read_attribute(f"{devices}/{name}/vendor"), read_attribute(f"{devices}/{name}/class")
        if vendor.removeprefix("0x") in (_NVIDIA, _AMD) and kind.startswith(_CLASSES):
            yield name


def _of_bus(root: str) -> Iterator[str]:
    for name in _cards(root):
        path = f"{root}/sys/bus/pci/devices/{name}"
        try:
            with open(f"{path}/config", "rb") as file:
                if file.read(4) == b"\xff\xff\xff\xff":
                    yield f"GPU {name} has fallen off the bus"
                    continue
        except OSError:
            pass
        for kind in ("fatal", "nonfatal"):
            total = _total(f"{path}/aer_dev_{kind}")
            if total.isdecimal() and int(total):
                yield f"GPU {name}: {total} PCIe errors ({kind})"


def _total(path: str) -> str:
    """Return the last number of a file of counters."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4096).split()[-1]
    except (OSError, IndexError):
        return ""


def _of_memory(root: str) -> Iterator[str]:
    """Tell the uncorrected errors that AMD's driver counts."""
    for card in sorted(list_entries(f"{root}/sys/class/drm")):
        folder = f"{root}/sys/class/drm/{card}/device/ras"
        for name in sorted(list_entries(folder)) if "-" not in card else ():
            words = read_attribute(f"{folder}/{name}").replace(":", " ").split()
            counts = dict(zip(words[::2], words[1::2], strict=False))
            if name.endswith("_err_count") and counts.get("ue", "0") not in ("0", ""):
                yield f"GPU {card}: {counts['ue']} uncorrected errors ({name.removesuffix('_err_count')})"


def _of_log(path: str) -> Iterator[str]:
    """Tell the last Xid of each GPU, where this user may read the kernel's log."""
    last: dict[str, str] = {}
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for _ in range(_MOST_LINES):
            try:
                line = os.read(descriptor, _KMSG_BYTES).decode(errors="replace")
            except BrokenPipeError:  # the log went on meanwhile
                continue
            if not line:
                break
            _, found, rest = line.partition("NVRM: Xid (")
            if found:
                card, _, words = rest.partition("): ")
                last[card] = words.splitlines()[0][:_SHOWN]
    except OSError:  # the end, for now
        pass
    finally:
        os.close(descriptor)
    for card, words in sorted(last.items()):
        yield f"GPU {card.removeprefix('PCI:')}: Xid {words}"


def _users(root: str) -> Iterator[str]:
    """Tell the processes that have a GPU open: this user's, all for root, and all on AMD's."""
    found: dict[str, set[str]] = {}
    for pid in list_entries(f"{root}/proc"):
        if pid.isdecimal() and (devices := _open(f"{root}/proc/{pid}/fd")):
            found.setdefault(pid, set()).update(devices)
    for pid in list_entries(f"{root}/sys/class/kfd/kfd/proc"):
        found.setdefault(pid, set()).add("/dev/kfd")
    for pid, devices in sorted(found.items()):
        name = read_attribute(f"{root}/proc/{pid}/comm")
        if pid != str(os.getpid()) and name and not name.startswith(_SERVICES):
            which = ", ".join(sorted(device.removeprefix("/dev/") for device in devices))
            yield f"process {pid} ({name}) of {_owner(f'{root}/proc/{pid}')} has {which} open"


def _open(folder: str) -> set[str]:
    found = set()
    for descriptor in list_entries(folder):
        try:
            target = os.readlink(f"{folder}/{descriptor}")
        except OSError:
            continue
        if target.startswith(_DEVICES) and target[-1].isdecimal():
            found.add(target)
    return found


def _owner(path: str) -> str:
    import pwd

    try:
        number = os.stat(path).st_uid
    except OSError:
        return "?"
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


# What names are on this host, a few at a time, and no longer than anybody waits.

_AT_ONCE = 4


class NameLookups:
    """Looks up; `found` has what was answered by now."""

    def __init__(self, loop: Loop, names: Sequence[str]) -> None:
        self._loop, self._waiting = loop, list(dict.fromkeys(names))[::-1]
        self._asked: dict[str, Lookup] = {}
        self.found: dict[str, list[str]] = {}
        for _ in range(_AT_ONCE):
            self._next()

    @property
    def is_done(self) -> bool:
        """Whether all have been answered."""
        return not self._asked and not self._waiting

    def close(self) -> None:
        """Wait for no more answers."""
        self._waiting.clear()
        for lookup in self._asked.values():
            lookup.close()

    def _next(self) -> None:
        if not self._waiting:
            return
        name = self._waiting.pop()
        try:
            self._asked[name] = Lookup(self._loop, name, self._answered)
        except (OSError, MingleError):  # no descriptor, or no thread: as if nobody had answered
            self._waiting.clear()

    def _answered(self, name: str, addresses: list[str]) -> None:
        del self._asked[name]
        self.found[name] = addresses
        self._next()


# Whoever waits looks so often whether it is over, in seconds.
POLL_S = 0.02
# Of the time since the last look no more counts, in seconds: this process, or its host, stood still for the rest.
_COUNTED_S = 2 * POLL_S


class ActiveDeadline:
    """Lasts for `limit_s` of the time in which this process comes round, but for no more than `most_s` by the clock.

    `late_s` is for how long it stood still, in seconds.
    """

    def __init__(self, clock: Callable[[], float], limit_s: float, most_s: float) -> None:
        self._clock, self._left_s = clock, limit_s
        self._last = clock()
        self._end = self._last + max(limit_s, most_s)
        self.late_s = 0.0

    @property
    def has_lasted(self) -> bool:
        """Whether what has not come by now does not come."""
        return self._left_s <= 0.0

    @property
    def is_over(self) -> bool:
        """Whether nobody waits any longer."""
        return self.has_lasted or self._last >= self._end

    def look(self) -> None:
        """Take note that the process has come round."""
        now = self._clock()
        passed_s, self._last = now - self._last, now
        self.late_s += max(passed_s - _COUNTED_S, 0.0)
        self._left_s -= min(passed_s, _COUNTED_S)


# A question to the kernel that may hang, asked in a child: a thread that hangs there could not be left behind.

_READ_BYTES = 64 * 1024
_REAP_S = 0.05
# A host that stands still may take so many times as long by the clock.
_MOST_TIMES = 10


class ChildCall:
    """Calls `question()` in a child, and `on_answer(value)` here with what it returns; None where that takes longer."""

    def __init__(
        self, loop: Loop, question: Callable[[], object], limit_s: float, on_answer: Callable[[Any], None]
    ) -> None:
        self._loop, self._on_answer, self._said = loop, on_answer, b""
        reading, writing = os.pipe2(os.O_CLOEXEC)
        self._pid = os.fork()
        if not self._pid:
            _answer(question, writing)
        os.close(writing)
        self._pipe = FileIO(reading)
        loop.watch(self._pipe, READ, lambda _events: self._read())
        self._deadline = ActiveDeadline(loop.clock, limit_s, limit_s * _MOST_TIMES)
        self._timer = loop.after(POLL_S, self._look)

    def _look(self) -> None:
        self._deadline.look()
        if self._deadline.is_over:
            self._end(is_late=True)
        else:
            self._timer = self._loop.after(POLL_S, self._look)

    def _read(self) -> None:
        data = os.read(self._pipe.fileno(), _READ_BYTES)
        self._said += data
        if not data:
            self._end(is_late=False)

    def _end(self, *, is_late: bool) -> None:
        self._timer.cancel()
        self._loop.unwatch(self._pipe)
        self._pipe.close()
        if is_late:
            os.kill(self._pid, signal.SIGKILL)
        self._reap()
        try:
            self._on_answer(values.from_json(self._said))
        except (ValueError, RecursionError):
            self._on_answer(None)

    def _reap(self) -> None:
        """Take note of its end; one that hangs in the kernel ends some time, or stays behind."""
        if os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            self._loop.after(_REAP_S, self._reap)


def _answer(question: Callable[[], object], writing: int) -> None:
    """Write the answer, and end; whatever goes wrong is none."""
    try:
        data = values.to_json(question()).encode()
        while data:
            data = data[os.write(writing, data) :]
    finally:
        os._exit(0)


# A file system of the network, or a device, has so long to answer, in seconds.
_DEVICE_LIMIT_S = 1.0


class DeviceFacts:
    """Free space and GPU faults, asked in children where that may hang; `on_known()` comes once these have answered."""

    def __init__(self, loop: Loop, environ: Mapping[str, str], on_known: Callable[[], None]) -> None:
        self._loop, self._on_known, self._pending = loop, on_known, 0
        self._free: dict[str, list[int] | None] = {}
        self.faults: list[str] = []
        for path in space_places(environ):
            if on_network(path):
                self._free[path] = None  # in its place
                self._ask(partial(space_of, path), partial(self._take_space, path))
            else:
                self._take_space(path, space_of(path))
        if has_gpu():
            self._ask(gpu_faults, self._take_faults)

    @property
    def is_known(self) -> bool:
        """Whether nothing is being asked any more."""
        return not self._pending

    @property
    def spaces(self) -> list[Body]:
        """Each directory's row; one that does not exist has none."""
        rows = [Space(printable(path, _LONGEST), *(free or (None, None))) for path, free in self._free.items()]
        return [row._asdict() for row, free in zip(rows, self._free.values(), strict=True) if free != []]

    def _ask(self, question: Callable[[], object], on_answer: Callable[[Any], None]) -> None:
        self._pending += 1

        def answered(value: object) -> None:
            self._pending -= 1
            on_answer(value)
            self._on_known()

        ChildCall(self._loop, question, _DEVICE_LIMIT_S, answered)

    def _take_space(self, path: str, free: list[int] | None) -> None:
        self._free[path] = free

    def _take_faults(self, faults: list[str] | None) -> None:
        if faults is None:
            faults = [f"its GPUs did not report their state within {_DEVICE_LIMIT_S:g} s"]
        self.faults += [printable(fault, _LONGEST) for fault in faults]
