"""Which GPUs of the node a task sees, where the scheduler or a wrapper leaves it one: `--bind gpu` shows it all.

Frameworks take LOCAL_RANK for the number of a task's GPU, so each task has to see all of its node's; NCCL reaches a
GPU of another task directly (P2P, cuMem) where it sees it. What a task may see is what it may open: access(2) asks the
device cgroup too, and no driver.
"""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from mingle_hooks.files import close_descriptors_except
from mingle_hooks.net.addresses import list_entries, read_attribute

# How many GPUs this process may use, told by variables and device files, without running anything.

_DIGITS = "0123456789"
# What comes before a device's UUID in its runtime's variable; otherwise it is a number.
_CUDA, _ROCM = ("GPU-", "MIG-"), ("GPU-",)
_LEVEL_ZERO = ()  # device, or device.tile
_UUID_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/-"
# NVIDIA (WSL's dxg too), AMD, Intel, Gaudi, Trainium, TPU, Ascend, Cambricon, Moore Threads.
_DEVICES = ("nvidia", "dri/renderD", "accel/", "cambricon", "mtgpu")
_WHOLE_DEVICES = ("dxg", "kfd")
_NUMBERED_DEVICES = ("accel", "hl", "neuron", "vfio/", "davinci")
_TOPS = ("dri", "accel", "vfio")
# The first that is set tells. HIP reads its own variable on top of ROCR's, so it comes before.
_VARIABLES = (
    ("CUDA_VISIBLE_DEVICES", _CUDA),
    ("HIP_VISIBLE_DEVICES", _ROCM),
    ("ROCR_VISIBLE_DEVICES", _ROCM),
    ("ZE_AFFINITY_MASK", _LEVEL_ZERO),
)


def visible_gpus(environ: Mapping[str, str], root: str = "/") -> int | None:
    """Return how many GPUs; 0 where something says that there are none, None where nothing says anything.

    A visibility variable that is set decides, an empty one included. In a container
    NVIDIA_VISIBLE_DEVICES decides next, unless it says "all", or "void" or nothing, which leave it to
    the device files.
    """
    for variable, device in _VARIABLES:
        if variable in environ:
            return _listed(environ[variable], device)
    granted = environ.get("NVIDIA_VISIBLE_DEVICES", "").strip()
    if granted == "none":
        return 0
    # "void" only keeps the old container runtime away: Kubernetes sets it where CDI brings the devices in.
    if granted not in ("", "all", "void"):
        return _listed(granted, _CUDA)
    return _nvidia(root) or _amd(root) or None


def has_accelerator(environ: Mapping[str, str], root: str = "/") -> bool:
    """Tell whether this process may use an accelerator of any make; False only where nothing looks like one.

    A device file is enough, whether it can be used or not: who takes a node for one without accelerators would
    train there on the CPU, and say nothing.
    """
    found = visible_gpus(environ, root)
    if found is not None:
        return found > 0
    names = [
        *list_entries(f"{root}/dev"),
        *(f"{top}/{name}" for top in _TOPS for name in list_entries(f"{root}/dev/{top}")),
    ]
    return any(
        name.startswith(_DEVICES)
        or name in _WHOLE_DEVICES
        or (name[-1] in _DIGITS and name.rstrip(_DIGITS) in _NUMBERED_DEVICES)
        for name in names
    )


def _listed(text: str, prefixes: tuple[str, ...]) -> int:
    """Count up to the first entry that names no device: CUDA ignores what follows it (-1, NoDevFiles)."""
    count = 0
    for entry in text.split(","):
        if not _is_device(entry.strip(), prefixes):
            break
        count += 1
    return count


def _is_device(name: str, prefixes: tuple[str, ...]) -> bool:
    for prefix in prefixes:
        if name.startswith(prefix):
            return name != prefix and not name.strip(_UUID_CHARACTERS)
    parts = name.split(".", 1) if prefixes == _LEVEL_ZERO else [name]  # device.tile
    return all(part and not part.strip(_DIGITS) for part in parts)


def _nvidia(root: str) -> int:
    # In a container that CDI made, /proc lists the whole host and /dev only what was granted; on a
    # host where nothing has used CUDA since the boot, /dev is still empty.
    devices = sum(1 for name in list_entries(f"{root}/dev") if name.startswith("nvidia") and name[6:].isdigit())
    return devices or len(list_entries(f"{root}/proc/driver/nvidia/gpus"))


def _amd(root: str) -> int:
    nodes = f"{root}/sys/class/kfd/kfd/topology/nodes"
    return sum(1 for node in list_entries(nodes) if read_attribute(f"{nodes}/{node}/gpu_id") not in ("", "0"))


# Reading what asks a device: in a child, which can be left behind where the device does not answer.
#
# A thread would not do: exec, and the end of the process, wait for one that hangs in the kernel.

ANSWER_S = 0.5  # an mlx5 device takes a millisecond; one that is sick takes a minute
BUSY_S = 3.0  # so long where it is this node that is slow: the child does not wait for a device, but for a processor
END_S = 0.25  # and one that is killed ends at once, unless it hangs in the kernel
_SIGKILL = 9
_READ_BYTES = 1 << 16


def read_in_child(paths: Sequence[str]) -> dict[str, str] | None:
    """Return path -> its attribute, "" for what cannot be read; None where not all came in time."""
    here, there = os.pipe()
    try:
        pid = _fork()
    except OSError:
        os.close(here)
        os.close(there)
        raise
    if pid == 0:
        _send_attributes(there, paths)
    os.close(there)
    text = None
    try:
        text = _receive(here, ANSWER_S, pid)
    finally:
        os.kill(pid, _SIGKILL)
        # One that hangs in the kernel cannot even be killed yet; it ends by itself, later.
        is_over = text is not None or _receive(here, END_S) is not None
        os.waitpid(pid, 0 if is_over else os.WNOHANG)
        os.close(here)
    values = text.split("\n") if text is not None else []
    return dict(zip(paths, values, strict=True)) if len(values) == len(paths) else None


def _send_attributes(pipe: int, paths: Sequence[str]) -> None:
    """Write an attribute a line, and end: whatever happens, nothing of the parent's goes on here."""
    try:
        # Where it is left behind, it holds no port of a leader's, and no stream that somebody reads to its end.
        close_descriptors_except(pipe)
        os.write(pipe, "\n".join(read_attribute(path).replace("\n", " ") for path in paths).encode())
    finally:
        os._exit(0)


def _receive(pipe: int, within_s: float, pid: int | None = None) -> str | None:
    """Return all that the child wrote until it ended, None where it has not by then.

    One with a `pid` that does not get a processor has longer, in steps.
    """
    data, now = b"", time.monotonic()
    deadline, last = now + within_s, now + BUSY_S
    poll = select.poll()  # knows descriptors above 1023, which select() does not
    poll.register(pipe, select.POLLIN)
    while True:
        if poll.poll(max(deadline - time.monotonic(), 0.0) * 1000):
            part = os.read(pipe, _READ_BYTES)
            if not part:
                return data.decode("utf-8", "replace")
            data += part
        elif pid is None or deadline >= last or not _is_runnable(pid):
            return None
        else:
            deadline += within_s


def _is_runnable(pid: int) -> bool:
    """Tell whether a process waits for nothing but a processor: proc(5), field 3."""
    return read_attribute(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1] == ["R"]


def _fork() -> int:
    """Fork; where a library has loaded threads, as JAX has, it would be warned of what the child never does."""
    if "threading" not in sys.modules:
        return os.fork()
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return os.fork()


# The active ports of this host's RDMA devices, as NCCL_IB_HCA and UCX_NET_DEVICES name them.


def active_rdma_ports(root: str = "/sys/class/infiniband") -> tuple[tuple[str, str], ...] | None:
    """Return ("mlx5_0:1", "InfiniBand") for each active port, numbers in order; () without RDMA devices.

    The second is the link layer: "InfiniBand", or "Ethernet" for RoCE. None where a device does not answer.
    """
    ports = {
        f"{device}:{port}": f"{root}/{device}/ports/{port}"
        for device in sorted(list_entries(root), key=_natural)
        for port in sorted(list_entries(f"{root}/{device}/ports"), key=_natural)
    }
    # Each read of a state asks the device, which may take a minute where it is sick.
    states = read_in_child([f"{path}/state" for path in ports.values()]) if ports else {}
    if states is None:
        return None
    # The state reads "4: ACTIVE".
    active = [(name, path) for name, path in ports.items() if states[f"{path}/state"].endswith("ACTIVE")]
    return tuple((name, read_attribute(f"{path}/link_layer") or "InfiniBand") for name, path in active)


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort mlx5_2 before mlx5_10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]


# All that Slurm sets for a task's GPUs, of whatever make. An instance of MIG has no number, and no peers.
MASKS = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ZE_AFFINITY_MASK",
)
_MIG = "MIG-"


class GpuBinding(NamedTuple):
    """The variables that show a task all GPUs of its node, and what a person should know."""

    variables: Mapping[str, str] = MappingProxyType({})
    note: str = ""


NONE = GpuBinding()


def gpu_binding(
    environ: Mapping[str, str], local_rank: int, local_count: int, granted: int | None, *, asked: bool, root: str = "/"
) -> GpuBinding:
    """Return how a task sees its node's GPUs, of which the scheduler `granted` so many to all tasks together.

    Nothing where it sees several, or where there is one for all.
    """
    masked = [name for name in MASKS if name in environ]
    mask = next((name for name in masked if name in MASKS[:3]), "")
    if not mask or visible_gpus(environ) != 1 or local_count == 1 or environ[mask].startswith(_MIG):
        return NONE
    usable = _usable(root)
    # Where nobody tells how many there are, several tasks may share one GPU: then its number is not their own.
    if granted is None and environ[mask].strip() != str(local_rank):
        return NONE
    count = granted or usable
    if count <= 1:
        return NONE
    seen = f"this task sees one of the node's {count} GPUs ({mask}={environ[mask]})"
    if not asked:
        breaks = "LOCAL_RANK cannot select another, and NCCL may not reach the other tasks' GPUs directly"
        return GpuBinding(note=f"{seen}: {breaks}; try --bind gpu, or srun --gpu-bind=none")
    if why_not := _why_not(environ[mask].strip(), usable, count, local_count):
        return GpuBinding(note=f"--bind gpu changes nothing: {seen}, and {why_not}")
    every = ",".join(str(number) for number in range(count))
    return GpuBinding({name: every for name in masked if environ[name] != every})


def _why_not(device: str, usable: int, count: int, local_count: int) -> str:
    """Return why a task cannot see all GPUs under the numbers from 0 on; empty where it can."""
    if not device.isdigit():
        return "the scheduler names it by its UUID, not by a number"
    if usable < count:
        return f"its device cgroup allows only {usable} of them; try srun --gpu-bind=none"
    if usable > count:
        return f"mingle cannot tell which of this host's {usable} belong to the job; try srun --gpu-bind=none"
    if local_count > count:
        return f"{local_count} tasks share them"
    return ""


def _usable(root: str) -> int:
    """Return how many GPUs this process may open: NVIDIA's, else those that the kernel renders with."""
    for top, begin in ("dev", "nvidia"), ("dev/dri", "renderD"):
        names = [f"{root}/{top}/{name}" for name in list_entries(f"{root}/{top}") if _is_numbered(name, begin)]
        if names:
            return sum(1 for name in names if os.access(name, os.R_OK | os.W_OK))
    return 0


def _is_numbered(name: str, begin: str) -> bool:
    return name.startswith(begin) and name[len(begin) :].isdigit()
