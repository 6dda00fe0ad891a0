"""NCCL's bootstrap network: which interface, and which of its addresses.

Which RDMA devices it takes, and how, is left to NCCL and to the site: docs/networks.md says why.
"""

from __future__ import annotations

from mingle_hooks.world import View

_IFNAME, _FAMILY = "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY"


def settings(view: View) -> dict[str, str]:
    """Return this node's interface; `=` makes it exact, without it eth1 would match eth10 too.

    The family is that of the world's address on it, so it is left out where somebody else names the interface.
    """
    iface, address = view.place.iface, view.place.address
    if not iface or not address:
        return {}
    named = {_IFNAME: f"={iface}"}
    if _IFNAME in view.site or view.user_environ.get(_IFNAME, named[_IFNAME]) != named[_IFNAME]:
        return named
    return {**named, _FAMILY: "AF_INET6" if ":" in address else "AF_INET"}
