"""One TCP connection that carries frames, both ways, without blocking."""

from __future__ import annotations

import errno
import heapq
import itertools
import math
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.errors import Shortage, limit, shortage
from mingle_hooks.net.addresses import connect_error, hold
from mingle_hooks.rendezvous.wire import HEADER, MOST_STRANGER_BYTES, WireError, endpoint

if TYPE_CHECKING:
    from _typeshed import HasFileno

# The sockets that are ready: by epoll(7), or poll(2) where there is none, without importing `selectors`.

Call = Callable[[int], None]

READ, WRITE = select.POLLIN, select.POLLOUT  # epoll's are the same numbers


class Poller:
    """Watches sockets, each with the events to wait for and the function to call; the owner closes it."""

    def __init__(self) -> None:
        self.watched: dict[int, Call] = {}  # by descriptor
        self._kernel = select.epoll() if hasattr(select, "epoll") else select.poll()
        self._second = 1 if hasattr(self._kernel, "close") else 1000  # epoll waits for seconds, poll for milliseconds

    def close(self) -> None:
        """Free the kernel's resources."""
        if hasattr(self._kernel, "close"):
            self._kernel.close()

    def watch(self, sock: HasFileno, events: int, call: Call) -> None:
        """Call with the ready events whenever sock is ready for READ, WRITE or both. Raises OSError at a limit."""
        self._kernel.register(sock.fileno(), events)
        self.watched[sock.fileno()] = call

    def rewatch(self, sock: HasFileno, events: int, call: Call) -> None:
        """Change the events that sock is watched for."""
        self._kernel.modify(sock.fileno(), events)
        self.watched[sock.fileno()] = call

    def unwatch(self, sock: HasFileno) -> None:
        """Stop watching an open socket; harmless where it is not watched now."""
        if self.watched.pop(sock.fileno(), None) is not None:
            self._kernel.unregister(sock.fileno())

    def ready(self, timeout_s: float) -> list[tuple[int, int]]:
        """Return the descriptors that are ready within timeout_s, and for which events: an error is ready for both."""
        return [(fd, min(events, READ | WRITE)) for fd, events in self._kernel.poll(timeout_s * self._second)]


# Data is read into one buffer, at first of the size of a stranger's largest frame: new memory for each read costs more.
FIRST_BYTES = HEADER.size + MOST_STRANGER_BYTES
# A peer that does not read is dropped once so much data waits for it: two of the largest frames.
MOST_WAITING_BYTES = 16 * 1024 * 1024
# Seconds after which a peer that the kernel has not heard from is gone. A member that loses its leader this way can
# still ask for COMMIT: the leader stays for a lease, 10 s longer, after it last asked for a promise (messages.Leases).
PEER_LOST_S = 20
# A connection ends if no further bytes of an incomplete frame arrive for so many seconds, up to twice as many. TCP
# repeats six packets that are lost in a row within 6 s; the member can call again well within its lease.
STALLED_S = 7.0
# The kernel probes an idle peer after 5 s, and then three times, every 5 s (tcp(7); other systems lack some of these).
_PROBES = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
# The same where the peer acknowledges nothing, in milliseconds.
_UNHEARD = {"TCP_USER_TIMEOUT": PEER_LOST_S * 1000}

# A peer that is gone is an error, and no SIGPIPE, which kills a program that has set it to its default.
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)

# The kernel's maximum: the caller of probe_peer() decides when the peer is lost.
MOST_KEEPALIVES = 127
# tcpi_last_ack_recv of struct tcp_info, in milliseconds (linux/tcp.h).
LAST_ACK = struct.Struct("@56xI")


def _watch_own(loop: Loop, sock: socket.socket, ready: Call) -> None:
    """Watch a socket for READ, or close it. Raises OSError at a limit."""
    try:
        loop.watch(sock, READ, ready)
    except OSError:
        sock.close()
        raise


class Connection:
    """A connection that owns its socket, hands over whole frames, and reports its end once.

    `on_frame(kind, payload)` may raise WireError, which ends the connection. `on_end(reason)` is called exactly once,
    unless close() comes first, and never within send(), whose caller may be iterating over connections. `on_room()` is
    called when less data waits than before. `most_bytes` bounds a frame, and grows when the peer has proved that it
    holds the key. `stalled_s` bounds the wait for the rest of a frame. Raises OSError, with the socket closed, if it
    cannot be watched.
    """

    __slots__ = (
        *("_come", "_events", "_in", "_loop", "_out", "_read_bytes", "_rest", "_sock"),
        *("most_bytes", "on_end", "on_frame", "on_room", "stalled_s", "waiting_bytes"),
    )

    def __init__(
        self, loop: Loop, sock: socket.socket, on_frame: Callable[[int, bytes], None], on_end: Callable[[str], None]
    ) -> None:
        self._loop, self._sock = loop, sock
        self.on_frame, self.on_end = on_frame, on_end
        self.on_room: Callable[[], None] = lambda: None
        self.most_bytes = MOST_STRANGER_BYTES
        # 0: wait without a bound. A length that was changed on the way asks for more bytes than were ever sent.
        self.stalled_s = 0.0
        self._rest = Timer()
        self._read_bytes = 0
        self._in = memoryview(bytearray(FIRST_BYTES))  # begins with the bytes of the next frame
        self._come = 0  # how many bytes of it have arrived
        self._out: list[memoryview] = []  # not copied: thousands may wait for the same roster
        self.waiting_bytes = 0  # of these
        self._events = READ
        _watch_own(loop, sock, self._ready)

    @property
    def closed(self) -> bool:
        """Whether the socket is gone."""
        return self._sock.fileno() < 0

    @property
    def is_connected(self) -> bool:
        """Whether the kernel has accepted all data, which it does only once the connection is established."""
        return not self.closed and not self._out

    def own_address(self) -> str:
        """Return this side's address, without an IPv6 zone."""
        return str(self._sock.getsockname()[0]).partition("%")[0]

    def own_end(self) -> str:
        """Return this side's address and port, as the other side of a connection without a relay sees them."""
        return endpoint(self._sock.getsockname())

    def send(self, *parts: bytes | memoryview) -> None:
        """Send the parts, or queue them until the peer has room."""
        if self.closed:
            return
        sent = 0
        if not self._out:
            try:
                sent = self._sock.sendmsg(parts, (), _NO_SIGNAL)
            except BlockingIOError:
                pass
            except OSError as error:
                self._end_soon(error.strerror or "send failed")
                return
            if sent == sum(map(len, parts)):
                return
            self._watch(self._events | WRITE)
        left = memoryview(b"".join(parts))[sent:]  # one part is not copied
        self._out.append(left)
        self.waiting_bytes += len(left)
        if self.waiting_bytes > MOST_WAITING_BYTES:
            self._end_soon("it does not read")

    def probe_peer(self, every_s: int) -> None:
        """Have the kernel probe an idle peer every `every_s`; the peer's kernel answers even for a stopped process."""
        _keep_alive(self._sock, {"TCP_KEEPIDLE": every_s, "TCP_KEEPINTVL": every_s, "TCP_KEEPCNT": MOST_KEEPALIVES})

    @property
    def unacknowledged_s(self) -> float:
        """Seconds since the peer's kernel last acknowledged something; infinite if this kernel does not say."""
        try:
            info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LAST_ACK.size)
            return float(LAST_ACK.unpack(info)[0]) / 1000
        except (AttributeError, OSError, struct.error):
            return math.inf

    def listen(self, *, wanted: bool) -> None:
        """Resume reading, or pause it: the kernel then makes the other side wait."""
        if not self.closed:
            self._watch(self._events | READ if wanted else self._events & ~READ)

    def _watch(self, events: int) -> None:
        if events != self._events:
            self._events = events
            self._loop.rewatch(self._sock, events, self._ready)

    def close(self) -> None:
        """Close now, without a call of on_end. The kernel still delivers what it has accepted."""
        if not self.closed:
            self._loop.unwatch(self._sock)
            self._sock.close()

    def _end(self, reason: str) -> None:
        self.close()
        self.on_end(reason)

    def _end_soon(self, reason: str) -> None:
        """End from within the loop, after reading what the other side may have sent before it closed."""

        def end() -> None:
            if not self.closed:
                self._read()
            if not self.closed:
                self._end(reason)

        self._loop.after(0.0, end)

    def _ready(self, events: int) -> None:
        # An earlier call of the same turn may have closed it. The peer's last frames are read before its end.
        if events & READ and not self.closed:
            self._read()
        if events & WRITE and not self.closed:
            self._flush()

    def _flush(self) -> None:
        data = self._out[0] if self._out else memoryview(b"")  # the queue is empty where an error woke it
        try:
            sent = self._sock.send(data, _NO_SIGNAL)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error.strerror or "send failed")
            return
        self.waiting_bytes -= sent
        self._out[:1] = [data[sent:]] if sent < len(data) else []
        if not self._out:
            self._watch(self._events & ~WRITE)
        self.on_room()

    def _read(self) -> None:
        try:
            count = self._sock.recv_into(self._in[self._come :])
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error.strerror or "receive failed")
            return
        if not count:
            self._end("it closed the connection")
            return
        self._come += count
        self._read_bytes += count
        try:
            self._frames()
        except WireError as error:
            if not self.closed:
                self._end(str(error))
        if self._come and self.stalled_s and not self._rest.is_set:
            self._await_rest()

    def _await_rest(self) -> None:
        """Check once in a while, and not after each read: a roster arrives in hundreds of pieces."""
        read = self._read_bytes
        self._rest = self._loop.after(self.stalled_s, lambda: self._look(read))

    def _look(self, read: int) -> None:
        if self.closed or not self._come:
            return
        if self._read_bytes == read:
            self._end("the rest of a frame has not come")
        else:
            self._await_rest()

    def _frames(self) -> None:
        begin, come = 0, self._come
        while not self.closed and come - begin >= HEADER.size:
            length, kind = HEADER.unpack_from(self._in, begin)
            if length > self.most_bytes:
                raise WireError(f"a frame of {length} bytes, more than {self.most_bytes}")
            payload = begin + HEADER.size
            if come - payload < length:
                break
            begin = payload + length
            self.on_frame(kind, bytes(self._in[payload:begin]))
        self._keep(self._in[begin:come])

    def _keep(self, rest: memoryview) -> None:
        """Move the bytes of the next frame to the beginning of the buffer, or of a larger one."""
        if len(rest) == len(self._in):
            self._in = memoryview(bytearray(2 * len(rest)))
        self._come = len(rest)
        self._in[: self._come] = rest


# A handshake that takes longer is started anew: TCP repeats its first packet after 1 and after 3 s.
CALL_S = 5.0
# An address that answered, but is not the leader's, is left alone for so many seconds.
BACKOFF_S = 1.0


class Endpoint(NamedTuple):
    """An address and port where a leader may be, and the backend that found it, or found a relay that told it."""

    address: str
    port: int
    backend: str
    is_told: bool = False


def notice_loss(sock: socket.socket, *, drop_unsent: bool) -> None:
    """Have the kernel end a connection whose peer vanished silently, as a host that loses its power does.

    Without `drop_unsent` the kernel keeps trying for minutes while data is unacknowledged, such as a leader's COMMIT to
    a member whose host is suspended. A listener's options apply to the connections that it accepts.
    """
    _keep_alive(sock, {**_PROBES, **(_UNHEARD if drop_unsent else {})})


def _keep_alive(sock: socket.socket, options: Mapping[str, int]) -> None:
    """Have the kernel probe an idle peer, with those of these TCP options that this system has."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in options.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def dial(address: str, port: int) -> socket.socket:
    """Start a TCP connection without waiting. Raises OSError if the kernel refuses at once.

    A link-local IPv6 address carries its zone (`fe80::1%3`). Anything but an address raises OSError: connect() would
    query the resolver, and wait for it.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    socket.inet_pton(family, address.partition("%")[0])
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, _, zone = address.partition("%")
        where = (host, port, 0, int(zone or 0)) if family == socket.AF_INET6 else (host, port)
        try:
            sock.connect(where)
        except BlockingIOError:
            pass
        except OSError as error:
            raise connect_error(error, family, where) from None
    except BaseException:
        sock.close()
        raise
    return sock


# Accepting connections on listeners, even while this process has run out of descriptors or memory.

# Accept at most so many connections in a row before serving the others.
ACCEPT_AT_ONCE = 256
# Out of descriptors or memory.
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# Seconds until the next attempt to accept where no room could be made: the callers wait in the kernel.
ROOM_S = 0.2
Take = Callable[[socket.socket, str], None]


class Callers:
    """Owns listeners, and passes each connection that it accepts to `take(sock, address)`, which then owns it.

    `take` may raise OSError; the connection is then closed. `make_room()` drops another connection where no descriptor
    or memory is left, and returns whether it could. The owner calls close().
    """

    def __init__(
        self, loop: Loop, listeners: Sequence[socket.socket], take: Take, make_room: Callable[[], bool] = lambda: False
    ) -> None:
        self._loop, self._take, self._make_room = loop, take, make_room
        self._listeners = list(listeners)
        self._left: list[socket.socket] = []  # bound, and no longer listening
        self._rooms: dict[int, Timer] = {}  # listener's descriptor -> when it is listened to again
        for listener in self._listeners:
            listener.settimeout(0)
            self._listen(listener)

    def close(self) -> None:
        """Close all listeners, and cancel all timers."""
        for timer in self._rooms.values():
            timer.cancel()
        for listener in self._listeners:
            if listener.fileno() >= 0:
                self._loop.unwatch(listener)
                listener.close()
        for listener in self._left:
            listener.close()

    def leave(self, port: int) -> None:
        """Stop listening on a port, unless it is the only one; it stays bound."""
        listeners = [listener for listener in self._listeners if listener.getsockname()[1] == port]
        if len(listeners) < len(self._listeners):
            self._stop(listeners)

    def hand_over(self, port: int) -> list[socket.socket]:
        """Stop listening on a port and return its sockets, still bound. The caller closes them."""
        self._stop([listener for listener in self._listeners if listener.getsockname()[1] == port])
        held, self._left = self._left, []
        return held

    def _stop(self, listeners: list[socket.socket]) -> None:
        for listener in listeners:
            self._loop.unwatch(listener)
            self._rooms.pop(listener.fileno(), Timer()).cancel()
            hold(listener)
            self._listeners.remove(listener)
            self._left.append(listener)

    def _listen(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._loop.watch(listener, READ, lambda _events: self._accept(listener))

    def _wait(self, listener: socket.socket) -> None:
        self._loop.unwatch(listener)
        self._rooms[listener.fileno()] = self._loop.after(ROOM_S, lambda: self._listen(listener))

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPT_AT_ONCE):
            try:
                sock, where = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # or an error of the connection itself, which accept(2) passes on
                self._loop.missed(error)
                if error.errno in _SHORT and not self._make_room():
                    self._wait(listener)
                return
            try:
                sock.settimeout(0)
                # A framework's bind with SO_REUSEADDR succeeds beside a connection in TIME_WAIT only if that connection
                # has the option too. The listener must never have it: see hold().
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if where:  # else it is a socket of this host's file system
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._take(sock, where[0] if where else "")
            except OSError as error:  # it has ended already, or there is no memory to watch it
                self._loop.missed(error)
                sock.close()


# One thread, many sockets and timers: asyncio without the 30 ms that importing it costs.

# The longest sleep in seconds, so that a clock that jumps cannot make a wait endless.
LONGEST_SLEEP_S = 1.0


def _steadiest() -> int:
    """Return the clock that advances while this host is suspended, or else the monotonic one.

    CLOCK_BOOTTIME is Linux's. Other systems, and sandboxes that lack it, have CLOCK_MONOTONIC.
    """
    try:
        time.clock_gettime(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):
        return time.CLOCK_MONOTONIC
    return time.CLOCK_BOOTTIME


CLOCK = _steadiest()


def boottime() -> float:
    """Return the time in seconds by which members keep leases and deadlines, independent of the time of day."""
    return time.clock_gettime(CLOCK)


class Timer:
    """A call that is due once, or no call; cancel() prevents it."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None] | None = None) -> None:
        self.call = call

    @property
    def is_set(self) -> bool:
        """Whether the call is still to come."""
        return self.call is not None

    def cancel(self) -> None:
        """Drop the call; harmless after it has happened."""
        self.call = None


class Loop:
    """Calls back when a socket is ready or a timer is due. Use it in a `with` statement."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, poller: Poller | None = None) -> None:
        self.clock = clock
        self.poller = poller or Poller()
        self.watch, self.rewatch, self.unwatch = self.poller.watch, self.poller.rewatch, self.poller.unwatch
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self.names_since = math.inf  # when the first look-up of a leader's name began, and how long all took
        self.names_s = 0.0
        self.shortage: Shortage | None = None  # what this process ran out of, for the final message

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *_error: object) -> None:
        self.poller.close()

    def missed(self, error: Exception) -> None:
        """Record an error if it shows that a limit of this process was reached."""
        self.shortage = shortage(error) or self.shortage

    def after(self, delay_s: float, call: Callable[[], None]) -> Timer:
        """Call once, delay_s seconds from now."""
        timer = Timer(call)
        heapq.heappush(self._timers, (self.clock() + delay_s, next(self._order), timer))
        return timer

    def about(self, delay_s: float) -> float:
        """Return a random delay within a fifth of delay_s, so that members do not act in step."""
        return delay_s * (0.8 + 0.4 * self.chance())

    def chance(self) -> float:
        """Return a random number from 0 to 1."""
        return int.from_bytes(os.urandom(2), "big") / 65536

    def run(self, finished: Callable[[], bool]) -> None:
        """Serve sockets and timers until finished() is true; a timer of the caller bounds the wait."""
        while not finished():
            self.turn(self.due_in())

    def turn(self, wait_s: float) -> None:
        """Serve the timers that are due and the sockets that are ready, once, after at most wait_s seconds.

        Timers come first: after this process or its host was stopped, the frames that arrived may be out of date.
        """
        ready = self.poller.ready(wait_s)
        self._ring()
        for descriptor, events in ready:
            call = self.poller.watched.get(descriptor)
            if call is not None:  # an earlier call of this turn may have closed it
                call(events)

    def due_in(self) -> float:
        """Return the seconds until the next timer, and at most LONGEST_SLEEP_S."""
        if not self._timers:
            return LONGEST_SLEEP_S
        return min(max(self._timers[0][0] - self.clock(), 0.0), LONGEST_SLEEP_S)

    def _ring(self) -> None:
        now = self.clock()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            call, timer.call = timer.call, None
            if call is not None:
                call()


# Host names to addresses, without waiting for a name server that does not answer.

# Addresses of one name that are used: more than any node has networks.
MOST_ADDRESSES, LONGEST_ADDRESS = 8, 64  # characters, with a zone's number and a blank
# A member waits at most so many seconds for the addresses of a name, then goes on without them.
RESOLVE_S = 10.0


class Lookup:
    """Resolves a name in a thread, as getaddrinfo(3) cannot be interrupted; a late answer is dropped.

    Raises OSError if no descriptor is free, and LimitError if no thread can be started.
    """

    def __init__(self, loop: Loop, host: str, on_result: Callable[[str, list[str]], None]) -> None:
        self._loop, self._host, self._on_result = loop, host, on_result
        self._receiver = _start_lookup(host)
        self._receiver.settimeout(0)
        _watch_own(loop, self._receiver, self._ready)

    def close(self) -> None:
        """Drop the answer."""
        if self._receiver.fileno() >= 0:
            self._loop.unwatch(self._receiver)
            self._receiver.close()

    def _ready(self, _events: int) -> None:
        try:
            addresses = _found(self._receiver)
        except BlockingIOError:  # the event was of a socket that had this descriptor before
            return
        self.close()
        self._on_result(self._host, addresses)


def resolve(host: str, timeout_s: float) -> list[str]:
    """Return the addresses of a host, none if it has none or the resolver takes longer than timeout_s.

    Raises the errors of Lookup.
    """
    with _start_lookup(host) as receiver:
        receiver.settimeout(timeout_s)
        try:
            return _found(receiver)
        except TimeoutError:
            return []


def _start_lookup(host: str) -> socket.socket:
    """Return a socket that receives the addresses of a host, as one text, or its end if there are none."""
    receiver, sender = socket.socketpair()
    try:
        threading.Thread(target=_resolve, args=(host, sender), daemon=True).start()
    except RuntimeError as error:
        receiver.close()
        sender.close()
        raise limit(error) or error from None
    return receiver


def _found(receiver: socket.socket) -> list[str]:
    return receiver.recv(MOST_ADDRESSES * LONGEST_ADDRESS).decode().split()


def is_local(address: str) -> bool:
    """Return whether an address is one of this host's: only then can a socket be bound to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((address.partition("%")[0], 0))
    except OSError:
        return False
    return True


def _resolve(host: str, sender: socket.socket) -> None:
    with sender, suppress(OSError):  # nobody waits for the answer any more
        try:
            rows = socket.getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM)
        except (OSError, ValueError):  # ValueError: text that is no host name: not ASCII, or with a NUL
            rows = []
        addresses = [*dict.fromkeys(_address(row[4]) for row in rows)]
        sender.sendall(" ".join(addresses[:MOST_ADDRESSES]).encode(), _NO_SIGNAL)


def _address(where: tuple[object, ...]) -> str:
    address = str(where[0]).partition("%")[0]
    zone = (*where[3:], 0)[0]  # IPv6: address, port, flow, zone
    return f"{address}%{zone}" if zone else address
