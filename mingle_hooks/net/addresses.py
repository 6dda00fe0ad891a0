"""This host's interfaces, addresses and names, which address other hosts can reach best, and its free TCP ports."""

from __future__ import annotations

import errno
import ipaddress
import itertools
import os
import pwd
import socket
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address
from typing import Literal, NamedTuple

from mingle_hooks.errors import NetworkError, NoPortError, UsageError, limit, reason
from mingle_hooks.files import UnusableFileError, contents, read_bounded

Address = ipaddress.IPv4Interface | ipaddress.IPv6Interface


class ListedAddress(NamedTuple):
    """One address, without zone, and the interface that carries it."""

    name: str
    ifindex: int
    address: str
    prefix: int


def list_addresses() -> list[ListedAddress]:
    """Return every address of this network namespace, in the kernel's order. Raises NetworkError.

    This is one call of getifaddrs(3), so an interface that vanishes meanwhile is listed completely or not at all.
    """
    try:
        import ifaddr  # 30 ms, which a single member does not need

        adapters = list(ifaddr.get_adapters())
    except OSError as error:  # a container may forbid the netlink sockets that the C library uses
        raise limit(error) or NetworkError(
            "the kernel's list of this host's addresses",
            reason(error),
            "`ip -br address` on this host, and allowing netlink sockets in its container",
        ) from None
    found = []
    for adapter in adapters:
        if adapter.index is None:  # it is gone
            continue
        for ip in adapter.ips:
            address = ip.ip if isinstance(ip.ip, str) else ip.ip[0]
            # getifaddrs(3) gives an IPv4 address with a label as an interface "eth0:label".
            name = adapter.name.partition(":")[0]
            found.append(ListedAddress(name, adapter.index, address.partition("%")[0], ip.network_prefix))
    return found


# Reading the kernel's files under /sys and /proc, of which most have one line, and other files as short.


def read_attribute(path: str, most: int = 4096) -> str:
    """Return the first `most` bytes of a file without white space around them, or "" if it cannot be read.

    That is no failure: the speed of a link that is down is EINVAL, a GPU behind the device cgroup is EPERM, and devices
    come and go.
    """
    try:
        return read_bounded(path, most).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def list_entries(path: str) -> list[str]:
    """Return a directory's entries, or none without that hardware, driver or file system."""
    try:
        return os.listdir(path)
    except OSError:
        return []


# Which machine this is, so that members can tell whether they share a network stack.

_LONGEST_HOST = 253  # RFC 1035
# Of a host name, which cannot begin with the last two. Compiling a regular expression would cost more than it saves.
HOST_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"


def hostname() -> str:
    """Return this host's name as members exchange it: letters, digits, '-', '_' and '.' only."""
    name = "".join(letter if letter in HOST_CHARACTERS else "_" for letter in socket.gethostname())
    return f"_{name[1:]}" if name[:1] in (".", "-") else name or "unnamed"


def is_hostname(text: str) -> bool:
    """Return whether this can be a host's name, as hostname() returns it, of at most 253 characters."""
    return 0 < len(text) <= _LONGEST_HOST and not text.strip(HOST_CHARACTERS) and text[0] not in ".-"


def is_hostname_or_address(text: str) -> bool:
    """Return whether this can be a host's name, or an address without brackets, IPv6 with its zone too."""
    return 0 < len(text) <= _LONGEST_HOST and not text.strip(HOST_CHARACTERS + ":%") and text[0] not in ".-%"


def machine_id() -> str:
    """Return 16 hex digits that processes share if they share kernel and network namespace.

    Host names are not enough, as containers and cloned machines often share them. Without /proc (macOS) there is
    nothing else.
    """
    boot = read_attribute("/proc/sys/kernel/random/boot_id")
    stack = f"{boot} {os.stat('/proc/self/ns/net').st_ino}" if boot else socket.gethostname()
    return sha256(stack.encode()).hexdigest()[:16]


# This host's network interfaces, and which of their addresses other hosts can reach.

Kind = Literal["infiniband", "ethernet", "loopback", "virtual"]

LOOPBACK = "127.0.0.1"
_NET = "sys/class/net"
# Hardware types of /sys/class/net/*/type, from linux/if_arp.h.
_INFINIBAND, _LOOPBACK = "32", "772"
_TUNNELS = ("768", "769", "776", "778", "823")  # ipip, ip6tnl, sit, gre, ip6gre: never a fabric of their own
# Names that container and machine managers give to networks of their own guests, and the host's end of a DPU. A pod's
# own interface is a veth too, but is called eth0, so the name counts and not the driver.
_VIRTUAL = (
    *("docker", "virbr", "veth", "vnet", "cni", "flannel", "cali", "vxlan.calico", "cilium_", "weave", "lxcbr"),
    *("lxdbr", "podman", "tunl", "kube", "nodelocaldns", "dummy", "ifb", "tmfifo"),
)
_DOCKERS_BRIDGE, _BRIDGE_DIGITS = "br-", 12  # and so many hexadecimal digits of its network's id
# The kernel allows 15 bytes without '/', ':' or spaces; of these, what the frameworks' lists can carry.
_LONGEST_INTERFACE = 15
_NAME_CHARACTERS = HOST_CHARACTERS + "@+"
# operstate of an interface that carries packets; loopback, tun and some bonds say "unknown".
_UP_STATES = ("up", "unknown")
# Addresses of one kind that a message lists, as it has room for about a dozen.
MOST_LISTED = 6


class Interface(NamedTuple):
    """One network interface; an unknown speed is None."""

    name: str
    ifindex: int
    kind: Kind
    speed_mbps: int | None
    up: bool
    addresses: tuple[Address, ...]
    # Known only if there are several interfaces to choose from.
    has_rdma: bool = False
    is_default: bool = False  # the default route leaves by it


class UsableAddress(NamedTuple):
    """An address that a leader may offer, with its network and the interface that carries it."""

    interface: Interface
    address: Address
    why: str = ""  # why it comes before or after others of its speed, if anything decides

    @property
    def host(self) -> str:
        """The bare address, IPv6 without brackets."""
        return str(self.address.ip)


class Preference(NamedTuple):
    """A network that the user or the site named: an interface's name or a CIDR, one of the two."""

    text: str
    network: ipaddress.IPv4Network | ipaddress.IPv6Network | None

    def matches(self, name: str | None, *addresses: IPv4Address | IPv6Address) -> bool:
        """Return whether an interface of this name, or with one of these addresses, is meant."""
        network = self.network
        return name == self.text if network is None else any(address in network for address in addresses)


def preference(text: str) -> Preference:
    """Read NAME or CIDR, as `--iface` takes it; a bare address is a network of one. Raises UsageError."""
    if set(text) & set("/:") or (text and not text.strip("0123456789.")):
        try:
            return Preference(text, ipaddress.ip_network(text, strict=False))
        except ValueError:
            raise _not_a_network(text) from None
    if not 0 < len(text) <= _LONGEST_INTERFACE or text.strip(_NAME_CHARACTERS) or text[0] in ".@+-":
        raise _not_a_network(text)
    return Preference(text, None)


def _not_a_network(text: str) -> UsageError:
    expected = "an interface name of at most 15 characters, or a network such as 10.1.0.0/16"
    return UsageError(expected, repr(text), "--iface ib0, or the network's CIDR; `ip -br address` lists both")


def interfaces(root: str = "/") -> tuple[Interface, ...]:
    """Return every interface of this network namespace, in the kernel's order, with what describe() adds.

    Raises NetworkError.
    """
    listed = by_index(list_addresses())  # first: without netlink sockets neither works, and this raises NetworkError
    return describe({**dict.fromkeys(socket.if_nameindex(), ()), **listed}, root)


def by_index(listed: Iterable[ListedAddress]) -> dict[tuple[int, str], list[Address]]:
    """Return the addresses of each interface that has any, by its index and name."""
    found: dict[tuple[int, str], list[Address]] = {}
    for name, ifindex, host, prefix in listed:
        found.setdefault((ifindex, name), []).append(ipaddress.ip_interface(f"{host}/{prefix}"))
    return found


def describe(found: Mapping[tuple[int, str], Iterable[Address]], root: str = "/") -> tuple[Interface, ...]:
    """Return these interfaces, each by its index and name and with its addresses, in the order of their indices.

    Kind, speed and state come from sysfs; without it (macOS) the speed is unknown and an interface with an address
    counts as up. RDMA devices and the default route are looked up only if other hosts may be on several interfaces.
    """
    seen = [_interface(root, name, ifindex, addresses) for (ifindex, name), addresses in sorted(found.items())]
    if sum(any(_why_not(one, address, named=False) is None for address in one.addresses) for one in seen) <= 1:
        return tuple(seen)
    default = default_interface(root)
    rdma = {one.name for one in seen if list_entries(f"{root}/{_NET}/{one.name}/device/infiniband")}
    return tuple(one._replace(has_rdma=one.name in rdma, is_default=one.name == default) for one in seen)


def _interface(root: str, name: str, index: int, addresses: Iterable[Address]) -> Interface:
    folder = f"{root}/{_NET}/{name}"
    speed = read_attribute(f"{folder}/speed")
    # -1, also as an unsigned number, is the kernel's "unknown".
    mbps = int(speed) if speed.isdecimal() and 0 < int(speed) < 2**32 - 1 else None
    is_up = (read_attribute(f"{folder}/operstate") or "unknown") in _UP_STATES
    return Interface(name, index, _kind(name, read_attribute(f"{folder}/type")), mbps, is_up, tuple(addresses))


def _kind(name: str, hardware: str) -> Kind:
    if hardware == _LOOPBACK or (not hardware and name.rstrip("0123456789") == "lo"):
        return "loopback"
    if hardware == _INFINIBAND:
        return "infiniband"
    return "virtual" if hardware in _TUNNELS or is_virtual_name(name) else "ethernet"


def is_virtual_name(name: str) -> bool:
    """Return whether a name is that of a network within this host, such as managers of containers give to guests."""
    bridge, _, digits = name.partition(_DOCKERS_BRIDGE)
    is_dockers = not bridge and len(digits) == _BRIDGE_DIGITS and not digits.strip("0123456789abcdef")
    return is_dockers or name.startswith(_VIRTUAL)


def usable(
    interfaces: Iterable[Interface],
    *,
    prefer: Sequence[Preference] = (),
    environ: Mapping[str, str] | None = None,
    root: str = "/",
) -> tuple[UsableAddress, ...]:
    """Return the addresses that other members can reach, the best first.

    Order: the preferences as given (with any, others are left out), NCCL's interfaces by the user's `environ` or by
    files, no RDMA rail, InfiniBand, speed, IPv4 before IPv6, the default route's interface, index. Loopback is never
    used, and a network of guests (docker and the like) only if a preference names it.
    Raises NetworkError, which says why each address was left out.
    """
    found: list[tuple[int, UsableAddress]] = []  # each after the place of its preference
    left_out: dict[str, list[str]] = {}
    for interface in interfaces:
        if not interface.addresses:
            left_out.setdefault("no address", []).append(interface.name)
        for address in interface.addresses:
            wish = next((i for i, p in enumerate(prefer) if p.matches(interface.name, address.ip)), None)
            why_not = _why_not(interface, address, named=wish is not None)
            if prefer and wish is None:
                why_not = why_not or "not on a requested network"
            if why_not:
                left_out.setdefault(why_not, []).append(f"{interface.name} {address.ip}")
            else:
                found.append((wish or 0, UsableAddress(interface, address)))
    if not found:
        requested = f" on {' or '.join(p.text for p in prefer)}" if prefer else ""
        raise NetworkError(
            f"an address{requested} that the other hosts can reach",
            ", ".join(f"{_few(which)} ({why_not})" for why_not, which in left_out.items()) or "no network interface",
            "--iface NAME|CIDR (`ip -br address` lists them)",
        )
    # A network that is set for NCCL is the job's, so MASTER_ADDR should be on it too.
    is_one = len({one.interface.name for _, one in found}) == 1
    return _ordered(found, None if is_one or environ is None else nccl_ifname(environ, root))


def _ordered(found: list[tuple[int, UsableAddress]], nccl: NcclSetting | None) -> tuple[UsableAddress, ...]:
    names = {one.interface.name for _, one in found}
    first = {name for name in names if nccl is not None and is_nccl_interface(nccl.value, name)}
    last = rails(one for _, one in found)

    def rank(entry: tuple[int, UsableAddress]) -> tuple[object, ...]:
        wish, (interface, address, _) = entry
        fast = interface.kind != "infiniband", -(interface.speed_mbps or 0)
        equal = address.version, not interface.is_default, interface.ifindex
        return (wish, interface.name not in first, interface.name in last, *fast, *equal)

    why = dict.fromkeys(last, "an RDMA rail")
    if nccl is not None:
        why |= dict.fromkeys(first, f"set for NCCL by {nccl.source}")
    return tuple(one._replace(why=why.get(one.interface.name, "")) for _, one in sorted(found, key=rank))


def _few(which: list[str]) -> str:
    """Return the first few as text, so that the rest of a message is not cut off."""
    rest = len(which) - MOST_LISTED
    return ", ".join(which[:MOST_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def _why_not(interface: Interface, address: Address, *, named: bool) -> str | None:
    if not interface.up:
        return "down"
    if address.ip.is_loopback:
        return "loopback"
    if address.ip.is_link_local:
        return "link-local"
    if address.ip.is_multicast or address.ip.is_unspecified:
        return "not a host's address"
    if interface.kind in ("virtual", "loopback") and not named:
        return interface.kind
    return None


def is_loopback(host: str) -> bool:
    """Return whether an address is a loopback address."""
    return host.startswith("127.") or host == "::1"


def is_preferred(host: str, prefer: Sequence[Preference]) -> bool:
    """Return whether one of this host's own addresses is on a preferred network. Raises NetworkError."""
    address, name = ipaddress.ip_address(host.partition("%")[0]), _carrier(host)
    return any(p.matches(name, address) for p in prefer)


def interface_of(host: str) -> str | None:
    """Return the name of the interface with this local address, or None, also if the kernel lists no addresses."""
    if host == LOOPBACK:  # the address of a world of one: no need to load ifaddr, which takes 13 ms
        for name in list_entries(f"/{_NET}"):
            if read_attribute(f"/{_NET}/{name}/type") == _LOOPBACK:
                return name
    try:
        return _carrier(host)
    except NetworkError:  # the world has formed: frameworks choose an interface themselves
        return None


def _carrier(host: str) -> str | None:
    return next((found.name for found in list_addresses() if found.address == host), None)


# The interface of the default route, from the kernel's own tables.

# linux/route.h: a usable route, and one that rejects.
_ROUTE_UP, _REJECT = 0x1, 0x200


def default_interface(root: str = "/") -> str | None:
    """Return the interface of the default route with the least metric, IPv4's if there is one, or None."""
    # Interface, flags and metric of each default route; of equal ones the kernel lists its choice first.
    four, six = rows(f"{root}/proc/net/route", 11), rows(f"{root}/proc/net/ipv6_route", 10)
    routes4 = [(row[0], int(row[3], 16), int(row[6])) for row in four if row[1] == row[7] == "0" * 8]
    routes6 = [(row[9], int(row[8], 16), int(row[5], 16)) for row in six if row[:2] == ["0" * 32, "00"]]
    for routes in (routes4, routes6):
        found = [(metric, name) for name, flags, metric in routes if flags & _ROUTE_UP and not flags & _REJECT]
        if found:
            return min(found, key=lambda route: route[0])[1]
    return None


def rows(path: str, columns: int) -> Iterator[list[str]]:
    """Yield the first fields of each line of a table in /proc that has so many columns."""
    try:
        with open(path, errors="replace") as table:  # an interface's name may be any bytes
            yield from (fields[:columns] for fields in map(str.split, table) if len(fields) >= columns)
    except OSError:  # no /proc, or no IPv6
        return


# RDMA rails: interfaces that each connect one GPU to a network of its own.
#
# NCCL finds them by itself, for data. A rendezvous on one of them would put the connections of a whole job on one GPU's
# link, which the other rails of other hosts do not reach.

# Machines have one rail for each GPU, or for two. Fewer interfaces are a node's fast network, or that of its storage.
FEWEST = 4
# A node has this many interfaces on one network only for its GPUs.
FEWEST_OF_ONE_NETWORK = 8


def rails(usable: Iterable[UsableAddress]) -> set[str]:
    """Return the names of the rails among interfaces with addresses that other hosts can reach.

    Rails are at least four Ethernet interfaces of one speed, each with an RDMA device and with networks of its own, or
    eight on any networks: Oracle's sixteen are all on 192.168.0.0/16 (oci-hpc, rdma-network.conf).
    """
    alike: dict[int | None, list[tuple[str, object]]] = {}
    for interface, address, _ in usable:
        if interface.kind == "ethernet" and interface.has_rdma:
            alike.setdefault(interface.speed_mbps, []).append((interface.name, address.network))
    found: set[str] = set()
    for carried in alike.values():
        names = {name for name, _ in carried}
        # One interface may have two addresses of one network, two interfaces may not.
        is_separate = len(set(carried)) == len({network for _, network in carried})
        if len(names) >= (FEWEST if is_separate else FEWEST_OF_ONE_NETWORK):
            found |= names
    return found


# NCCL's settings of the site or the user: in its files, or as variables.
#
# Read in NCCL 2.30: src/misc/param.cc reads the files, src/misc/socket.cc and utils.cc interpret NCCL_SOCKET_IFNAME.
# An exported variable silently overrides a file's value.

NCCL_IFNAME = "NCCL_SOCKET_IFNAME"
_NCCL_CONF = "etc/nccl.conf"
# NCCL's own buffers cut longer text.
_NCCL_LONGEST_BYTES = 1023
# A larger file is ignored, as is anything but a regular file, such as a pipe without a writer.
_NCCL_MOST_BYTES = 1 << 16


class NcclSetting(NamedTuple):
    """A value, and its file or "the environment"."""

    value: str
    source: str


def nccl_settings(environ: Mapping[str, str], root: str = "/") -> dict[str, NcclSetting]:
    """Return the settings that NCCL will take from its files, given the user's environment.

    The first file that sets a variable counts: NCCL_CONF_FILE, by default .nccl.conf in the account's home (not HOME),
    then /etc/nccl.conf.
    """
    found: dict[str, NcclSetting] = {}
    for path in _nccl_files(environ, root):
        for name, value in _nccl_lines(path):
            if name not in environ:
                found.setdefault(name, NcclSetting(value, path))
    return found


def nccl_ifname(environ: Mapping[str, str], root: str = "/") -> NcclSetting | None:
    """Return the setting of NCCL's interfaces, or None; NCCL ignores a value of one character."""
    if NCCL_IFNAME in environ:
        found: NcclSetting | None = NcclSetting(environ[NCCL_IFNAME], "the environment")
    else:
        found = nccl_settings(environ, root).get(NCCL_IFNAME)
    return found if found is not None and len(found.value) > 1 else None


def is_nccl_interface(text: str, name: str) -> bool:
    """Return whether NCCL_SOCKET_IFNAME=text selects an interface: eth takes eth0, =eth0 only that, ^eth the others."""
    is_others = text.startswith("^")
    rest = text[is_others:]
    is_exact = rest.startswith("=")
    names = [entry.partition(":")[0] for entry in rest[is_exact:].split(",")]
    is_listed = any(name == one if is_exact else name.startswith(one) for one in names if one)
    return is_listed != is_others


def _nccl_files(environ: Mapping[str, str], root: str) -> list[str]:
    own = environ.get("NCCL_CONF_FILE")
    if not own:
        with suppress(KeyError):  # a container's user without an account
            own = f"{pwd.getpwuid(os.getuid()).pw_dir}/.nccl.conf"
    return [*([own] if own else []), os.path.join(root, _NCCL_CONF)]


def _nccl_lines(path: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of each line as NCCL reads it: nothing is stripped, and comments begin with `#`."""
    try:
        data = contents(path, most_bytes=_NCCL_MOST_BYTES, refused_mode=0, owners=None)
    except (OSError, ValueError, UnusableFileError):
        return
    for line in data.decode(errors="surrogateescape").split("\n"):
        name, is_setting, value = line.partition("=")
        if is_setting and not line.startswith("#"):
            yield name[:_NCCL_LONGEST_BYTES], value[:_NCCL_LONGEST_BYTES]


# A free TCP port: which to try, how to bind one, and how to reserve it for the framework.

# 5,000 ports that no other program uses by default: below Linux's ephemeral range (32768-60999) and Kubernetes' node
# ports (30000-32767), clear of torch's 29400 and 29500, MongoDB's 27017, FlexLM's 27000-27009 and RabbitMQ's 25672,
# above PBS' 15001-15009 and Ray's workers (10002-19999). Slurm (6817-6819), LSF (6878-7870), SGE (6444) and the file
# systems are far below.
DEFAULT_RANGE = range(20_000, 25_000)
LOWEST, HIGHEST = 1024, 65_535  # below 1024 only root may bind
# Many members connect at the same time; the kernel cuts this to net.core.somaxconn.
BACKLOG = 65_535
# A connection to this host's own address takes microseconds, unless a firewall drops it.
_KEEP_TIMEOUT_S = 2.0
# A socket's state in /proc/net/tcp: include/net/tcp_states.h.
_LISTEN, _TIME_WAIT = "0A", "06"


def ephemeral_range(path: str = "/proc/sys/net/ipv4/ip_local_port_range") -> range:
    """Return the ports that the kernel gives to outgoing connections; without /proc IANA's."""
    fields = read_attribute(path).split()
    ends = [int(field) for field in fields if field.isascii() and field.isdigit()]
    is_range = len(fields) == len(ends) == 2 and max(ends) <= HIGHEST  # noqa: PLR2004 - its two ends
    return range(ends[0], ends[1] + 1) if is_range else range(49_152, 65_536)


def candidates(seed: bytes, count: int, port_range: range = DEFAULT_RANGE) -> tuple[int, ...]:
    """Return `count` distinct ports of the range, or all if it has fewer, the same for the same seed.

    This is a Fisher-Yates shuffle that stops after `count` ports, driven by SHA-256, so that all members find the same
    ports in the same order.
    """
    moved: dict[int, int] = {}
    chosen = []
    for i in range(min(count, len(port_range))):
        digest = sha256(seed + i.to_bytes(4, "big")).digest()
        j = i + int.from_bytes(digest[:8], "big") % (len(port_range) - i)
        chosen.append(port_range[moved.get(j, j)])
        moved[j] = moved.get(i, i)
    return tuple(chosen)


def listen(address: str, candidates: Sequence[int], port_range: range = DEFAULT_RANGE) -> socket.socket:
    """Return a listening socket on the first free port: the candidates in order, then the rest of the range.

    It is bound without SO_REUSEADDR, so a port that another world reserves (see `keep`) is skipped.
    Raises NetworkError if every port is in use, or the address is not this host's.
    """
    wanted = dict.fromkeys((*candidates, *port_range))
    for port in wanted:
        if (listener := bound(address, port)) is not None:
            return listener
    raise NetworkError(
        f"a free port on {address}",
        f"all of the {len(wanted)} ports tried are taken{time_wait_text(wanted)}",
        "a wider --port-range A-B, or ending what listens there (see `ss -tan`)",
    )


# linger(on, 0 s), socket(7): a closed connection is gone at once, without TIME_WAIT.
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def bound(address: str, port: int, *, reuse: bool = False, hold: bool = True) -> socket.socket | None:
    """Return a socket that listens on one port, or None if the port is in use.

    With `reuse` a port that is merely in TIME_WAIT is bound too. Without `hold` its accepted connections leave nothing
    in TIME_WAIT when they are closed. Raises NetworkError if the address is not this host's.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if reuse:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        if not hold:  # accepted connections inherit it, and the first may come as soon as this listens
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        listener.listen(BACKLOG)
        if reuse:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)  # hold() needs that
    except OSError as wrong:
        listener.close()
        if wrong.errno == errno.EADDRINUSE:
            return None
        raise limit(wrong) or NetworkError(
            f"to listen on {address} port {port}", f"{wrong.strerror}", "--iface with a network of this host"
        ) from None
    except BaseException:
        listener.close()
        raise
    return listener


def hold(listener: socket.socket) -> None:
    """Stop listening, and reserve the port until the listener is closed.

    On Linux shutdown(2) leaves a listener bound. The kernel then refuses every other bind, of any user, as long as the
    listener has no SO_REUSEADDR: two sockets that have it, and do not listen, may both be bound.
    """
    try:
        listener.shutdown(socket.SHUT_RDWR)
    except OSError:  # another kernel
        listener.close()


def keep(listener: socket.socket) -> None:
    """Hold the port of a listener from `listen`; once it is closed, reserve the port for the framework for 60 s.

    A connection that the server closes first stays in TIME_WAIT: the kernel then never picks the port for a bind to
    port 0. A plain bind fails, but one with SO_REUSEADDR, as by torch's store and most servers, succeeds. Raises
    NetworkError if this host cannot reach its own address.
    """
    address = listener.getsockname()
    try:
        with socket.socket(listener.family, socket.SOCK_STREAM) as client:
            client.settimeout(_KEEP_TIMEOUT_S)
            client.connect(address)
            listener.settimeout(_KEEP_TIMEOUT_S)
            peer = None
            while peer != client.getsockname():  # another client may have connected before
                served, peer = listener.accept()
                # A later bind with SO_REUSEADDR succeeds only if the connection in TIME_WAIT has it too.
                served.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                served.close()
            client.recv(1)  # wait until the server's end is closed
        hold(listener)
    except OSError as wrong:
        raise limit(connect_error(wrong, listener.family, address)) or NetworkError(
            f"to reach this host's own {address[0]} port {address[1]}",
            str(wrong.strerror or wrong),
            "`ip link set lo up`, or a firewall rule that lets a host talk to itself",
        ) from None


def connect_error(error: OSError, family: int, where: tuple[object, ...]) -> OSError:
    """Return an error of connect(2), or NoPortError if EADDRNOTAVAIL means that this host's ports are used up."""
    if error.errno != errno.EADDRNOTAVAIL:
        return error
    with socket.socket(family, socket.SOCK_DGRAM) as other:
        try:
            other.connect(where)
        except OSError:  # there is no local address to connect from either
            return error
    among = ephemeral_range()
    which = f"all {len(among)} local ports for connections are in use"
    return NoPortError(error.errno, f"{which} (sysctl net.ipv4.ip_local_port_range: {among.start} to {among.stop - 1})")


def time_wait_text(wanted: Collection[int]) -> str:
    """Return, for a message, how many of these ports are in use only by closed connections."""
    ports: dict[str, set[int]] = {_LISTEN: set(), _TIME_WAIT: set()}
    for _, local, _, state in itertools.chain(rows("/proc/net/tcp", 4), rows("/proc/net/tcp6", 4)):
        if state in ports:
            ports[state].add(int(local.rpartition(":")[2], 16))
    count = len((ports[_TIME_WAIT] - ports[_LISTEN]) & set(wanted))
    which = "" if count == len(wanted) else f"{count} of them "
    return f", {which}by closed connections, for up to a minute (TIME_WAIT)" if count else ""
