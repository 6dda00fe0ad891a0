"""The addresses that this host's interfaces carry."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from mingle_hooks.errors import NetworkError, limit, reason

Address = ipaddress.IPv4Interface | ipaddress.IPv6Interface


class Listed(NamedTuple):
    """One address, without zone, and the interface that carries it."""

    name: str
    ifindex: int
    address: str
    prefix: int


def listed() -> list[Listed]:
    """Return every address of this network namespace, in the kernel's order. Raises NetworkError.

    One call of getifaddrs(3): an interface that vanishes meanwhile is there whole or not at all.
    """
    import ifaddr  # 30 ms, which a single member does not need

    try:
        adapters = list(ifaddr.get_adapters())
    except OSError as error:  # a container may forbid the netlink sockets that the C library uses
        raise limit(error) or NetworkError(
            "the kernel's list of this host's addresses",
            reason(error),
            "`ip -br address` on this host, and allowing netlink sockets in its container",
        ) from None
    found = []
    for adapter in adapters:
        if adapter.index is None:  # it has gone since
            continue
        for ip in adapter.ips:
            address = ip.ip if isinstance(ip.ip, str) else ip.ip[0]
            # getifaddrs(3) gives an IPv4 address with a label as an interface "eth0:label".
            name = adapter.name.partition(":")[0]
            found.append(Listed(name, adapter.index, address.partition("%")[0], ip.network_prefix))
    return found
