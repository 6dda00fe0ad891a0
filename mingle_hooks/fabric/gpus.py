"""How many GPUs this process may use, told by variables and device files, without running anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.fabric.sysfs import attribute, entries

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    names = [*entries(f"{root}/dev"), *(f"{top}/{name}" for top in _TOPS for name in entries(f"{root}/dev/{top}"))]
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
    devices = sum(1 for name in entries(f"{root}/dev") if name.startswith("nvidia") and name[6:].isdigit())
    return devices or len(entries(f"{root}/proc/driver/nvidia/gpus"))


def _amd(root: str) -> int:
    nodes = f"{root}/sys/class/kfd/kfd/topology/nodes"
    return sum(1 for node in entries(nodes) if attribute(f"{nodes}/{node}/gpu_id") not in ("", "0"))
