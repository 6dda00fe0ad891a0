"""The active ports of this host's RDMA devices, as NCCL_IB_HCA and UCX_NET_DEVICES name them."""

from __future__ import annotations

import re

from mingle_hooks.fabric import child
from mingle_hooks.fabric.sysfs import attribute, entries


def active_ports(root: str = "/sys/class/infiniband") -> tuple[tuple[str, str], ...] | None:
    """Return ("mlx5_0:1", "InfiniBand") for each active port, numbers in order; () without RDMA devices.

    The second is the link layer: "InfiniBand", or "Ethernet" for RoCE. None where a device does not answer.
    """
    ports = {
        f"{device}:{port}": f"{root}/{device}/ports/{port}"
        for device in sorted(entries(root), key=_natural)
        for port in sorted(entries(f"{root}/{device}/ports"), key=_natural)
    }
    # Each read of a state asks the device, which may take a minute where it is sick.
    states = child.read([f"{path}/state" for path in ports.values()]) if ports else {}
    if states is None:
        return None
    # The state reads "4: ACTIVE".
    active = [(name, path) for name, path in ports.items() if states[f"{path}/state"].endswith("ACTIVE")]
    return tuple((name, attribute(f"{path}/link_layer") or "InfiniBand") for name, path in active)


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort mlx5_2 before mlx5_10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]
