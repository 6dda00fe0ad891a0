"""What is wrong with the GPUs here, as far as anybody may read: errors, what fell off the bus, who else uses them.

Asked in a child: reading a device's own registers, or the counters that its driver keeps, waits for the device. Nothing
reads /proc/driver/nvidia/gpus/*/information, which takes the driver's power lock.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mingle_hooks.fabric.sysfs import attribute, entries

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_FAULTS = 16
_NVIDIA, _AMD = "10de", "1002"
# PCI classes of VGA and 3D controllers, and of accelerators.
_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
# Services that have a GPU open and take none of it.
_SERVICES = ("nvidia-persiste", "nv-hostengine", "nvidia-fabricma", "nv-fabricmanage", "nvidia-smi", "dcgm", "Xorg")
_DEVICES = ("/dev/nvidia", "/dev/dri/renderD", "/dev/kfd")
_KMSG_BYTES, _MOST_LINES = 8192, 20_000
_SHOWN = 200


def faults(root: str = "/") -> list[str]:
    """Return one line for each fault."""
    found = [*_of_bus(root), *_of_memory(root), *_of_log(f"{root}/dev/kmsg"), *_users(root)]
    return found[:MOST_FAULTS]


def is_any(root: str = "/") -> bool:
    """Tell whether there is a GPU to ask, without asking it."""
    return next(_cards(root), None) is not None or bool(entries(f"{root}/proc/driver/nvidia/gpus"))


def _cards(root: str) -> Iterator[str]:
    """Yield the PCI names of GPUs of those makes that train."""
    devices = f"{root}/sys/bus/pci/devices"
    for name in sorted(entries(devices)):
        vendor, kind = attribute(f"{devices}/{name}/vendor"), attribute(f"{devices}/{name}/class")
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
    for card in sorted(entries(f"{root}/sys/class/drm")):
        folder = f"{root}/sys/class/drm/{card}/device/ras"
        for name in sorted(entries(folder)) if "-" not in card else ():
            words = attribute(f"{folder}/{name}").replace(":", " ").split()
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
    for pid in entries(f"{root}/proc"):
        if pid.isdecimal() and (devices := _open(f"{root}/proc/{pid}/fd")):
            found.setdefault(pid, set()).update(devices)
    for pid in entries(f"{root}/sys/class/kfd/kfd/proc"):
        found.setdefault(pid, set()).add("/dev/kfd")
    for pid, devices in sorted(found.items()):
        name = attribute(f"{root}/proc/{pid}/comm")
        if pid != str(os.getpid()) and name and not name.startswith(_SERVICES):
            which = ", ".join(sorted(device.removeprefix("/dev/") for device in devices))
            yield f"process {pid} ({name}) of {_owner(f'{root}/proc/{pid}')} has {which} open"


def _open(folder: str) -> set[str]:
    found = set()
    for descriptor in entries(folder):
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
