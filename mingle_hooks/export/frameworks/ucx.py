"""UCX: the active RDMA ports, and the world's interface for what goes over TCP."""

from __future__ import annotations

from mingle_hooks.world import View


def settings(view: View) -> dict[str, str]:
    """Return this node's devices; the interface alone would shut InfiniBand out: none where one is silent."""
    iface = view.place.iface
    return {"UCX_NET_DEVICES": ",".join((*view.hcas, iface))} if iface and view.hcas is not None else {}
