"""A free TCP port: which to try, how to bind one, and how to reserve it for the framework."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Collection, Sequence
from hashlib import sha256

from mingle_hooks.errors import NetworkError, NoPortError, limit
from mingle_hooks.net.addresses import read_attribute

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


def has_ipv6() -> bool:
    """Return whether Python and the kernel have IPv6 (not with ipv6.disable=1)."""
    if not socket.has_ipv6:
        return False
    try:
        socket.socket(socket.AF_INET6, socket.SOCK_STREAM).close()
    except OSError:
        return False
    return True


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
            "a firewall rule that lets a host talk to itself",
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
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path) as table:
                rows = [line.split()[1:4:2] for line in [*table][1:]]
        except OSError:
            continue
        for local, state in rows:
            ports.get(state, set()).add(int(local.rpartition(":")[2], 16))
    count = len((ports[_TIME_WAIT] - ports[_LISTEN]) & set(wanted))
    which = "" if count == len(wanted) else f"{count} of them "
    return f", {which}by closed connections, for up to a minute (TIME_WAIT)" if count else ""
