"""The active ports of this host's RDMA devices, as NCCL_IB_HCA and UCX_NET_DEVICES name them."""

from __future__ import annotations

import re

from mingle_hooks.fabric.sysfs import attribute, entries


def active_ports(root: str = "/sys/class/infiniband") -> tuple[tuple[str, str], ...]:
    """Return ("mlx5_0:1", "InfiniBand") for each active port, numbers in order; () without RDMA devices.

    The second is the link layer: "InfiniBand", or "Ethernet" for RoCE.
    """
    found = []
    for device in sorted(entries(root), key=_natural):
        for port in sorted(entries(f"{root}/{device}/ports"), key=_natural):
            # The state reads "4: ACTIVE".
            if attribute(f"{root}/{device}/ports/{port}/state").endswith("ACTIVE"):
                layer = attribute(f"{root}/{device}/ports/{port}/link_layer")
                found.append((f"{device}:{port}", layer or "InfiniBand"))
    return tuple(found)


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort mlx5_2 before mlx5_10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]
