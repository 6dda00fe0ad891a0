"""The interfaces that carry beacons, as multicast_expert takes them."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from mingle_hooks.errors import NetworkError
from mingle_hooks.fabric.addresses import listed
from mingle_hooks.fabric.interfaces import interfaces, is_virtual_name, usable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from multicast_expert import IfaceInfo

    from mingle_hooks.fabric.addresses import Listed

# Interfaces used at the most, the kernel allows 20 groups to a socket; no node has more networks that matter.
MOST_INTERFACES = 4


def carriers(nets: Sequence[str]) -> list[IfaceInfo]:
    """Return this host's interfaces to use, `nets` being names or CIDRs that were asked for. Raises NetworkError.

    multicast_expert's own scan lists names and then asks netifaces for each, which raises where one has gone
    meanwhile: pods and virtual machines that come and go on a node are reason enough.
    """
    infos = _infos(listed())
    return chosen(infos if len(infos) <= MOST_INTERFACES else _best_first(infos), nets)


def chosen(infos: Sequence[IfaceInfo], nets: Sequence[str]) -> list[IfaceInfo]:
    """Return the interfaces to use: those that were asked for, else all real ones, else loopback."""
    if nets:
        return [info for info in infos if any(_matches(info, net) for net in nets)][:MOST_INTERFACES]
    real = [info for info in infos if not _is_loopback(info) and not is_virtual_name(info.machine_name)]
    return real[:MOST_INTERFACES] or [info for info in infos if _is_loopback(info)]


def _best_first(infos: list[IfaceInfo]) -> list[IfaceInfo]:
    """Return them in the order in which a world would use them: rails reach nobody but rails of the same number."""
    try:
        best = [address.interface.name for address in usable(interfaces())]
    except NetworkError:
        return infos
    return sorted(infos, key=lambda info: best.index(info.machine_name) if info.machine_name in best else len(best))


def _infos(found: Iterable[Listed]) -> list[IfaceInfo]:
    """Return multicast_expert's description of each interface that has an address, by its index."""
    from mingle_hooks.rendezvous.discovery.multicast import library

    library.load()  # 30 ms, paid only where multicast is used
    from multicast_expert import IfaceInfo

    four: dict[tuple[int, str], list[ipaddress.IPv4Interface]] = {}
    six: dict[tuple[int, str], list[ipaddress.IPv6Interface]] = {}
    for name, ifindex, address, prefix in found:
        key, its = (ifindex, name), ipaddress.ip_interface(f"{address}/{prefix}")
        if isinstance(its, ipaddress.IPv4Interface):
            four.setdefault(key, []).append(its)
        else:
            six.setdefault(key, []).append(its)
    return [
        IfaceInfo(name, ifindex, None, four.get((ifindex, name), []), six.get((ifindex, name), []))
        for ifindex, name in sorted({*four, *six})
    ]


def _is_loopback(info: IfaceInfo) -> bool:
    """Tell whether this is loopback; IfaceInfo.is_localhost() knows 127.0.0.1/32 only, not /8."""
    return any(address.ip.is_loopback for address in _addresses(info))


def _matches(info: IfaceInfo, net: str) -> bool:
    if "/" not in net:
        return info.machine_name == net
    network = ipaddress.ip_network(net, strict=False)
    return any(address.ip in network for address in _addresses(info))


def _addresses(info: IfaceInfo) -> list[ipaddress.IPv4Interface | ipaddress.IPv6Interface]:
    return [*info.ip4_addrs, *info.ip6_addrs]
