"""GPUs and RDMA ports of this node, and how a task that sees one GPU is shown all of them: `--bind gpu`.

Frameworks take LOCAL_RANK for the number of a task's GPU, so each task has to see all of its node's; NCCL reaches a
GPU of another task directly (P2P, cuMem) only if it sees it. A task may see what it may open: access(2) checks the
device cgroup too, and calls no driver.
"""

from __future__ import annotations

import os
import re
import select
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple

from mingle_hooks.files import close_descriptors_except
from mingle_hooks.net.addresses import list_entries, read_attribute

# How many GPUs this process may use: from variables and device files, without running anything.

# A device in its runtime's variable: a number or a UUID.
_CUDA, _ROCM = "[0-9]+|(GPU|MIG)-[A-Za-z0-9/-]+", "[0-9]+|GPU-[A-Za-z0-9/-]+"
_LEVEL_ZERO = r"[0-9]+(\.[0-9]+)?"  # device, or device.tile
# NVIDIA (WSL's dxg too), AMD, Intel, Gaudi, Trainium, TPU, Ascend, Cambricon, Moore Threads.
_DEVICES = ("nvidia", "dri/renderD", "accel/", "cambricon", "mtgpu")
_WHOLE_DEVICES = ("dxg", "kfd")
_NUMBERED_DEVICES = ("accel", "hl", "neuron", "vfio/", "davinci")
_TOPS = ("dri", "accel", "vfio")
# The first that is set counts. HIP reads its own variable on top of ROCR's, so it comes first.
_VARIABLES = (
    ("CUDA_VISIBLE_DEVICES", _CUDA),
    ("HIP_VISIBLE_DEVICES", _ROCM),
    ("ROCR_VISIBLE_DEVICES", _ROCM),
    ("ZE_AFFINITY_MASK", _LEVEL_ZERO),
)


def visible_gpus(environ: Mapping[str, str], root: str = "/") -> int | None:
    """Return the number of GPUs: 0 if there are certainly none, None if it is unknown.

    A visibility variable that is set decides, also an empty one. In a container NVIDIA_VISIBLE_DEVICES comes next,
    unless it is "all", "void" or empty, which leave the decision to the device files.
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
    # In a CDI container /proc lists the whole host, and /dev only the granted devices; on a host on which nothing has
    # used CUDA since the boot, /dev is still empty.
    nvidia = device_files(f"{root}/dev", "nvidia") or list_entries(f"{root}/proc/driver/nvidia/gpus")
    return len(nvidia or amd_gpus(root)) or None


def has_accelerator(environ: Mapping[str, str], root: str = "/") -> bool:
    """Return whether this process may use an accelerator of any make; False only if nothing looks like one.

    A device file is enough, usable or not: otherwise a program would silently train on the CPU.
    """
    found = visible_gpus(environ, root)
    if found is not None:
        return found > 0
    names = list_entries(f"{root}/dev")
    names += [f"{top}/{name}" for top in _TOPS for name in list_entries(f"{root}/dev/{top}")]
    return any(
        name.startswith(_DEVICES)
        or name in _WHOLE_DEVICES
        or (name[-1].isdigit() and name.rstrip("0123456789") in _NUMBERED_DEVICES)
        for name in names
    )


def _listed(text: str, device: str) -> int:
    """Count up to the first entry that names no device: CUDA ignores what follows it (-1, NoDevFiles)."""
    is_device = [re.fullmatch(device, entry.strip()) is not None for entry in text.split(",")]
    return [*is_device, False].index(False)


def device_files(folder: str, name: str) -> list[str]:
    """Return the paths of the device files of this name and a number."""
    return [
        f"{folder}/{entry}"
        for entry in list_entries(folder)
        if entry.startswith(name) and entry.removeprefix(name).isdigit()
    ]


def amd_gpus(root: str) -> list[str]:
    """Return the directories of AMD's GPUs below /sys."""
    nodes = f"{root}/sys/class/kfd/kfd/topology/nodes"
    return [
        f"{nodes}/{node}" for node in list_entries(nodes) if read_attribute(f"{nodes}/{node}/gpu_id") not in ("", "0")
    ]


# Files that query a device are read in a child process, which can be left behind if the device does not answer.
#
# exec, and the end of the process, would wait for a thread that hangs in the kernel.

ANSWER_S = 0.5  # an mlx5 device takes a millisecond; a broken one takes a minute
BUSY_S = 3.0  # if the node is slow: the child waits for a processor, not for a device
END_S = 0.25  # a killed child ends at once, unless it waits for a processor or hangs in the kernel
_SIGKILL = 9
_READ_BYTES = 1 << 16


def read_in_child(paths: Sequence[str]) -> dict[str, str] | None:
    """Return path -> attribute, "" for an unreadable one; None if not all were read in time."""

    def read(pipe: int) -> None:
        os.write(pipe, "\n".join(read_attribute(path).replace("\n", " ") for path in paths).encode())

    data, is_over = output_of_child(read, ANSWER_S)
    values = data.decode("utf-8", "replace").split("\n") if is_over else []
    return dict(zip(paths, values, strict=True)) if len(values) == len(paths) else None


def output_of_child(write: Callable[[int], None], within_s: float) -> tuple[bytes, bool]:
    """Call a function with a pipe in a child; return what it wrote, and whether it ended in time."""
    here, there = os.pipe()
    try:
        pid = _fork()
    except OSError:
        os.close(here)
        os.close(there)
        raise
    if pid == 0:
        try:  # the child must not return to the parent's code
            # If this child is left behind, it must hold no leader's port, and no stream that is read to its end.
            close_descriptors_except(there)
            write(there)
        finally:
            os._exit(0)
    os.close(there)
    data, is_over = b"", False
    try:
        data, is_over = _receive(here, within_s, pid)
    finally:
        # Where SIGCHLD is ignored, as a caller may have it, the kernel reaps the child.
        with suppress(ProcessLookupError):
            os.kill(pid, _SIGKILL)
        # A child that hangs in the kernel cannot be killed yet; it ends by itself later.
        is_dead = is_over or _receive(here, END_S, pid)[1]
        with suppress(ChildProcessError):
            os.waitpid(pid, 0 if is_dead else os.WNOHANG)
        os.close(here)
    return data, is_over


def _receive(pipe: int, within_s: float, pid: int) -> tuple[bytes, bool]:
    """Return what the child wrote, and whether it ended in time.

    While the child gets on or waits for a processor, the time is extended in steps.
    """
    data, now, ran = b"", time.monotonic(), _processor_time(pid)
    deadline, last = now + within_s, now + BUSY_S
    poll = select.poll()  # knows descriptors above 1023, which select() does not
    poll.register(pipe, select.POLLIN)
    while True:
        if poll.poll(max(deadline - time.monotonic(), 0.0) * 1000):
            part = os.read(pipe, _READ_BYTES)
            if not part:
                return data, True
            data += part
        else:
            before, ran = ran, _processor_time(pid)
            if deadline >= last or (ran == before and not _is_runnable(pid)):
                return data, False
            deadline += within_s


def _processor_time(pid: int) -> str:
    """Return the nanoseconds that a process has run, and has waited for a processor; "" if the kernel does not say."""
    return read_attribute(f"/proc/{pid}/schedstat")


def _is_runnable(pid: int) -> bool:
    """Return whether a process waits only for a processor: proc(5), field 3."""
    return read_attribute(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1] == ["R"]


def _fork() -> int:
    """Fork without Python's warning about threads, such as those of JAX: the child uses none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return os.fork()


# The active ports of this host's RDMA devices, as UCX_NET_DEVICES names them.


RDMA = "/sys/class/infiniband"


def rdma_ports(root: str = RDMA) -> dict[str, str]:
    """Return port -> directory, such as "mlx5_0:1", in numeric order."""
    return {
        f"{device}:{port}": f"{root}/{device}/ports/{port}"
        for device in sorted(list_entries(root), key=_natural)
        for port in sorted(list_entries(f"{root}/{device}/ports"), key=_natural)
    }


def active_rdma_ports(root: str = RDMA) -> tuple[str, ...] | None:
    """Return the active ports in numeric order, () without RDMA devices, None if it is unknown which are active."""
    ports = rdma_ports(root)
    try:
        # Each read of a state queries the device, which may take a minute if it is broken.
        states = read_in_child([f"{path}/state" for path in ports.values()]) if ports else {}
    except OSError:  # no other process may be started: the world has formed, so this member does not fail
        return None
    if states is None:
        return None
    return tuple(name for name, path in ports.items() if states[f"{path}/state"].endswith("ACTIVE"))  # "4: ACTIVE"


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort mlx5_2 before mlx5_10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]


# The variables that Slurm sets for a task's GPUs. A MIG instance has no number and no peers.
MASKS = (*dict(_VARIABLES), "GPU_DEVICE_ORDINAL")
_MIG = "MIG-"


class GpuBinding(NamedTuple):
    """The variables that show a task all GPUs of its node, and a note for the user."""

    variables: Mapping[str, str] = MappingProxyType({})
    note: str = ""


NONE = GpuBinding()


def gpu_binding(
    environ: Mapping[str, str],
    local_rank: int,
    local_count: int,
    granted: int | None,
    *,
    is_requested: bool,
    root: str = "/",
) -> GpuBinding:
    """Return the variables that show a task all GPUs of its node; the scheduler `granted` its tasks that many.

    There is nothing to change if the task sees several, or if the node has one.
    """
    masked = [name for name in MASKS if name in environ]
    mask = next((name for name in masked if name in MASKS[:3]), "")
    if not mask or visible_gpus(environ) != 1 or local_count == 1 or environ[mask].startswith(_MIG):
        return NONE
    usable = _usable(root)
    # With an unknown number of GPUs several tasks may share one, and its number need not be this task's own.
    if granted is None and environ[mask].strip() != str(local_rank):
        return NONE
    count = granted or usable
    if count <= 1:
        return NONE
    seen = f"this task sees one of the node's {count} GPUs ({mask}={environ[mask]})"
    if not is_requested:
        breaks = "LOCAL_RANK cannot select another, and NCCL may not reach the other tasks' GPUs directly"
        return GpuBinding(note=f"{seen}: {breaks}; try --bind gpu, or srun --gpu-bind=none")
    if why_not := _why_not(environ[mask].strip(), usable, count, local_count):
        return GpuBinding(note=f"--bind gpu changes nothing: {seen}, and {why_not}")
    every = ",".join(str(number) for number in range(count))
    return GpuBinding({name: every for name in masked if environ[name] != every})


def _why_not(device: str, usable: int, count: int, local_count: int) -> str:
    """Return why a task cannot see all GPUs by the numbers from 0 on; empty if it can."""
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
    """Return the number of GPUs that this process may open: NVIDIA's, else those with a render device."""
    files = device_files(f"{root}/dev", "nvidia") or device_files(f"{root}/dev/dri", "renderD")
    return sum(os.access(file, os.R_OK | os.W_OK) for file in files)
