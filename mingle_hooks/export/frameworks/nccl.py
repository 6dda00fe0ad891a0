"""NCCL's bootstrap network. Its own choice of InfiniBand devices is left alone."""

from __future__ import annotations

from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from mingle_hooks.export.view import View


def settings(view: View) -> dict[str, str]:
    """Return this node's interface; `=` makes it exact, without it eth1 would match eth10 too."""
    iface, address = view.place.iface, view.place.address
    if not iface or not address:
        return {}
    return {
        "NCCL_SOCKET_IFNAME": f"={iface}",
        "NCCL_SOCKET_FAMILY": "AF_INET6" if ":" in address else "AF_INET",
    }
