"""The addresses that this host's interfaces carry, as the kernel lists them."""

from __future__ import annotations

import os
import struct
import sys

from mingle_hooks import sockets as socket
from mingle_hooks.errors import NetworkError, limit, reason
from mingle_hooks.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

# linux/netlink.h and linux/rtnetlink.h: the part of the kernel's interface that lists addresses.
_RTM_NEWADDR, _RTM_GETADDR = 20, 22
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_NLM_F_REQUEST, _NLM_F_DUMP = 0x1, 0x300
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ADDRESS = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, interface index
_ATTRIBUTE = struct.Struct("=HH")  # length, type
# The kernel answers from memory; this only bounds what cannot happen.
_ANSWER_S = 5.0
_READ_BYTES = 1 << 16


class Listed(NamedTuple):
    """One address, without zone, and the interface that carries it."""

    name: str
    ifindex: int
    address: str
    prefix: int


def listed() -> list[Listed]:
    """Return every address of this network namespace, in the kernel's order. Raises NetworkError.

    On Linux by netlink(7), in one millisecond: ifaddr, which knows other systems too, takes 20, and on rank 0 the
    whole job waits for them.
    """
    try:
        return list(_by_netlink()) if sys.platform == "linux" else snapshot()
    except OSError as error:  # a container may forbid netlink sockets
        raise limit(error) or NetworkError(
            "the kernel's list of this host's addresses",
            reason(error),
            "`ip -br address` on this host, and allowing netlink sockets in its container",
        ) from None


def snapshot() -> list[Listed]:
    """Return every address as ifaddr finds them, in one call of getifaddrs(3). Raises OSError.

    Nobody is asked twice, so an interface that vanishes meanwhile is there whole or not at all.
    """
    return list(_by_ifaddr())


def _by_netlink() -> Iterator[Listed]:
    names = dict(socket.if_nameindex())
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
        sock.settimeout(_ANSWER_S)
        request = _ADDRESS.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        header = _HEADER.pack(_HEADER.size + len(request), _RTM_GETADDR, _NLM_F_REQUEST | _NLM_F_DUMP, 1, 0)
        sock.send(header + request)
        for kind, message in _messages(sock):
            if kind == _RTM_NEWADDR:
                family, prefix, _, _, ifindex = _ADDRESS.unpack_from(message)
                address = _address(family, message)
                if address is not None and ifindex in names:
                    yield Listed(names[ifindex], ifindex, address, prefix)


def _messages(sock: socket.socket) -> Iterator[tuple[int, bytes]]:
    """Yield the messages of one dump, up to its end."""
    while True:
        data = sock.recv(_READ_BYTES)
        while data:
            length, kind, _, _, _ = _HEADER.unpack_from(data)
            if kind == _NLMSG_DONE:
                return
            if kind == _NLMSG_ERROR:
                number = -struct.unpack_from("=i", data, _HEADER.size)[0]
                raise OSError(number, os.strerror(number))
            yield kind, data[_HEADER.size : length]
            data = data[_aligned(length) :]


def _address(family: int, message: bytes) -> str | None:
    """Return the interface's own address; on a point-to-point link IFA_ADDRESS is the other end's."""
    if family not in (socket.AF_INET, socket.AF_INET6):
        return None
    found, position = {}, _ADDRESS.size
    while position + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, position)
        found[kind] = message[position + _ATTRIBUTE.size : position + length]
        position += _aligned(max(length, _ATTRIBUTE.size))
    packed = found.get(_IFA_LOCAL) or found.get(_IFA_ADDRESS)
    return socket.inet_ntop(family, packed) if packed else None


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def _by_ifaddr() -> Iterator[Listed]:
    import ifaddr

    for adapter in ifaddr.get_adapters():
        if adapter.index is None:  # it has gone since
            continue
        for ip in adapter.ips:
            address = ip.ip if isinstance(ip.ip, str) else ip.ip[0]
            # getifaddrs(3) gives an IPv4 address with a label as an interface "eth0:label".
            name = adapter.name.partition(":")[0]
            yield Listed(name, adapter.index, address.partition("%")[0], ip.network_prefix)
