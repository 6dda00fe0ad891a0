"""One host's part of a check: it says what it is, probes the others on order, and ends with the check."""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mingle_hooks.check import facts
from mingle_hooks.check.facts import POLL_S, ActiveDeadline, DeviceFacts, NameLookups
from mingle_hooks.check.report import Address
from mingle_hooks.check.session import (
    ALL,
    ANSWER,
    BYTES,
    COUNT,
    ECHO,
    FACTS,
    HERE,
    IFACE,
    NOTE,
    ORDER,
    PING,
    PORTS,
    PROBE,
    SEND,
    SIZE,
    SIZED,
    Measured,
    Packet,
    Peer,
    ProbeOrder,
    SendOrder,
    pack_packet,
    padding,
    unpack_packet,
    wall_s,
)
from mingle_hooks.errors import MingleError, NetworkError, printable, reason
from mingle_hooks.net.ports import DEFAULT_RANGE, GONE_AT_ONCE, bound, candidates
from mingle_hooks.rendezvous import multicast
from mingle_hooks.rendezvous.connection import READ, WRITE, Callers, Loop, dial
from mingle_hooks.rendezvous.multicast import carriers
from mingle_hooks.rendezvous.wire import Body, Secret, WireError, parse
from mingle_hooks.run import agent
from mingle_hooks.run.agent import Approach, Options, RunnerAddress, Task
from mingle_hooks.run.messages import LEAVE, Join, Link, Welcome
from mingle_hooks.values import networks
from mingle_hooks.values import ports as parse_ports

if TYPE_CHECKING:
    from multicast_expert import IfaceInfo, McastRxSocket, McastTxSocket

# The TCP side of a probe that others come to: it says who is here, and counts what it is sent.

# Octets that came, and in how many nanoseconds.
COUNTED = struct.Struct("!QQ")
_READ_BYTES = 1 << 20
# From the first octet on it counts for so long, in seconds.
COUNTED_S = 0.25


class ProbeServer:
    """What is open to callers, and those who have come in."""

    def __init__(self, loop: Loop, secret: Secret) -> None:
        self._loop, self._secret, self.number = loop, secret, 0
        self._open: list[Callers] = []
        self._callers: set[_Caller] = set()

    def open(self, address: str, port: int) -> bool:
        """Listen on one of this host's addresses; tell whether the port is free there. Raises NetworkError."""
        listener = bound(address, port, hold=False)
        if listener is None:
            return False
        self._open.append(Callers(self._loop, [listener], self._greet))
        return True

    def shut(self) -> None:
        """Close the listener that was opened last: the port is not free for datagrams."""
        self._open.pop().close()

    def close(self) -> None:
        """Close all."""
        while self._open:
            self.shut()
        for caller in [*self._callers]:
            caller.close()

    def _greet(self, sock: socket.socket, _where: str) -> None:
        """Say who is here, and count what comes. Raises OSError where nothing can be said any more."""
        sock.send(pack_packet(self._secret, Packet(HERE, self.number, 0)))
        self._callers.add(_Caller(self._loop, sock, self._callers))


class _Caller:
    """One who came in: counted from its first octet on."""

    def __init__(self, loop: Loop, sock: socket.socket, among: set[_Caller]) -> None:
        self._loop, self._sock, self._among = loop, sock, among
        self._octets = self._began = 0
        loop.watch(sock, READ, lambda _events: self._read())

    def close(self) -> None:
        self._among.discard(self)
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
            self.close()
            return
        if not self._began:
            self._began = time.monotonic_ns()
            self._loop.after(COUNTED_S, self._report)
        self._octets += len(data)

    def _report(self) -> None:
        if self._sock.fileno() >= 0:
            try:
                self._sock.send(COUNTED.pack(self._octets, time.monotonic_ns() - self._began))
            except OSError:
                self.close()


# The TCP side of a probe that goes to others: whether they are there, and how much gets through.

_PIECE = memoryview(bytes(256 * 1024))
_PIECES_AT_ONCE = 8
OTHER = "another host answers there"
LATE = "no answer"


class Call:
    """One connection; `on_end(reason)` comes once, with "" where the host that is meant has answered."""

    def __init__(
        self, loop: Loop, secret: Secret, number: int, where: tuple[str, int], on_end: Callable[[str], None]
    ) -> None:
        self._loop, self._secret, self._number, self._on_end = loop, secret, number, on_end
        self._received = b""
        self._sock: socket.socket | None = None
        try:
            self._sock = dial(*where)
        except OSError as error:
            reason = error.strerror or LATE
            loop.after(0.0, lambda: self.end(reason))
            return
        loop.watch(self._sock, READ, lambda _events: self.read())

    @property
    def is_over(self) -> bool:
        """Whether the end has been received."""
        return self._on_end is _nobody

    def end(self, reason: str) -> None:
        """Close, and tell."""
        on_end, self._on_end = self._on_end, _nobody
        if self._sock is not None and self._sock.fileno() >= 0:
            self._loop.unwatch(self._sock)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, GONE_AT_ONCE)
            self._sock.close()
        on_end(reason)

    def read(self) -> None:
        """Take what has come."""
        if self._sock is None or self.is_over:
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
    """A call that sends as long as the other side counts; `count` is its octets and nanoseconds."""

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
        for _ in range(_PIECES_AT_ONCE if events & WRITE else 0):
            if sock.fileno() < 0:
                return
            try:
                sock.send(_PIECE)
            except BlockingIOError:
                return
            except OSError as error:
                self.end(error.strerror or os.strerror(0))
                return


def _nobody(_reason: str) -> None:
    return


# The UDP side of a probe: a socket for each of its addresses, and what came there.

# linux/in.h, linux/in6.h: level, MTU_DISCOVER with DO (nobody cuts a packet into pieces), and RECVERR: the kernel tells
# what became of a datagram; without it one that it has no room for is lost silently.
_OPTIONS = {socket.AF_INET: (socket.IPPROTO_IP, 10, 11), socket.AF_INET6: (socket.IPPROTO_IPV6, 23, 25)}
_DO = 2
# The kernel took nothing: its table of neighbours is full (IPv6 says EINVAL), or a queue.
_NO_ROOM = (errno.ENOBUFS, errno.EINVAL, errno.EAGAIN)
_TRIES = 3  # an error may be about an earlier datagram, and is received once
_MOST_BYTES = 1 << 16
_READ_AT_ONCE, _MOST_WAITING = 64, 100_000
# The kernel cuts it to net.core.rmem_max: a host that is busy is not to look like one that loses datagrams.
_KEPT_BYTES = 4 * 1024 * 1024
_MOST_SEQUENCE = 1 << 10
# asm-generic/socket.h, linux/sock_diag.h: a socket's memory; the last number is what it dropped for want of it.
_SO_MEMINFO, _MEMINFO = 55, struct.Struct("9I")


class Datagrams:
    """Sends and answers; `on_echo(packet)` and `on_sized(packet)` get what came back to this host.

    `heard` counts the distinct datagrams of each host on each network.
    """

    def __init__(
        self, loop: Loop, secret: Secret, clock_ns: Callable[[], int], on_back: Callable[[Packet], None]
    ) -> None:
        self._loop, self._secret, self._clock_ns, self._on_back = loop, secret, clock_ns, on_back
        self.number = 0
        self._sockets: dict[str, socket.socket] = {}
        self._heard: dict[tuple[int, int], int] = {}  # (sender, network) -> a bit for each

    def open(self, address: str, port: int) -> bool:
        """Open one of this host's addresses; tell whether the port is free there."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_DGRAM)
        try:
            sock.settimeout(0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KEPT_BYTES)
            level, mtu_discover, errors = _OPTIONS[family]
            sock.setsockopt(level, mtu_discover, _DO)
            sock.setsockopt(level, errors, 1)
            sock.bind((address, port))
        except OSError:
            sock.close()
            return False
        self._sockets[address] = sock
        self._loop.watch(sock, READ, lambda events: self._ready(sock, events))
        return True

    def close(self) -> None:
        """Close all."""
        for sock in self._sockets.values():
            self._loop.unwatch(sock)
            sock.close()
        self._sockets.clear()

    def heard(self) -> list[list[int]]:
        """Return host, network and how many of its datagrams came, those that wait to be read among them."""
        for sock in self._sockets.values():
            self._read(sock, _MOST_WAITING)
        return [[*its, bits.bit_count()] for its, bits in self._heard.items()]

    def dropped(self) -> int:
        """Return how many datagrams came and were not kept, as nobody read them in time."""
        return sum(_dropped(sock) for sock in self._sockets.values())

    def send(self, mine: str, where: tuple[str, int], its: Packet) -> bool:
        """Send; one of a size is filled up to it. Return False where the kernel has no room for it."""
        pad = padding(where[0], its.value) if its.kind == SIZE else 0
        return _sent(self._sockets[mine], pack_packet(self._secret, its) + bytes(pad), where)

    def _ready(self, sock: socket.socket, events: int) -> None:
        if events & WRITE:  # nobody waits for that: it is an error of an earlier one
            _forget_errors(sock)
        self._read(sock)

    def _read(self, sock: socket.socket, most: int = _READ_AT_ONCE) -> None:
        for _ in range(most):
            try:
                data, where = sock.recvfrom(_MOST_BYTES)
            except BlockingIOError:
                return
            except OSError as error:  # what became of an earlier one
                if error.errno == errno.EBADF:
                    return
                continue
            its = unpack_packet(self._secret, data)
            if its is not None and its.to == self.number:
                self._take(sock, its, len(data), where)

    def _take(self, sock: socket.socket, its: Packet, size: int, where: tuple[str, int]) -> None:
        if its.kind in (ECHO, SIZED):
            self._on_back(its)
        if its.kind in (PING, NOTE) and its.value < _MOST_SEQUENCE:
            key = its.sender, its.network
            self._heard[key] = self._heard.get(key, 0) | 1 << its.value
        if its.kind == PING or (its.kind == SIZE and size == BYTES + padding(where[0], its.value)):
            kind = ECHO if its.kind == PING else SIZED
            answer = its._replace(kind=kind, sender=self.number, to=its.sender)
            _sent(sock, pack_packet(self._secret, answer), where)


def _sent(sock: socket.socket, data: bytes, where: tuple[str, int]) -> bool:
    """Send a datagram; one that is refused for another reason than want of room is lost like any other."""
    for _ in range(_TRIES):
        try:
            sock.sendto(data, where)
        except OSError as error:  # too large for a way that is known, no neighbour, or a firewall of this host's own
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
    for _ in range(_READ_AT_ONCE):
        try:
            sock.recvmsg(1, 0, socket.MSG_ERRQUEUE)
        except OSError:
            return


# One order to probe others: turn by turn, until all is known or its time is over.

# Packets' sizes that networks have; what is larger than both interfaces take is not tried.
_SIZES = (65520, 9000, 8900, 4092, 2044, 1500, 1460, 1450, 1400, 1280, 576)
# The largest is sent first, alone; all, as long as it has not come back, after so many seconds: one may be lost.
_AGAIN_S = (0.1, 0.3, 0.7)
_LARGEST = 65535
# What the kernel had no room for is sent again so much later, in seconds: each try makes it look for room.
_ROOM_S = 0.5


@dataclass(eq=False, slots=True)
class Way:
    """What is known of one peer; `had_no_room` tells that this host's kernel once took nothing for it."""

    peer: Peer
    sent: int = 0
    echoes: int = 0
    had_no_room: bool = False
    call: Call | None = None
    closed: str | None = None
    rtt_ns: int | None = None
    mtu: int | None = None

    @property
    def want(self) -> int:
        """The largest packet that both interfaces take."""
        return min(self.peer.mtu, _LARGEST)


class ProbeRun:
    """Probes peers; `is_done` once everything has come back, `measured()` is what is known."""

    def __init__(
        self,
        loop: Loop,
        secret: Secret,
        datagrams: Datagrams,
        clock_ns: Callable[[], int],
        peers: Sequence[Peer],
        count: int,
        turn_s: float,
    ) -> None:
        self._loop, self._secret, self._datagrams, self._clock_ns = loop, secret, datagrams, clock_ns
        self._count, self._turn_s, self._is_over = count, turn_s, False
        self._ways = {(peer.number, peer.network): Way(peer) for peer in peers}
        for way in self._ways.values():
            loop.after(way.peer.turn * turn_s, lambda way=way: self._ping(way))  # type: ignore[misc]

    @property
    def is_done(self) -> bool:
        """Whether nothing more can come that is worth waiting for."""
        return all(
            way.closed is not None
            and way.sent == self._count
            and (not way.peer.begins or (way.echoes == self._count and (way.mtu or 0) >= way.want))
            for way in self._ways.values()
        )

    def back(self, its: Packet) -> None:
        """Take note of what came back."""
        way = self._ways.get((its.sender, its.network))
        if way is None:
            return
        if its.kind == ECHO:
            took = self._clock_ns() - its.time
            way.echoes += 1
            way.rtt_ns = took if way.rtt_ns is None else min(way.rtt_ns, took)
        else:
            way.mtu = max(way.mtu or 0, its.value)

    def stop(self) -> None:
        """Send nothing more; what is under way may still come."""
        self._is_over = True

    def measured(self) -> list[dict[str, object]]:
        """Return the rows; what has not answered by now does not."""
        self.stop()
        for way in self._ways.values():
            if way.call is not None and not way.call.is_over:
                way.call.read()
                way.call.end(LATE)
        return [_row(way)._asdict() for way in self._ways.values()]

    def _begin(self, way: Way) -> None:
        """Go on with a way that this host's kernel has room for."""
        peer = way.peer

        def ended(reason: str) -> None:
            way.closed = reason

        way.call = Call(self._loop, self._secret, peer.number, (peer.theirs, peer.port), ended)
        if peer.begins:
            self._loop.after(self._turn_s, lambda: self._send_size(way, way.want))
            for after_s in _AGAIN_S:
                self._loop.after(self._turn_s + after_s, lambda: self._sizes(way))

    def _ping(self, way: Way) -> None:
        """Send one, and the next later: where this host is slow, what has come is read in between."""
        if self._is_over or way.sent == self._count:
            return
        if not self._send(way, PING if way.peer.begins else NOTE, way.sent):
            way.had_no_room = True
            self._loop.after(_ROOM_S, lambda: self._ping(way))
            return
        if not way.sent:
            self._begin(way)
        way.sent += 1
        self._loop.after(self._turn_s / self._count, lambda: self._ping(way))

    def _sizes(self, way: Way) -> None:
        if (way.mtu or 0) < way.want:
            for size in dict.fromkeys((way.want, *(size for size in _SIZES if size < way.want))):
                self._send_size(way, size)

    def _send_size(self, way: Way, size: int) -> None:
        self._send(way, SIZE, size)

    def _send(self, way: Way, kind: int, value: int) -> bool:
        peer = way.peer
        its = Packet(kind, self._datagrams.number, peer.number, peer.network, value, self._clock_ns())
        return self._datagrams.send(peer.mine, (peer.theirs, peer.port), its)


def _row(way: Way) -> Measured:
    rtt_us = None if way.rtt_ns is None else way.rtt_ns // 1000
    closed = LATE if way.closed is None else way.closed
    return Measured(way.peer.number, way.peer.network, way.sent, rtt_us, way.mtu, closed, way.had_no_room)


# Multicast, really tried: one group, joined on each interface that carries any, and a few words to all in it.

_LONGEST = 300
# A host hears on the first of these ports that nobody else has there; a word is sent to all.
_PORTS = 3


class Multicast:
    """The group on all interfaces; `received()` returns what came on each."""

    def __init__(self, loop: Loop, secret: Secret, nets: Sequence[str]) -> None:
        self._loop, self._secret, self.number = loop, secret, 0
        self._links: dict[str, tuple[str, McastTxSocket, McastRxSocket]] = {}  # interface -> group, and both ends
        self._heard: dict[str, set[int]] = {}
        self._faults: dict[str, str] = {}
        digest = secret.mac(b"group")
        self._ports = candidates(digest, _PORTS)
        four, six = f"239.255.{digest[0]}.{digest[1]}", f"ff15::{digest[:2].hex()}:{digest[2:4].hex()}"
        # multicast_expert compares groups as text.
        self._groups = four, socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, six))
        try:
            _load()
            infos = carriers(nets)
        except (ImportError, OSError, NetworkError) as error:
            self._faults[""] = reason(error)
            return
        for info in infos:
            self._open(info)

    def send(self) -> None:
        """Say a word on each."""
        data = pack_packet(self._secret, Packet(ALL, self.number, 0))
        for name, (group, tx, _) in self._links.items():
            try:
                for port in self._ports:
                    tx.sendto(data, (group, port))
            except OSError as error:
                self._faults[name] = reason(error)

    def received(self) -> list[Body]:
        """Return for each interface from which hosts something came."""
        names = dict.fromkeys((*self._heard, *self._faults))
        return [
            {"iface": name, "hosts": sorted(self._heard.get(name, ())), "fault": self._faults.get(name, "")[:_LONGEST]}
            for name in names
        ]

    def close(self) -> None:
        """Leave the group."""
        for _, tx, rx in self._links.values():
            for sock in rx.sockets:
                self._loop.unwatch(sock)
            rx.__exit__(None, None, None)
            tx.__exit__(None, None, None)
        self._links.clear()

    def _open(self, info: IfaceInfo) -> None:
        import multicast_expert

        family, group = (socket.AF_INET, self._groups[0]) if info.ip4_addrs else (socket.AF_INET6, self._groups[1])
        port = next((port for port in self._ports if _is_free(family, port)), self._ports[-1])
        tx = multicast_expert.McastTxSocket(family, [group], iface=info, ttl=1)
        rx = multicast_expert.McastRxSocket(family, [group], port, iface=info, timeout=0)
        self._heard[info.machine_name] = set()
        try:
            tx.__enter__()
            rx.__enter__()
        except (OSError, RuntimeError) as error:  # it has gone, or multicast_expert refuses
            self._faults[info.machine_name] = reason(error)
            # Their own __exit__ refuses to close what is only half open.
            for sock in (getattr(tx, "socket", None), *getattr(rx, "sockets", ())):
                if sock is not None:
                    sock.close()
            return
        self._links[info.machine_name] = group, tx, rx
        for sock in rx.sockets:
            sock.settimeout(0)
            self._loop.watch(sock, READ, lambda _events, sock=sock: self._read(sock, info.machine_name))  # type: ignore[misc]

    def _read(self, sock: socket.socket, iface: str) -> None:
        for _ in range(_READ_AT_ONCE):
            try:
                data = sock.recv(BYTES + 1)
            except OSError:
                return
            its = unpack_packet(self._secret, data)
            if its is not None and its.kind == ALL and its.sender != self.number:
                self._heard[iface].add(its.sender)


def _is_free(family: int, port: int) -> bool:
    """Tell whether no program here has a port for itself; those that hear a group share theirs."""
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("", port))
        except OSError:
            return False
        return True


def _load() -> None:
    """Import what a probe's Python, which has been started without `site`, may not find by itself."""
    try:
        multicast.load_multicast_expert()
    except ImportError:
        import site

        site.main()


# One host's part of a check.

Reachable = Callable[[Any], tuple[tuple[Address, ...], tuple[tuple[str, str], ...], str]]

# Multicast is said so long after the order, in seconds, so that one that is lost is no harm.
_SAID_S = (0.0, 0.1, 0.25)
# Datagrams are counted so long after all have been sent, in seconds.
_STILL_S = 0.05
_PORT_CANDIDATES = 64


class Probe:
    """Runs until `is_over`; `was_dismissed` tells whether the check let it go."""

    def __init__(
        self, loop: Loop, task: Task, environ: Mapping[str, str], reachable: Reachable = facts.reachable_addresses
    ) -> None:
        self._loop, self._task, self._reachable = loop, task, reachable
        self.is_over = self.was_dismissed = False
        self._secret = Secret(task.key)
        self._link: Link | None = None
        self._body: Body = {}
        self._faults: list[str] = []
        self._run: ProbeRun | None = None
        self._names: NameLookups | None = None
        self._datagrams = Datagrams(loop, self._secret, time.monotonic_ns, self._back)
        self._server = ProbeServer(loop, self._secret)
        self._devices = DeviceFacts(loop, environ, self._report)  # forks: before there is any thread
        self._multicast = self._open_network(environ)
        join = Join(task.host, task.local, os.getpid(), is_output=False)
        self._approach = Approach(loop, self._secret, task.addresses, join, self._welcome, lambda _reason: self.leave())

    @property
    def is_found(self) -> bool:
        """Whether the check knows of this host."""
        return self._link is not None

    def leave(self) -> None:
        """End."""
        self.is_over = True
        self._approach.close()
        for part in (self._link, self._datagrams, self._server, self._multicast, self._names):
            if part is not None:
                part.close()

    # --- What this host is.

    def _open_network(self, environ: Mapping[str, str]) -> Multicast:
        wished, names = environ.get(IFACE, ""), []
        try:
            prefer = networks(wished) if wished else ()
            names = [wish.text for wish in prefer]  # type: ignore[attr-defined]
            chosen, guests, trouble = self._reachable(prefer)
        except MingleError as wrong:
            chosen, guests, trouble = (), (), f"expected {wrong.expected}, saw {wrong.seen}"
        opened = tuple(self._open(its, environ.get(PORTS, "")) for its in chosen)
        if trouble:
            self._faults.append(printable(trouble, _LONGEST))
        self._body = {
            **facts.own_facts(environ),
            "addresses": [its._asdict() for its in opened],
            "guests": [list(its) for its in guests],
            "every": facts.all_addresses(),
        }
        return Multicast(self._loop, self._secret, names)

    def _open(self, its: Address, wanted: str) -> Address:
        """Open a port of the range at an address, the same for TCP and UDP; port 0 where none is free."""
        for port in candidates(os.urandom(16), _PORT_CANDIDATES, parse_ports(wanted) if wanted else DEFAULT_RANGE):
            try:
                if not self._server.open(its.address, port):
                    continue
            except MingleError:  # the address has gone
                break
            if self._datagrams.open(its.address, port):
                return its._replace(port=port)
            self._server.shut()
        self._faults.append(f"no port of the range is free on {its.address}")
        return its

    def _welcome(self, _address: RunnerAddress, link: Link, welcome: Welcome) -> None:
        self._link = link
        link.on_message = self._received
        for part in (self._datagrams, self._server, self._multicast):
            part.number = welcome.number
        self._report()

    def _report(self) -> None:
        """Say what this host is, once all is known."""
        if self._link is not None and self._devices.is_known:
            faults = [*self._faults, *self._devices.faults]
            self._link.send(FACTS, {**self._body, "spaces": self._devices.spaces, "faults": faults})

    # --- Orders.

    def _received(self, kind: int, body: Body) -> None:
        if kind == LEAVE:
            self.was_dismissed = True
            self.leave()
        elif kind == ORDER and body.get("do") == PROBE:
            self._probe(body)
        elif kind == ORDER and body.get("do") == COUNT:
            self._loop.after(_STILL_S, self._count)  # what has been sent is still to be read
        elif kind == ORDER and body.get("do") == SEND:
            self._transfer(body)
        else:
            raise WireError("no order")

    def _count(self) -> None:
        now_ms = int(wall_s() * 1000)
        heard = self._datagrams.heard()  # first: what waits to be read may be an answer
        measured = self._run.measured() if self._run is not None else []
        dropped, multicast = self._datagrams.dropped(), self._multicast.received()
        self._answer({"time_ms": now_ms, "met": measured, "heard": heard, "dropped": dropped, "multicast": multicast})

    def _answer(self, body: Body) -> None:
        if self._link is not None:
            self._link.send(ANSWER, body)

    def _back(self, its: Packet) -> None:
        if self._run is not None:
            self._run.back(its)

    def _probe(self, body: Body) -> None:
        order = parse(ProbeOrder, body)
        wanted = dict(order.names)
        limit_s, most_s, turn_s = order.limit_ms / 1000, order.most_ms / 1000, order.turn_us / 10**6
        run = self._run = ProbeRun(
            self._loop, self._secret, self._datagrams, time.monotonic_ns, order.peers, order.datagrams, turn_s
        )
        own = socket.gethostname()
        looked_up = self._names = NameLookups(self._loop, (own, *wanted.values()))
        said_s = _SAID_S if order.multicast else ()
        for after_s in said_s:
            self._loop.after(after_s, self._multicast.send)
        deadline = ActiveDeadline(self._loop.clock, limit_s, most_s)
        earliest = self._loop.clock() + min(max(said_s, default=0.0) + POLL_S, limit_s)

        def look() -> None:
            deadline.look()
            is_known = self._loop.clock() >= earliest and run.is_done and looked_up.is_done
            if not is_known and not deadline.is_over:
                self._loop.after(POLL_S, look)
                return
            run.stop()
            looked_up.close()
            names = [{"number": number, "addresses": looked_up.found.get(name)} for number, name in wanted.items()]
            late_ms = 0 if is_known or deadline.has_lasted else int(deadline.late_s * 1000)
            self._answer({"names": names, "own": looked_up.found.get(own), "late_ms": late_ms})

        look()

    def _transfer(self, body: Body) -> None:
        order = parse(SendOrder, body)

        def ended(_reason: str) -> None:
            octets, took_ns = transfer.count or (0, 0)
            self._answer({"octets": octets, "ns": took_ns})

        transfer = Transfer(self._loop, self._secret, order.number, (order.theirs, order.port), ended)
        self._loop.after(order.limit_ms / 1000, lambda: None if transfer.is_over else transfer.end(LATE))


# One probe from its start to its end, which comes with that of `mingle check`.

NO_CHECK = 75  # EX_TEMPFAIL: trying again makes sense
_STDERR = 2
# Who has not found the check by then finds none, and nobody waits longer for one, in seconds: its own host may be gone.
_APPROACH_S, _LONGEST_S = 30.0, 600.0


def run_probe(arguments: Sequence[str]) -> int:
    """Return the exit status."""
    try:
        options = Options.parse(arguments)
        if options.environ or options.is_stdin:
            agent.take_environ("probe", options)
        task = Task.find(options, os.environ)
        with Loop() as loop:
            probe = Probe(loop, task, os.environ)
            loop.after(_APPROACH_S, lambda: None if probe.is_found else probe.leave())
            loop.after(_LONGEST_S, probe.leave)
            loop.run(lambda: probe.is_over)
            return 0 if probe.was_dismissed else NO_CHECK
    except MingleError as wrong:
        os.write(_STDERR, f"mingle check: {wrong}\n".encode())
        return wrong.exit_code
