"""A simulated network: TCP connections and multicast datagrams between hosts, and what goes wrong with them."""

from __future__ import annotations

import errno
import os
import random
import socket
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from mingle_hooks.rendezvous.connection import PEER_LOST_S, READ, WRITE
from mingle_hooks.rendezvous.wire import HEADER, MAC_BYTES
from simulator.timeline import Timeline

# One way, in seconds: the usual, and the slow one of which there is one among SLOW_ONE_IN.
LATENCY_S, SLOW_S, SLOW_ONE_IN = (0.00005, 0.002), (0.01, 0.3), 40
# TCP sends again after so many seconds, what a cut has swallowed.
SEND_AGAIN_S = (0.2, 0.4, 0.8, 1.6, 3.2)
SYN_AGAIN_S = (1.0, 2.0, 4.0, 8.0)
FIRST_EPHEMERAL = 40_000
# After so many seconds without a word a kernel asks whether the other end is there.
ASKS_S = 5.0
# Where the body of a sealed frame begins.
FIRST_SAID = HEADER.size + MAC_BYTES


class Owner(Protocol):
    """A process that owns sockets."""

    network: Network
    host: Host
    sockets: dict[int, SimSocket]

    def wake(self) -> None:
        """Have its loop take a turn soon."""


class Host:
    """A host: its addresses, its listeners, and whether it has power."""

    def __init__(self, name: str, addresses: tuple[str, ...]) -> None:
        self.name, self.addresses = name, addresses
        self.listeners: dict[int, SimSocket] = {}
        self.next_port = FIRST_EPHEMERAL
        self.slowness_s = 0.0  # what a turn of a process may take

    def source(self, target: str) -> str | None:
        """Return the address that a connection to target comes from; None where there is no route."""
        if target in self.addresses or target.startswith("127."):
            return target
        net = target.rsplit(".", 1)[0] + "."
        return next((address for address in self.addresses if address.startswith(net)), None)


class Network:
    """Hosts, the cuts between them, and everything under way. `seen(source, target, data)` is told what is sent."""

    def __init__(self, timeline: Timeline, rng: random.Random, seen: Callable[[Host, Host, bytes], None]) -> None:
        self.timeline, self.rng, self.seen = timeline, rng, seen
        self.hosts: dict[str, Host] = {}  # by address
        self.cuts: dict[tuple[str, str], int] = {}  # (from, to) -> how many faults cut this way now
        self.loss = self.twice = 0.0  # of datagrams
        self.has_slow_packets = True
        self.links: list[SimLink] = []
        self.datagrams: list[bytes] = []  # all that were ever sent
        self.streams: dict[tuple[int, str], list[bytes]] = {}  # what callers said, by connection, to whom
        self.forged: dict[tuple[str, str], int] = {}  # (from, to) -> how many more frames are changed on this way
        self._calls: list[SimSocket] = []  # the calling ends of all connections
        self._descriptors = 3

    def add(self, host: Host) -> Host:
        """Take a host in."""
        for address in host.addresses:
            self.hosts[address] = host
        return host

    def descriptor(self) -> int:
        """Return a number that no other socket has or had."""
        self._descriptors += 1
        return self._descriptors

    def latency(self) -> float:
        """Return how long the next packet takes, in seconds."""
        is_slow = self.has_slow_packets and self.rng.randrange(SLOW_ONE_IN) == 0
        least, most = SLOW_S if is_slow else LATENCY_S
        return least + (most - least) * self.rng.random()

    def is_cut(self, source: Host, target: Host) -> bool:
        """Tell whether nothing gets from one host to another now."""
        return source is not target and (source.name, target.name) in self.cuts

    def cut(self, source: str, target: str, count: int) -> None:
        """Cut one way (count 1), or take that cut back (-1)."""
        left = self.cuts.get((source, target), 0) + count
        if left:
            self.cuts[source, target] = left
        else:
            self.cuts.pop((source, target), None)

    def connections(self, host: Host) -> list[SimSocket]:
        """Return the ends at this host of the connections that are open at both ends, to other hosts."""
        self._calls = [sock for sock in self._calls if sock.fd >= 0]
        ends = [end for sock in self._calls for end in (sock, sock.peer) if end is not None and end.peer is not None]
        return [e for e in ends if e.host is host and e.peer.host is not host and min(e.fd, e.peer.fd) >= 0]  # type: ignore[union-attr]

    def lose(self, end: SimSocket) -> None:
        """Take a connection from one end, and have nothing get through any more: the other is not told.

        It finds out by asking, as its kernel does where it was told to, for so long.
        """
        other = end.peer
        for pipe in (end.pipe, other.pipe):
            if pipe is not None:
                pipe.lose()
        end.fail(errno.ETIMEDOUT)
        self.timeline.after(other.heard + PEER_LOST_S - self.timeline.now, other.notice)

    def forge(self, data: bytes) -> bytes:
        """Change one octet: a digit of the body into another, or any bit."""
        digits = [at for at in range(FIRST_SAID, len(data)) if data[at] in b"0123456789"]
        changed = bytearray(data)
        if digits and self.rng.random() < 0.8:
            at = self.rng.choice(digits)
            changed[at] = self.rng.choice([digit for digit in b"0123456789" if digit != data[at]])
        else:
            changed[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
        return bytes(changed)

    def deliver(self, source: Host, target: Host, call: Callable[[], None], again: tuple[float, ...]) -> None:
        """Call once a packet from source has come to target: a cut delays it, by TCP's own times, or for good."""
        self.timeline.after(self.latency(), partial(self._arrive, source, target, call, again, 0))

    def _arrive(
        self, source: Host, target: Host, call: Callable[[], None], again: tuple[float, ...], tries: int
    ) -> None:
        if not self.cuts or not self.is_cut(source, target):
            call()
        elif tries < len(again):
            self.timeline.after(again[tries], partial(self._arrive, source, target, call, again, tries + 1))
        elif again is SEND_AGAIN_S:
            self.timeline.after(again[-1], partial(self._arrive, source, target, call, again, tries))

    def multicast(self, sender: SimLink, data: bytes) -> None:
        """Send a datagram to every link of the sender's network, its own too; each may lose it, or get it twice."""
        self.datagrams.append(data)
        for link in list(self.links):
            if link.net == sender.net and not self.is_cut(sender.owner.host, link.owner.host):
                copies = 0 if self.rng.random() < self.loss else 1 + (self.rng.random() < self.twice)
                for _ in range(copies):
                    self.timeline.after(self.latency(), partial(link.take, data, (sender.address, 5000)))


class Pipe:
    """One direction of a connection: what is sent comes in order, and late where a cut holds it up."""

    def __init__(self, network: Network, source: SimSocket, target: SimSocket) -> None:
        self.network, self.source, self.target = network, source, target
        self.queue: deque[bytes | None] = deque()  # None: the end
        self.busy = self.lost = False
        self.is_heard = True  # whether all was acknowledged that was sent before nothing got through any more

    def lose(self) -> None:
        """Let nothing through any more."""
        self.lost, self.is_heard = True, not self.queue
        self.queue.clear()

    def push(self, data: bytes | None) -> None:
        """Send data, or the end."""
        if self.lost:
            self.is_heard = False
            return
        self.queue.append(data)
        if not self.busy:
            self._next()

    def _next(self) -> None:
        self.busy = bool(self.queue)
        if self.busy:
            self.network.deliver(self.source.host, self.target.host, self._arrived, SEND_AGAIN_S)

    def _arrived(self) -> None:
        while self.queue:
            self.target.arrived(self.queue.popleft())
        self._next()


class SimSocket:
    """What mingle_hooks uses of a stream socket, non-blocking."""

    def __init__(self, owner: Owner) -> None:
        self.network, self.owner, self.host = owner.network, owner, owner.host
        self.fd = self.network.descriptor()
        self.name, self.peer_name = ("0.0.0.0", 0), ("0.0.0.0", 0)
        self.is_open = False
        self.heard = 0.0  # when something came from the other end
        # Whether its kernel notices that the other end is gone: while nothing is under way to that end, and else.
        self.asks = self.drops_unsent = False
        self.error = 0
        self.ended = False
        self.data = bytearray()
        self.backlog: deque[SimSocket] | None = None
        self.pipe: Pipe | None = None
        self.peer: SimSocket | None = None
        owner.sockets[self.fd] = self

    # As socket.socket.

    def fileno(self) -> int:
        return self.fd

    def settimeout(self, _seconds: float | None) -> None:
        """All are non-blocking."""

    def setsockopt(self, level: int, name: int, value: object) -> None:
        """Two matter here."""
        if (level, name) == (socket.SOL_SOCKET, socket.SO_KEEPALIVE):
            self.asks = bool(value)
        if (level, name) == (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT):
            self.drops_unsent = True

    def getsockname(self) -> tuple[str, int]:
        return self.name

    def bind(self, where: tuple[str, int]) -> None:
        if where[1] in self.host.listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self.name = where

    def listen(self, _backlog: int = 0) -> None:
        self.backlog = deque()
        self.host.listeners[self.name[1]] = self

    def accept(self) -> tuple[SimSocket, tuple[str, int]]:
        if not self.backlog:
            raise BlockingIOError(errno.EAGAIN, "none waits")
        served = self.backlog.popleft()
        return served, served.peer_name

    def connect(self, where: tuple[Any, ...]) -> None:
        source = self.host.source(where[0])
        target = self.host if where[0].startswith("127.") else self.network.hosts.get(where[0])
        if source is None or target is None:
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        self.host.next_port += 1
        self.name, self.peer_name = (source, self.host.next_port), (where[0], where[1])
        self.network.deliver(self.host, target, lambda: self._called(target), SYN_AGAIN_S)
        raise BlockingIOError(errno.EINPROGRESS, "under way")

    def send(self, data: bytes | bytearray, _flags: int = 0) -> int:
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        if not self.is_open or self.pipe is None or self.peer is None:
            raise BlockingIOError(errno.EAGAIN, "not connected yet")
        rng = self.network.rng
        taken = bytes(data if rng.random() > 0.03 else data[: rng.randrange(1, len(data) + 1)])
        self.network.seen(self.host, self.peer.host, taken)
        if self.network.forged:
            taken = self._forged(self.peer.host, taken)
        if self.backlog is None and self.peer_name[1] < FIRST_EPHEMERAL:
            self.network.streams.setdefault((self.fd, self.peer.host.name), []).append(taken)
        self.pipe.push(taken)
        return len(taken)

    def _forged(self, target: Host, data: bytes) -> bytes:
        forged, way = self.network.forged, (self.host.name, target.name)
        if not forged.get(way):
            return data
        forged[way] -= 1
        return self.network.forge(data)

    def sendmsg(self, parts: Iterable[bytes | memoryview], _control: object = (), _flags: int = 0) -> int:
        return self.send(b"".join(parts))

    def recv_into(self, buffer: memoryview) -> int:
        if self.data:
            count = min(len(buffer), len(self.data))
            buffer[:count] = self.data[:count]
            del self.data[:count]
            return count
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        if self.ended:
            return 0
        raise BlockingIOError(errno.EAGAIN, "nothing yet")

    def shutdown(self, _how: int = 0) -> None:
        """Stop listening."""
        if self.backlog is not None:
            del self.host.listeners[self.name[1]]
            for waiting in self.backlog:
                waiting.close()
            self.backlog = None

    def close(self) -> None:
        if self.fd < 0:
            return
        self.owner.sockets.pop(self.fd, None)
        if self.backlog is not None:
            self.shutdown()
        elif self.pipe is not None and not self.error:
            if self.data:
                self.reset_peer()  # as Linux does where something is left unread
            else:
                self.pipe.push(None)
        self.fd = -1

    # What the network does.

    def ready(self, events: int) -> int:
        """Return for which of these this socket is ready; for all of them, wanted or not, when it has broken."""
        if self.error:
            return READ | WRITE
        if self.data or self.ended or self.backlog:
            return events if self.is_open else events & READ
        return events & WRITE if self.is_open else 0

    def fail(self, number: int) -> None:
        """Break this end: what has not been read yet is gone too."""
        if self.fd >= 0 and not self.error:
            self.error = number
            self.data.clear()
            self.owner.wake()

    def notice(self) -> None:
        """Give the other end up, as a kernel does that has not heard from it for so long."""
        is_heard = self.pipe is not None and self.pipe.is_heard and not self.pipe.queue
        if self.asks if is_heard else self.drops_unsent:
            self.fail(errno.ETIMEDOUT)

    def notice_end(self) -> None:
        """Hear from the other end's kernel, when asked, that it has given this connection up."""
        if self.asks and self.peer is not None and (self.peer.error or self.peer.fd < 0):
            self.fail(errno.ECONNRESET)

    def reset_peer(self) -> None:
        """Tell the other end that this one is gone."""
        peer = self.peer
        if peer is not None and not (self.pipe is not None and self.pipe.lost):
            self.network.deliver(self.host, peer.host, lambda: peer.fail(errno.ECONNRESET), SEND_AGAIN_S)

    def arrived(self, data: bytes | None) -> None:
        """Take what came through the pipe."""
        if self.fd < 0:
            if data is not None:
                self.reset_peer()
            return
        if self.error:
            return
        self.heard = self.network.timeline.now
        if data is None:
            self.ended = True
        else:
            self.data += data
        self.owner.wake()

    def _called(self, target: Host) -> None:
        """Have the listener of this port take the call, where there is one."""
        listener = target.listeners.get(self.peer_name[1])
        if self.fd < 0:
            return
        if listener is None or listener.backlog is None:
            self.network.deliver(target, self.host, lambda: self.fail(errno.ECONNREFUSED), ())
            return
        served = SimSocket(listener.owner)
        served.name, served.peer_name = self.peer_name, self.name
        served.is_open, served.asks, served.heard = True, listener.asks, self.network.timeline.now
        self.network._calls.append(self)
        served.peer, self.peer = self, served
        served.pipe, self.pipe = Pipe(self.network, served, self), Pipe(self.network, self, served)
        listener.backlog.append(served)
        listener.owner.wake()
        self.network.deliver(target, self.host, self._connected, SEND_AGAIN_S)

    def _connected(self) -> None:
        if self.fd >= 0:
            self.is_open, self.heard = True, self.network.timeline.now
            self.owner.wake()


class SimLink:
    """What the multicast backend uses of one interface: as a Link, and as its receiving socket."""

    def __init__(self, owner: Owner, loop: Any, read: Callable[..., None], info: Any, *_: object) -> None:
        self.network, self.owner, self.info, self._loop = owner.network, owner, info, loop
        self.address = info.machine_name
        self.label, self.net = f"group on {self.address}", self.address.rsplit(".", 1)[0]
        self.fd = self.network.descriptor()
        self.waiting: deque[tuple[bytes, tuple[str, int]]] = deque()
        self.network.links.append(self)
        loop.watch(self, READ, lambda _events: read(self, self))

    def send(self, data: bytes) -> None:
        """Send a datagram to all of this network."""
        self.network.multicast(self, data)

    def close(self) -> None:
        """Leave the network."""
        self._loop.unwatch(self)
        if self in self.network.links:
            self.network.links.remove(self)

    def fileno(self) -> int:
        return self.fd

    def ready(self, _events: int) -> int:
        """Return for what it is ready."""
        return READ if self.waiting else 0

    def take(self, data: bytes, where: tuple[str, int]) -> None:
        """Take a datagram."""
        self.waiting.append((data, where))
        self.owner.wake()

    def recvfrom(self, _size: int) -> tuple[bytes, tuple[str, int]]:
        return self.waiting.popleft()


class SimPoller:
    """As mingle_hooks.rendezvous.connection.Poller, in an order that the seed decides."""

    def __init__(self, rng: random.Random) -> None:
        self.watched: dict[int, Callable[[int], None]] = {}
        self._held: dict[int, tuple[Any, int]] = {}
        self._rng = rng

    def close(self) -> None:
        """Nothing is held."""

    def watch(self, sock: Any, events: int, call: Callable[[int], None]) -> None:
        assert sock.fileno() >= 0
        self.watched[sock.fileno()] = call
        self._held[sock.fileno()] = (sock, events)

    rewatch = watch

    def unwatch(self, sock: Any) -> None:
        self.watched.pop(sock.fileno(), None)
        self._held.pop(sock.fileno(), None)

    def ready(self, _timeout_s: float) -> list[tuple[int, int]]:
        """Return what is ready now."""
        found = []
        for descriptor, (sock, events) in self._held.items():
            if told := sock.ready(events):
                found.append((descriptor, told))
        if len(found) > 1:
            self._rng.shuffle(found)
        return found

    def is_due(self) -> bool:
        """Tell whether something is ready, or still is: what a turn left unread is not told of again."""
        for sock, events in self._held.values():  # noqa: SIM110 - asked after each turn, and any() takes twice as long
            if sock.ready(events):
                return True
        return False
