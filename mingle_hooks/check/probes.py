"""The part of a check on one host: it reports what the host is, and probes other hosts on order."""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.check import facts, report
from mingle_hooks.check.facts import POLL_S, ActiveDeadline, NameLookups
from mingle_hooks.check.report import LATE, NO_ECHO, Measured, Peer, ProbeOrder, SendOrder
from mingle_hooks.errors import MingleError, NetworkError, reason
from mingle_hooks.net.addresses import RESET_ON_CLOSE, Preference, bound, candidates, ephemeral_range
from mingle_hooks.rendezvous import multicast
from mingle_hooks.rendezvous.connection import READ, WRITE, Callers, Loop, dial
from mingle_hooks.rendezvous.wire import Body, Secret, WireError, parse
from mingle_hooks.run.agent import Approach, RunnerAddress, Task, find_task
from mingle_hooks.run.messages import LEAVE, MOST_STRANGERS, Join, Link, Strangers, Welcome
from mingle_hooks.values import ports as parse_ports

if TYPE_CHECKING:
    from multicast_expert import IfaceInfo

# The datagrams between probes, which only holders of the check's key can make.
#
# ``magic | kind | from | to | network | value | time | MAC (8)``; a SIZE has zeros after it, up to its size.

# A ping and its echo; one that needs no echo; one of a given size, and its confirmation; a TCP listener's greeting; a
# multicast.
PING, ECHO, NOTE, SIZE, SIZED, HERE, ALL = range(1, 8)
_HEAD = struct.Struct("!4sBHHHIQ")
_MAGIC, _MAC_BYTES = b"MCHK", 8
BYTES = _HEAD.size + _MAC_BYTES
# The headers of IP and UDP.
HEADERS_4, HEADERS_6 = 28, 48


class Packet(NamedTuple):
    """A datagram from host `sender` to host `to`; `value` is a counter, or a size in bytes; `time` in nanoseconds."""

    kind: int
    sender: int
    to: int
    network: int = 0
    value: int = 0
    time: int = 0


def pack_packet(secret: Secret, packet: Packet) -> bytes:
    """Return the datagram."""
    return secret.sealed(_HEAD.pack(_MAGIC, *packet), _MAC_BYTES, b"check")


def unpack_packet(secret: Secret, data: bytes) -> Packet | None:
    """Return the packet in a datagram; None if no holder of the key made it."""
    if len(data) < BYTES or not data.startswith(_MAGIC):
        return None
    head = secret.opened(data[:BYTES], _MAC_BYTES, b"check")
    return None if head is None else Packet(*_HEAD.unpack(head)[1:])


def padding(where: str, size: int) -> int:
    """Return how many zeros make a datagram to this address a packet of `size` bytes."""
    return max(size - (HEADERS_6 if ":" in where else HEADERS_4) - BYTES, 0)


# The TCP listeners of a probe: they greet each caller, and count what it sends.

# Octets that arrived, and in how many nanoseconds.
COUNTED = struct.Struct("!QQ")
_READ_BYTES = 1 << 20
# How long bytes are counted, from the first on, in seconds.
COUNTED_S = 0.25


class ProbeServer:
    """The listeners, and their connections, which anybody may open."""

    def __init__(self, loop: Loop, secret: Secret) -> None:
        self._loop, self._secret, self.number = loop, secret, 0
        self._callers: list[Callers] = []
        self._strangers = Strangers(loop, MOST_STRANGERS)

    def take(self, listener: socket.socket) -> None:
        """Accept connections at a listener, which then belongs to this object."""
        self._callers.append(Callers(self._loop, [listener], self._greet, self._strangers.drop_oldest))

    def close(self) -> None:
        """Close all listeners and connections."""
        for callers in self._callers:
            callers.close()
        self._strangers.close()

    def _greet(self, sock: socket.socket, _where: str) -> None:
        """Send this host's number, and count what arrives. Raises OSError."""
        sock.send(pack_packet(self._secret, Packet(HERE, self.number, 0)))
        self._strangers.add(_Caller(self._loop, sock, self._strangers.drop))


class _Caller:
    """One connection, whose bytes are counted; `drop(self)` closes it for its owner, too."""

    def __init__(self, loop: Loop, sock: socket.socket, drop: Callable[[_Caller], None]) -> None:
        self._loop, self._sock, self._drop = loop, sock, drop
        self._count = self._began = 0
        loop.watch(sock, READ, lambda _events: self._read())

    def close(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.unwatch(self._sock)
            self._sock.close()

    def _read(self) -> None:
        try:
            data = self._sock.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(self)
            return
        if not self._began:
            self._began = time.monotonic_ns()
            self._loop.after(COUNTED_S, self._report)
        self._count += len(data)

    def _report(self) -> None:
        if self._sock.fileno() >= 0:
            try:
                self._sock.send(COUNTED.pack(self._count, time.monotonic_ns() - self._began))
            except OSError:
                self._drop(self)


# The TCP connections of a probe to others: whether they answer, and how much they receive.

_PIECE = memoryview(bytes(256 * 1024))
_PIECES_AT_ONCE = 8
OTHER = "another host answers there"


class Call:
    """One connection; `on_end(reason)` is called once, with "" if the right host has answered."""

    def __init__(
        self, loop: Loop, secret: Secret, number: int, where: tuple[str, int], on_end: Callable[[str], None]
    ) -> None:
        self._loop, self._secret, self._number, self._on_end = loop, secret, number, on_end
        self._received, self._is_over = b"", False
        self._sock: socket.socket | None = None
        try:
            self._sock = dial(*where)
        except OSError as error:
            reason = error.strerror or LATE
            loop.after(0.0, lambda: self.end(reason))
            return
        loop.watch(self._sock, READ, lambda _events: self.read())

    def end(self, reason: str) -> None:
        """Close, and call `on_end`, if this has not ended yet."""
        if self._is_over:
            return
        self._is_over = True
        if self._sock is not None:
            self._loop.unwatch(self._sock)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self._sock.close()
        self._on_end(reason)

    def read(self) -> None:
        """Read what has arrived."""
        if self._sock is None or self._is_over:
            return
        try:
            data = self._sock.recv(4096)
        except BlockingIOError:
            return
        except OSError as error:
            self.end(error.strerror or LATE)
            return
        self._received += data
        if not data:
            self.end("it closed the connection")
        elif len(self._received) >= BYTES:
            here = unpack_packet(self._secret, self._received[:BYTES])
            if here is None or here.kind != HERE or here.sender != self._number:
                self.end(OTHER)
            else:
                self._verified(self._sock, self._received[BYTES:])

    def _verified(self, _sock: socket.socket, _more: bytes) -> None:
        self.end("")


class Transfer(Call):
    """A call that sends as long as the other side counts; `count` is in bytes and nanoseconds."""

    count: tuple[int, int] | None = None
    _is_sending = False

    def _verified(self, sock: socket.socket, more: bytes) -> None:
        if not self._is_sending:
            self._is_sending = True
            self._loop.rewatch(sock, READ | WRITE, lambda events: self._ready(sock, events))
        elif len(more) >= COUNTED.size:
            self.count = COUNTED.unpack_from(more)
            self.end("")

    def _ready(self, sock: socket.socket, events: int) -> None:
        if events & READ:
            self.read()
        try:
            for _ in range(_PIECES_AT_ONCE if events & WRITE and sock.fileno() >= 0 else 0):
                sock.send(_PIECE)
        except BlockingIOError:
            pass
        except OSError as error:
            self.end(error.strerror or LATE)


# The datagrams of a probe: a socket for each of its addresses.

# linux/in.h, linux/in6.h: level; MTU_DISCOVER with DO, so that no packet is fragmented; and RECVERR, so that the kernel
# reports a datagram for which it has no room, in place of dropping it silently.
_OPTIONS = {socket.AF_INET: (socket.IPPROTO_IP, 10, 11), socket.AF_INET6: (socket.IPPROTO_IPV6, 23, 25)}
_DO = 2
# The kernel sent nothing: its neighbour table is full (EINVAL for IPv6), or a queue.
_NO_ROOM = (errno.ENOBUFS, errno.EINVAL, errno.EAGAIN)
_TRIES = 3  # an error may be about an earlier datagram, and is reported once
_MOST_BYTES = 1 << 16
_READ_AT_ONCE, _MOST_WAITING = 64, 100_000
# The kernel bounds it by net.core.rmem_max. A busy host should not look like one that loses datagrams.
_BUFFER_BYTES = 4 * 1024 * 1024
_MOST_SEQUENCE = 1 << 10
# asm-generic/socket.h, linux/sock_diag.h: a socket's memory; the last number counts the datagrams that it dropped.
_SO_MEMINFO, _MEMINFO = 55, struct.Struct("9I")


class Datagrams:
    """Sends datagrams and answers those of others; `on_back(packet)` gets the answers to this host's own."""

    def __init__(self, loop: Loop, secret: Secret) -> None:
        self._loop, self._secret, self.number = loop, secret, 0
        self.on_back: Callable[[Packet], None] = lambda _packet: None
        self._sockets: dict[str, socket.socket] = {}
        self._heard: dict[tuple[int, int], int] = {}  # (sender, network) -> a bit for each

    def open(self, address: str, port: int) -> bool:
        """Open a socket on one of this host's addresses; return whether the port was free."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_DGRAM)
        try:
            sock.settimeout(0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            level, mtu_discover, errors = _OPTIONS[family]
            sock.setsockopt(level, mtu_discover, _DO)
            sock.setsockopt(level, errors, 1)
            sock.bind((address, port))
        except OSError:
            sock.close()
            return False
        self._sockets[f"{address} {port}" if address in self._sockets else address] = sock  # sends from the first one
        self._loop.watch(sock, READ, lambda events: self._ready(sock, events))
        return True

    def close(self) -> None:
        """Close all sockets."""
        for sock in self._sockets.values():
            self._loop.unwatch(sock)
            sock.close()
        self._sockets.clear()

    def heard(self) -> list[list[int]]:
        """Return rows of host, network, and how many distinct datagrams arrived; unread ones are read first."""
        for sock in self._sockets.values():
            self._read(sock, _MOST_WAITING)
        return [[*key, bits.bit_count()] for key, bits in self._heard.items()]

    def dropped(self) -> int:
        """Return how many datagrams the kernel dropped, because they were not read in time."""
        return sum(_dropped(sock) for sock in self._sockets.values())

    def send(self, mine: str, where: tuple[str, int], packet: Packet) -> bool:
        """Send a packet, a SIZE with its padding; return False if the kernel has no room for it."""
        pad = padding(where[0], packet.value) if packet.kind == SIZE else 0
        return _sent(self._sockets[mine], pack_packet(self._secret, packet) + bytes(pad), where)

    def _ready(self, sock: socket.socket, events: int) -> None:
        if events & WRITE:  # it is not watched for that: an earlier datagram had an error
            _forget_errors(sock)
        self._read(sock)

    def _read(self, sock: socket.socket, most: int = _READ_AT_ONCE) -> None:
        for _ in range(most):
            try:
                data, where = sock.recvfrom(_MOST_BYTES)
            except BlockingIOError:
                return
            except OSError:  # of an earlier datagram
                continue
            packet = unpack_packet(self._secret, data)
            if packet is not None and packet.to == self.number:
                self._take(sock, packet, len(data), where)

    def _take(self, sock: socket.socket, packet: Packet, size: int, where: tuple[str, int]) -> None:
        kind = packet.kind
        if kind in (ECHO, SIZED):
            self.on_back(packet)
        if kind in (PING, NOTE) and packet.value < _MOST_SEQUENCE:
            key = packet.sender, packet.network
            self._heard[key] = self._heard.get(key, 0) | 1 << packet.value
        is_sized = kind == SIZE and size == BYTES + padding(where[0], packet.value)
        if kind == PING or is_sized:
            answer = packet._replace(kind=SIZED if is_sized else ECHO, sender=self.number, to=packet.sender)
            _sent(sock, pack_packet(self._secret, answer), where)


def _sent(sock: socket.socket, data: bytes, where: tuple[str, int]) -> bool:
    """Send a datagram; return False if the kernel has no room. One that it refuses otherwise is lost like any other."""
    for _ in range(_TRIES):
        try:
            sock.sendto(data, where)
        except OSError as error:  # larger than the path's known MTU, no neighbour, or this host's own firewall
            if error.errno in _NO_ROOM:
                return False
        else:
            return True
    return True


def _dropped(sock: socket.socket) -> int:
    try:
        return int(_MEMINFO.unpack(sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))[-1])
    except (OSError, struct.error):  # a kernel before 4.12
        return 0


def _forget_errors(sock: socket.socket) -> None:
    with suppress(OSError):  # there is none left
        for _ in range(_READ_AT_ONCE):
            sock.recvmsg(1, 0, socket.MSG_ERRQUEUE)


# One order to probe others, turn by turn, until everything is known or the time is over.

# The MTUs of networks; those above the MTU of either interface are not tried.
_SIZES = (65520, 9000, 8900, 4092, 2044, 1500, 1460, 1450, 1400, 1280, 576)
# The largest is sent first, alone. Until it is confirmed, all are sent after so many seconds more: one may be lost.
_AGAIN_S = (0.1, 0.2, 0.4, 0.4)
# Where an answer took so long, what is sent again waits twice as long; at most five times, as where none has come yet.
_SLOW_S, _MOST_SLOWER = 0.05, 4.0
# Of more ways than these, one datagram of three is answered, and the last; of fewer, a long round trip is tried again.
_FEW_WAYS, _ECHOED = 32, 3
# A connection that is not answered is tried again after these seconds: by itself TCP waits for one and for two more.
_CALL_AGAIN_S = (0.3, 0.3)
# A bit of the network's number in datagrams to the port that the kernel chose.
_FREE = 1 << 15
# A datagram for which the kernel had no room is sent again after these seconds: each try makes it look for room.
_ROOM_S = 0.5


@dataclass(eq=False, slots=True)
class Way:
    """What is known of one peer; `had_no_room`: this host's kernel had no room for it, at least once."""

    peer: Peer
    sent: int = 0
    echoes: int = 0
    had_no_room: bool = False
    calls: list[Call] = field(default_factory=list)
    closed: dict[int, str] = field(default_factory=dict)  # port -> why TCP failed, "" if it did not
    free_echo: bool = False
    rtt_ns: int | None = None
    mtu: int | None = None
    tries: int = 0  # of sizes

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports to try."""
        return (self.peer.port, self.peer.free_port) if self.peer.free_port else (self.peer.port,)


class ProbeRun:
    """Probes peers until everything `is_done`; `measured()` returns the results."""

    def __init__(self, loop: Loop, secret: Secret, datagrams: Datagrams, order: ProbeOrder) -> None:
        self._loop, self._secret, self._datagrams = loop, secret, datagrams
        self._count, self._turn_s, self._is_over = order.datagrams, order.turn_us / 10**6, False
        self._ways = {(peer.number, peer.network): Way(peer) for peer in order.peers}
        self._step = 1 if len(self._ways) <= _FEW_WAYS else _ECHOED
        self._slowest_s = None if any(peer.begins for peer in order.peers) else 0.0
        for way in self._ways.values():
            loop.after(way.peer.turn * self._turn_s, lambda way=way: self._ping(way))  # type: ignore[misc]

    @property
    def is_done(self) -> bool:
        """Whether all is known that can be."""
        pings = -(-self._count // self._step)
        return all(
            len(way.closed) == len(way.ports)
            and (way.free_echo or not way.peer.free_port)
            and way.sent == self._count
            and (not way.peer.begins or (way.echoes == pings and self._is_measured(way)))
            for way in self._ways.values()
        )

    def back(self, packet: Packet) -> None:
        """Take an answer."""
        way = self._ways.get((packet.sender, packet.network & ~_FREE))
        if way is not None and packet.network & _FREE:
            way.free_echo = True
        elif way is not None:
            took_ns = time.monotonic_ns() - packet.time
            self._slowest_s = max(self._slowest_s or 0.0, took_ns / 10**9)
            way.rtt_ns = took_ns if way.rtt_ns is None else min(way.rtt_ns, took_ns)
            way.echoes += packet.kind == ECHO
            if packet.kind == SIZED:
                way.mtu = max(way.mtu or 0, packet.value)

    def stop(self) -> None:
        """Send nothing more; answers may still arrive."""
        self._is_over = True

    def measured(self) -> list[dict[str, object]]:
        """Stop, and return the rows; connections that have not been answered by now have failed."""
        self.stop()
        for way in self._ways.values():
            for call in way.calls:
                call.read()
                call.end(LATE)
        return [_row(way)._asdict() for way in self._ways.values()]

    def _begin(self, way: Way) -> None:
        """Connect to a peer, and send it the sizes, once the kernel has room for it."""
        for port in way.ports:
            self._repeat(partial(self._call, way, port), _CALL_AGAIN_S)
        if way.peer.free_port:
            self._repeat(partial(self._ping_free, way), _AGAIN_S)
        if way.peer.begins:
            self._loop.after(self._turn_s, lambda: self._repeat(partial(self._send_sizes, way), _AGAIN_S))

    def _repeat(self, send: Callable[[], bool], again_s: tuple[float, ...]) -> None:
        """Send now, and after each of these seconds, later where answers are slow, until there is nothing to send."""
        if self._is_over or not send() or not again_s:
            return

        def wait() -> None:
            slower = _MOST_SLOWER if self._slowest_s is None else min(self._slowest_s / _SLOW_S, _MOST_SLOWER)
            self._loop.after(again_s[0] * slower, lambda: self._repeat(send, again_s[1:]))

        self._loop.after(again_s[0], wait)

    def _call(self, way: Way, port: int) -> bool:
        def ended(reason: str) -> None:
            if way.closed.get(port) != "":
                way.closed[port] = reason

        if port in way.closed:
            return False
        way.calls.append(Call(self._loop, self._secret, way.peer.number, (way.peer.theirs, port), ended))
        return True

    def _ping(self, way: Way) -> None:
        """Send one datagram, and the next later, so that a slow host reads in between."""
        if self._is_over or way.sent == self._count:
            return
        is_ping = way.peer.begins and (way.sent + 1 - self._count) % self._step == 0
        if not self._send(way, PING if is_ping else NOTE, way.sent):
            way.had_no_room = True
            self._loop.after(_ROOM_S, lambda: self._ping(way))
            return
        if not way.sent:
            self._begin(way)
        way.sent += 1
        self._loop.after(self._turn_s / self._count, lambda: self._ping(way))

    def _ping_free(self, way: Way) -> bool:
        if not way.free_echo:
            self._send(way, PING, 0, _FREE)
        return not way.free_echo

    def _is_measured(self, way: Way) -> bool:
        """Return whether its largest packet passes, and quickly: a host may have stalled, so a slow one is retried."""
        is_far = self._step == 1 and (way.rtt_ns or 0) > report.FAR_US * 1000 and way.tries <= len(_AGAIN_S)
        return (way.mtu or 0) >= way.peer.mtu and not is_far

    def _send_sizes(self, way: Way) -> bool:
        way.tries += 1
        if self._is_measured(way) or way.tries > len(_AGAIN_S):
            return False
        mtu = way.peer.mtu
        is_alone = way.tries == 1 or (way.mtu or 0) >= mtu
        for size in (mtu, *(size for size in _SIZES if size < mtu and not is_alone)):
            self._send(way, SIZE, size)
        return True

    def _send(self, way: Way, kind: int, value: int, free: int = 0) -> bool:
        peer = way.peer
        packet = Packet(kind, self._datagrams.number, peer.number, peer.network | free, value, time.monotonic_ns())
        return self._datagrams.send(peer.mine, (peer.theirs, peer.free_port if free else peer.port), packet)


def _row(way: Way) -> Measured:
    rtt_us = None if way.rtt_ns is None else way.rtt_ns // 1000
    closed, *free = (way.closed.get(port, LATE) for port in way.ports)
    row = way.peer.number, way.peer.network, way.sent, rtt_us, way.mtu, closed, way.had_no_room
    return Measured(*row, free_closed=(free[0] or ("" if way.free_echo else NO_ECHO)) if free else None)


# Multicast: one group, joined on each interface that carries any; some hosts send to it, all listen.

# A host listens on the first of these ports that is free there; datagrams are sent to all of them.
_PORTS = 3


class Multicast:
    """The group on all interfaces; `received()` returns the hosts that were heard on each."""

    def __init__(self, loop: Loop, secret: Secret, prefer: Sequence[Preference]) -> None:
        self._loop, self._secret, self.number = loop, secret, 0
        self._links: list[multicast.Link] = []
        self._heard: dict[str, dict[bytes, int]] = {}  # interface -> datagram, which comes several times -> its sender
        self._faults: dict[str, str] = {}
        digest = secret.mac(b"group")
        self._ports = candidates(digest, _PORTS)
        four, six = f"239.255.{digest[0]}.{digest[1]}", f"ff15::{digest[:2].hex()}:{digest[2:4].hex()}"
        # multicast_expert compares groups as text.
        self._groups = four, socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, six))
        try:
            multicast.load_multicast_expert()
            infos = multicast.carriers(prefer)
        except (ImportError, OSError, NetworkError) as error:
            self._faults[""] = reason(error)
            return
        for info in infos:
            self._open(info)

    def send(self) -> None:
        """Send one datagram on each interface, to each port."""
        data = pack_packet(self._secret, Packet(ALL, self.number, 0))
        for link in self._links:
            try:
                for port in self._ports:
                    link.send(data, port)
            except OSError as error:
                self._faults[link.info.machine_name] = reason(error)

    def received(self) -> list[Body]:
        """Return each interface with the hosts that were heard there."""
        return [
            {"iface": name, "hosts": sorted(self._heard.get(name, {}).values()), "fault": fault}
            for name, fault in {**dict.fromkeys(self._heard, ""), **self._faults}.items()
        ]

    def close(self) -> None:
        """Leave the group."""
        while self._links:
            self._links.pop().close()

    def _open(self, info: IfaceInfo) -> None:
        family, group = (socket.AF_INET, self._groups[0]) if info.ip4_addrs else (socket.AF_INET6, self._groups[1])
        port = next((port for port in self._ports if _is_free(family, port)), self._ports[-1])
        self._heard[info.machine_name] = {}
        try:
            self._links.append(multicast.Link(self._loop, self._read, info, group, port, ttl=1))
        except (OSError, RuntimeError) as error:  # it has gone, or multicast_expert refuses
            self._faults[info.machine_name] = reason(error)

    def _read(self, link: multicast.Link, sock: socket.socket) -> None:
        heard = self._heard[link.info.machine_name]
        for _ in range(_READ_AT_ONCE):
            try:
                data = sock.recv(BYTES + 1)
            except OSError:
                return
            packet = None if data in heard else unpack_packet(self._secret, data)
            if packet is not None and packet.kind == ALL and packet.sender != self.number:
                heard[data] = packet.sender


def _is_free(family: int, port: int) -> bool:
    """Return whether a port can be shared by programs that listen to the group: none has it for itself."""
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("", port))
        except OSError:
            return False
        return True


# The probe itself.

# When multicast is sent after the order, in seconds: one datagram may be lost.
_MULTICAST_S = (0.0, 0.1, 0.25)
# Seconds to wait, once all have been sent, for datagrams on their way, before they are counted.
_STILL_S = 0.05
_PORT_CANDIDATES = 64
# Seconds after which a probe exits that has not reached the check.
_APPROACH_S = 30.0
# How often the kernel asks the check's host whether it is still there, in seconds; 127 times in vain end the probe.
_ASK_S = 5
_STDERR = 2


class Probe:
    """Runs until `is_over`; `was_dismissed`: the check told it to exit."""

    def __init__(self, loop: Loop, task: Task, environ: Mapping[str, str]) -> None:
        self._loop = loop
        self.is_over = self.was_dismissed = False
        self._secret = Secret(task.key)
        self._link: Link | None = None
        self._run: ProbeRun | None = None
        self._names: NameLookups | None = None
        self._datagrams = Datagrams(loop, self._secret)
        self._server = ProbeServer(loop, self._secret)
        self._facts = facts.own_facts(environ)  # forks: before there is any thread
        self._multicast = self._open_network(environ)
        join = Join(task.host, task.local, os.getpid(), is_output=False)
        self._approach = Approach(loop, self._secret, task.addresses, join, self._welcome)
        self._approach.on_end = lambda _reason: self.leave()
        loop.after(_APPROACH_S, lambda: self.leave() if self._link is None else None)

    def leave(self) -> None:
        """Close everything."""
        self.is_over = True
        self._approach.close()
        for part in (self._link, self._datagrams, self._server, self._multicast, self._names):
            if part is not None:
                part.close()

    # --- Facts.

    def _open_network(self, environ: Mapping[str, str]) -> Multicast:
        """Open two ports on each address: one of the range, and one as the kernel chooses."""
        own, ports = facts.own_network(environ.get(report.IFACE)), parse_ports(environ[report.PORTS])
        faults, opened = self._facts["faults"], []
        if own.trouble:
            faults.append(own.trouble)
        for address in own.addresses:
            port = self._open_port(address.address, ports)
            free_port = self._open_port(address.address, ephemeral_range()) if port else 0
            opened.append(address._replace(port=port, free_port=free_port)._asdict())
            if not port:
                faults.append(f"no port of the range is free on {address.address}")
        self._facts |= {"addresses": opened, "guests": own.guests, "every": own.every}
        self._facts["faults"] = faults[: report.MOST_ADDRESSES]
        return Multicast(self._loop, self._secret, own.prefer)

    def _open_port(self, address: str, ports: range) -> int:
        """Return the port that is now open for TCP and UDP; 0 if none is free."""
        for port in candidates(os.urandom(16), _PORT_CANDIDATES, ports):
            try:
                listener = bound(address, port, hold=False)
            except MingleError:  # the address has gone
                break
            if listener is not None and self._datagrams.open(address, port):
                self._server.take(listener)
                return port
            if listener is not None:
                listener.close()
        return 0

    def _welcome(self, _address: RunnerAddress, link: Link, welcome: Welcome) -> None:
        self._link = link
        link.probe_peer(_ASK_S)
        link.on_message = self._received
        for part in (self._datagrams, self._server, self._multicast):
            part.number = welcome.number
        link.send_message(report.FACTS, self._facts)

    # --- Orders.

    def _received(self, kind: int, body: Body) -> None:
        if kind == LEAVE:
            self.was_dismissed = True
            self.leave()
            return
        order = body.get("do") if kind == report.ORDER else None
        if order == report.PROBE:
            self._probe(body)
        elif order == report.COUNT:
            self._loop.after(_STILL_S, self._count)  # some datagrams may still be on their way
        elif order == report.SEND:
            self._transfer(body)
        else:
            raise WireError("no order")

    def _count(self) -> None:
        now_ms = int(time.time() * 1000)
        heard = self._datagrams.heard()  # first, as it reads datagrams that may be answers
        measured = self._run.measured() if self._run is not None else []
        dropped, multicast = self._datagrams.dropped(), self._multicast.received()
        self._answer({"time_ms": now_ms, "met": measured, "heard": heard, "dropped": dropped, "multicast": multicast})

    def _answer(self, body: Body) -> None:
        if self._link is not None:
            self._link.send_message(report.ANSWER, body)

    def _probe(self, body: Body) -> None:
        order = parse(ProbeOrder, body)
        wanted = dict(order.names)
        limit_s, most_s = order.limit_ms / 1000, order.most_ms / 1000
        run = self._run = ProbeRun(self._loop, self._secret, self._datagrams, order)
        self._datagrams.on_back = run.back
        own = socket.gethostname()
        lookups = self._names = NameLookups(self._loop, (own, *wanted.values()))
        multicast_s = _MULTICAST_S if order.multicast else ()
        for after_s in multicast_s:
            self._loop.after(after_s, self._multicast.send)
        deadline = ActiveDeadline(self._loop.clock, limit_s, most_s)
        earliest = self._loop.clock() + min(max(multicast_s, default=0.0) + POLL_S, limit_s)

        def look() -> None:
            deadline.look()
            is_known = self._loop.clock() >= earliest and run.is_done and lookups.is_done
            if not is_known and not deadline.is_over:
                self._loop.after(POLL_S, look)
                return
            run.stop()
            lookups.close()
            names = [{"number": number, "addresses": lookups.found.get(name)} for number, name in wanted.items()]
            late_ms = 0 if is_known or deadline.has_lasted else int(deadline.late_s * 1000)
            self._answer({"names": names, "own": lookups.found.get(own), "late_ms": late_ms})

        look()

    def _transfer(self, body: Body) -> None:
        order = parse(SendOrder, body)

        def ended(_reason: str) -> None:
            octets, took_ns = transfer.count or (0, 0)
            self._answer({"octets": octets, "ns": took_ns})

        transfer = Transfer(self._loop, self._secret, order.number, (order.theirs, order.port), ended)
        self._loop.after(order.limit_ms / 1000, lambda: transfer.end(LATE))


def run_probe(arguments: Sequence[str]) -> int:
    """Run the probe that these arguments and the environment describe; return its exit status."""
    try:
        task = find_task("probe", arguments)
        with Loop() as loop:
            probe = Probe(loop, task, os.environ)
            loop.run(lambda: probe.is_over)
            return 0 if probe.was_dismissed else report.GAVE_UP
    except MingleError as wrong:
        os.write(_STDERR, f"mingle check: {wrong}\n".encode())
        return wrong.exit_code
