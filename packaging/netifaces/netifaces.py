"""The interface of netifaces 0.11 in pure Python, for Linux: addresses from ifaddr, the rest from the kernel's files.

multicast-expert requires netifaces, which needs a C compiler and has no wheel for Python 3.10 and later. This
distribution takes its place where netifaces is not installed yet. What each function returns has the shape that the
original gives it. Only routes of tables other than the main one are missing from `gateways()`, for IPv4.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ifaddr import IP

version = "0.11.0.post1"

# linux/socket.h. Where two names share a number, the last one is the number's name in `address_families`.
_FAMILIES = {
    "AF_UNSPEC": 0, "AF_UNIX": 1, "AF_FILE": 1, "AF_INET": 2, "AF_AX25": 3, "AF_IPX": 4, "AF_APPLETALK": 5,
    "AF_NETROM": 6, "AF_BRIDGE": 7, "AF_ATMPVC": 8, "AF_X25": 9, "AF_INET6": 10, "AF_ROSE": 11, "AF_DECnet": 12,
    "AF_NETBEUI": 13, "AF_SECURITY": 14, "AF_KEY": 15, "AF_ROUTE": 16, "AF_NETLINK": 16, "AF_LINK": 17,
    "AF_PACKET": 17, "AF_ASH": 18, "AF_ECONET": 19, "AF_ATMSVC": 20, "AF_SNA": 22, "AF_IRDA": 23, "AF_PPPOX": 24,
    "AF_WANPIPE": 25, "AF_BLUETOOTH": 31, "AF_ISDN": 34,
}  # fmt: skip
globals().update(_FAMILIES)
address_families = {number: name for name, number in _FAMILIES.items()}
AF_INET, AF_INET6, AF_LINK = (_FAMILIES[name] for name in ("AF_INET", "AF_INET6", "AF_LINK"))

_SYS = "/sys/class/net"
# linux/sockios.h, linux/if.h
_SIOCGIFFLAGS, _SIOCGIFDSTADDR, _SIOCGIFBRDADDR = 0x8913, 0x8917, 0x8919
_IFF_LOOPBACK, _IFF_POINTOPOINT = 0x8, 0x10
_IFREQ = struct.Struct("=16sHH4s16x")  # name; family, port, address
# linux/route.h, linux/ipv6_route.h
_RTF_UP, _RTF_GATEWAY = 0x1, 0x2
# linux/netlink.h, linux/rtnetlink.h
_RTM_NEWADDR, _RTM_GETADDR, _DUMP = 20, 22, 0x301
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_HEADER, _ADDRESS, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=BBBBI"), struct.Struct("=HH")
_ANSWER_S = 5.0


def interfaces() -> list[str]:
    """Return the names of all interfaces, and the labels of addresses such as eth0:1."""
    return list(_adapters())


def ifaddresses(name: str, /) -> dict[int, list[dict[str, str]]]:
    """Return family -> addresses of one interface. Raises ValueError where there is none of that name."""
    if not isinstance(name, str):
        raise TypeError(f"ifaddresses() argument must be str, not {type(name).__name__}")
    ips = _adapters().get(name)
    if ips is None:
        raise ValueError("You must specify a valid interface name.")
    with socket.socket(AF_INET, socket.SOCK_DGRAM) as sock:
        flags = struct.unpack_from("=H", _ioctl(sock, _SIOCGIFFLAGS, name) or bytes(18), 16)[0]
        other = "peer" if flags & (_IFF_POINTOPOINT | _IFF_LOOPBACK) else "broadcast"
        entries = [(AF_LINK, _link(name, other))]
        peers = _ipv6_peers() if any(ip.is_IPv6 for ip in ips) else {}
        for ip in ips:
            if ip.is_IPv4:
                entries.append((AF_INET, _ipv4(sock, name, ip, other)))
            else:
                entries.append((AF_INET6, _ipv6(name, ip, peers, other)))
    result: dict[int, list[dict[str, str]]] = {}
    for family, entry in entries:
        if entry:
            result.setdefault(family, []).append(entry)
    return result


def gateways() -> dict[Any, Any]:
    """Return family -> [(gateway, interface, is the default)], and "default" -> {family: (gateway, interface)}."""
    result: dict[Any, Any] = {"default": {}}
    best: dict[int, int] = {}
    for family, gateway, name, metric in (*_ipv4_gateways(), *_ipv6_gateways()):
        is_default = metric < best.get(family, metric + 1)
        if is_default:
            best[family] = metric
            result["default"][family] = (gateway, name)
        result.setdefault(family, []).append((gateway, name, is_default))
    return result


def _adapters() -> dict[str, list[IP]]:
    """Return name -> addresses. Only who asks pays for ifaddr: multicast-expert imports this module at every start."""
    import ifaddr

    return {its.name: its.ips for its in ifaddr.get_adapters(include_unconfigured=True)}


def _link(name: str, other: str) -> dict[str, str]:
    """Return the entry of an interface's own address; a tunnel, and the label of an address, have none."""
    told = {"addr": _read(f"{_SYS}/{name}/address").strip(), other: _read(f"{_SYS}/{name}/broadcast").strip()}
    return {key: value for key, value in told.items() if value}


def _ipv4(sock: socket.socket, name: str, ip: IP, other: str) -> dict[str, str]:
    mask = (0xFFFFFFFF << (32 - ip.network_prefix)) & 0xFFFFFFFF
    entry = {"addr": str(ip.ip), "netmask": socket.inet_ntoa(mask.to_bytes(4, "big"))}
    if not entry["addr"].startswith("169.254."):  # the original leaves these out
        packed = socket.inet_aton(entry["addr"])
        # As getifaddrs(3): without a broadcast address the other end, which may be the address itself.
        for request in (_SIOCGIFBRDADDR, _SIOCGIFDSTADDR):
            if (answer := _ioctl(sock, request, name, packed)) and any(address := _IFREQ.unpack(answer)[3]):
                entry[other] = socket.inet_ntoa(address)
                break
    return entry


def _ipv6(name: str, ip: IP, peers: dict[tuple[str, bytes], bytes], other: str) -> dict[str, str]:
    text, _, scope = ip.ip
    packed = socket.inet_pton(AF_INET6, text)
    full = ((1 << 128) - (1 << (128 - ip.network_prefix))).to_bytes(16, "big").hex()
    groups = [full[at : at + 4] for at in range(0, 4 * ((ip.network_prefix + 15) // 16), 4)]
    entry = {
        "addr": socket.inet_ntop(AF_INET6, packed) + (f"%{name}" if scope else ""),
        "netmask": f"{':'.join(groups)}{'::' if len(groups) < 8 else ''}/{ip.network_prefix}",  # noqa: PLR2004 - groups
    }
    if peer := peers.get((name, packed)):
        entry[other] = socket.inet_ntop(AF_INET6, peer)
    return entry


def _ipv6_peers() -> dict[tuple[str, bytes], bytes]:
    """Return (interface, address) -> the other end, by netlink(7), which alone knows; nothing where it is forbidden."""
    found: dict[tuple[str, bytes], bytes] = {}
    try:
        names = dict(socket.if_nameindex())
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
            sock.settimeout(_ANSWER_S)
            sock.send(_HEADER.pack(24, _RTM_GETADDR, _DUMP, 1, 0) + _ADDRESS.pack(AF_INET6, 0, 0, 0, 0))
            while True:
                data = sock.recv(1 << 16)
                while data:
                    length, kind, _, _, _ = _HEADER.unpack_from(data)
                    if kind != _RTM_NEWADDR:
                        return found
                    _, _, _, _, index = _ADDRESS.unpack_from(data, _HEADER.size)
                    its = _attributes(data[_HEADER.size + _ADDRESS.size : length])
                    if _IFA_LOCAL in its and index in names:
                        found[names[index], its[_IFA_LOCAL]] = its[_IFA_ADDRESS]
                    data = data[max((length + 3) & ~3, _HEADER.size) :]
    except OSError:
        return found


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        found[kind] = data[_ATTRIBUTE.size : length]
        data = data[max((length + 3) & ~3, _ATTRIBUTE.size) :]
    return found


def _ipv4_gateways() -> Iterator[tuple[int, str, str, int]]:
    for line in _read("/proc/net/route").splitlines()[1:]:
        name, destination, gateway, flags, _, _, metric, mask, *_ = line.split()
        if int(flags, 16) & _RTF_UP and int(gateway, 16) and not int(destination, 16) | int(mask, 16):
            yield AF_INET, socket.inet_ntoa(int(gateway, 16).to_bytes(4, sys.byteorder)), name, int(metric)


def _ipv6_gateways() -> Iterator[tuple[int, str, str, int]]:
    for line in _read("/proc/net/ipv6_route").splitlines():
        destination, prefix, _, _, gateway, metric, _, _, flags, name = line.split()
        if int(flags, 16) & _RTF_GATEWAY and not int(destination, 16) | int(prefix, 16):
            yield AF_INET6, socket.inet_ntop(AF_INET6, bytes.fromhex(gateway)), name, int(metric, 16)


def _ioctl(sock: socket.socket, request: int, name: str, address: bytes = bytes(4)) -> bytes | None:
    try:
        return fcntl.ioctl(sock, request, _IFREQ.pack(os.fsencode(name)[:15], AF_INET, 0, address))
    except OSError:  # it has gone, or has no such address
        return None


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:  # not there, or unreadable here
        return ""
