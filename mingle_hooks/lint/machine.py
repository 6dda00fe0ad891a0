"""The machine and its kernel: versions, GPUs, limits, space."""

from __future__ import annotations

import os
from itertools import count as count_from
from typing import TYPE_CHECKING

from mingle_hooks.fabric.gpus import visible_gpus
from mingle_hooks.fabric.sysfs import attribute, entries
from mingle_hooks.lint.asked import text
from mingle_hooks.lint.text import FULL, NOTHING

if TYPE_CHECKING:
    from mingle_hooks.lint.asked import Asked

MIB, GIB = 1 << 20, 1 << 30
# Less free than this is full: NCCL and data loaders take more at once.
LEAST_FREE_BYTES = 32 * MIB
# Modules whose version is a driver's; NVIDIA's is so well known that it needs no name.
_DRIVERS = ("nvidia", "amdgpu", "neuron", "habanalabs")
# Device ids of pci.ids (NVIDIA, AMD) -> what people call them; others are shown by number.
_MODELS = {
    "0x1db1": "V100",
    "0x1db4": "V100",
    "0x1db5": "V100",
    "0x1db6": "V100",
    "0x1eb8": "T4",
    "0x20b0": "A100",
    "0x20b1": "A100",
    "0x20b2": "A100",
    "0x20b5": "A100",
    "0x20f1": "A100",
    "0x20f3": "A800",
    "0x2236": "A10",
    "0x2237": "A10G",
    "0x2235": "A40",
    "0x26b9": "L40S",
    "0x26b5": "L40",
    "0x27b8": "L4",
    "0x2330": "H100",
    "0x2331": "H100-PCIe",
    "0x2321": "H100-NVL",
    "0x2335": "H200",
    "0x2324": "H800",
    "0x2329": "H20",
    "0x2342": "GH200",
    "0x2901": "B200",
    "0x2941": "GB200",
    "0x3182": "B300",
    "0x31c2": "GB300",
    "0x738c": "MI100",
    "0x7408": "MI250X",
    "0x740c": "MI250X",
    "0x740f": "MI210",
    "0x74a0": "MI300A",
    "0x74a1": "MI300X",
    "0x74a5": "MI325X",
    "0x75a0": "MI350X",
    "0x75a3": "MI355X",
}
# Numbers of files and processes follow the memory: what is above this is enough, and not compared.
ENOUGH = 4096
UNLIMITED = "unlimited"
_CAP_IPC_LOCK = 14  # linux/capability.h; who has it may lock all memory, but only outside of user namespaces
_ALL_USERS = "0 0 4294967295"


def kernel(asked: Asked) -> dict[str, str]:
    """Return the kernel's release and the architecture."""
    machine = os.uname()
    release = attribute(f"{asked.root}/proc/sys/kernel/osrelease") or machine.release
    return {"kernel": release, "kernel.machine": machine.machine}


def driver(asked: Asked) -> dict[str, str]:
    """Return the version of the accelerators' driver."""
    found = []
    for module in _DRIVERS:
        version = attribute(f"{asked.root}/sys/module/{module}/version")
        if not version and module == "nvidia":
            # Its first line reads "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan …".
            words = text(f"{asked.root}/proc/driver/nvidia/version", 256).partition("\n")[0].split()
            version = next((word for word in words if word[0].isdigit() and "." in word), "")
        if version:
            found.append(version if module == "nvidia" else f"{module} {version}")
    return {"driver": ", ".join(found) or NOTHING}


def gpus(asked: Asked) -> dict[str, str]:
    """Return `8 H100`: how many accelerators this process may use, and their model.

    Nothing below /proc/driver/nvidia/gpus/*/ is read: it takes the driver's power lock.
    """
    count = visible_gpus(asked.environ, asked.root)
    nvidia = entries(f"{asked.root}/proc/driver/nvidia/gpus")
    if nvidia:
        ids = {attribute(f"{asked.root}/sys/bus/pci/devices/{device.lower()}/device") for device in nvidia}
        if "MIG-" not in asked.environ.get("CUDA_VISIBLE_DEVICES", ""):
            count = min(count or 0, len(nvidia))  # the scheduler's list may name one that has fallen off the bus
    else:
        ids = _amd(asked.root)
    if count is None:  # neither NVIDIA's nor AMD's
        neuron = next(number for number in count_from(0) if not os.path.exists(f"{asked.root}/dev/neuron{number}"))
        count = neuron or len(entries(f"{asked.root}/dev/accel"))
        ids = {"neuron"} if neuron else {"accel"}
    models = sorted(_MODELS.get(its, its) for its in ids if its)
    return {"gpus": " ".join([str(count), *models]) if count else NOTHING}


def _amd(root: str) -> set[str]:
    nodes = f"{root}/sys/class/kfd/kfd/topology/nodes"
    for node in entries(nodes):
        if attribute(f"{nodes}/{node}/gpu_id") not in ("", "0"):
            lines = (line.split() for line in text(f"{nodes}/{node}/properties").splitlines())
            return {f"{int(its[1]):#06x}" for its in lines if its[:1] == ["device_id"]}
    return set()


def limits(asked: Asked) -> dict[str, str]:
    """Return the limits that break jobs, in classes: what is above them follows the memory."""
    found = {f"limits.{name}": _limit(name, soft) for name, soft in asked.limits.items()}
    if found.get("limits.memlock", UNLIMITED) != UNLIMITED and _may_lock(asked.root):
        found["limits.memlock"] = UNLIMITED
    return found


def _limit(name: str, soft: int) -> str:
    if name == "memlock":
        return _size(soft) if 0 <= soft < GIB else UNLIMITED  # RLIM_INFINITY is -1
    return str(1 << soft.bit_length() - 1 if soft else 0) if 0 <= soft < ENOUGH else f"{ENOUGH}+"


def _may_lock(root: str) -> bool:
    lines = text(f"{root}/proc/self/status").splitlines()
    capabilities = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)
    users = text(f"{root}/proc/self/uid_map", 256).split()
    return bool(capabilities >> _CAP_IPC_LOCK & 1) and " ".join(users) == _ALL_USERS


def space(asked: Asked) -> dict[str, str]:
    """Tell whether the memory file system and /tmp have room, and how large a small one is."""
    found = {}
    for name, path in (("shm", "/dev/shm"), ("tmp", "/tmp")):  # noqa: S108 - what is looked at
        try:
            its = asked.statvfs(f"{asked.root}{path}")
        except OSError:
            continue
        total, free = its.f_blocks * its.f_frsize, its.f_bavail * its.f_frsize
        is_small = name == "shm" and total < GIB
        found[name] = FULL if free < LEAST_FREE_BYTES else _size(total) if is_small else "ok"
    return found


def _size(count: int) -> str:
    """Return the power of two that is next below a number of bytes: 64K, 8M."""
    kib = 1 << max(count >> 10, 1).bit_length() - 1
    return f"{kib >> 10}M" if kib >= 1 << 10 else f"{kib}K"
