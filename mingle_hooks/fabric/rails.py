"""RDMA rails: interfaces that lead from one GPU each to a network of its own.

NCCL finds them by itself, for data. To meet on one of them would put the connections of a whole job on one GPU's
link, and other hosts' other rails do not reach it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mingle_hooks.fabric.addresses import Address
    from mingle_hooks.fabric.interfaces import Interface

# Machines have one for a GPU, or for two. Fewer are a node's fast network, or its storage's.
FEWEST = 4


def rails(usable: Iterable[tuple[Interface, Address]]) -> frozenset[str]:
    """Return the names of the interfaces that are rails, among addresses that other hosts can reach.

    At least four Ethernet interfaces of one speed, each with an RDMA device and with networks of its own.
    """
    alike: dict[int | None, list[tuple[str, object]]] = {}
    for interface, address in usable:
        if interface.kind == "ethernet" and interface.has_rdma:
            alike.setdefault(interface.speed_mbps, []).append((interface.name, address.network))
    found: set[str] = set()
    for carried in alike.values():
        names = {name for name, _ in carried}
        # An interface may have two addresses of one network; no two interfaces may.
        if len(names) >= FEWEST and len(set(carried)) == len({network for _, network in carried}):
            found |= names
    return frozenset(found)
