"""One TCP connection that carries frames, both ways, without blocking."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from mingle_hooks.rendezvous.poller import READ, WRITE
from mingle_hooks.rendezvous.protocol.wire import HEADER, MOST_STRANGER_BYTES, WireError, endpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.loop import Loop, Timer

# What comes is read into one buffer, at first of a stranger's largest frame: new memory for each read costs more.
FIRST_BYTES = HEADER.size + MOST_STRANGER_BYTES
# A peer that does not read is dropped once this much waits for it: two of the largest frames.
MOST_WAITING_BYTES = 16 * 1024 * 1024
# A peer that the kernel has not heard for this long is gone, in seconds. A member that has lost its leader so can still
# ask for the word: the leader stays for a lease, 10 s longer, after it last asked for a promise (leases.py).
GONE_S = 20
# A connection ends if nothing more of a frame that has begun comes for so long, or up to twice that, in seconds. TCP
# repeats six packets that are lost in a row within 6 s; the member can call again well within its lease.
STALLED_S = 7.0
# The kernel asks an idle peer after 5 s, and then three times, every 5 s (tcp(7); other systems lack some of these).
_PROBES = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
# The same where the peer acknowledges nothing, in milliseconds.
_UNHEARD = {"TCP_USER_TIMEOUT": GONE_S * 1000}


class Connection:
    """A connection that owns its socket: hands over whole frames, and says once when it has ended.

    `on_frame(kind, payload)` may raise WireError, which ends the connection. `on_end(reason)` comes exactly
    once, unless close() was called first, and never out of send(): who sends to many does not expect that
    they change meanwhile. `on_room()` comes when less is waiting than before. `most_bytes` bounds a frame, and
    grows when the peer has proved itself. `stalled_s` bounds the wait for the rest of a frame.
    """

    __slots__ = (
        "_come",
        "_events",
        "_in",
        "_loop",
        "_out",
        "_read_bytes",
        "_rest",
        "_sock",
        "most_bytes",
        "on_end",
        "on_frame",
        "on_room",
        "stalled_s",
        "waiting_bytes",
    )

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        on_frame: Callable[[int, bytes], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._loop, self._sock = loop, sock
        self.on_frame, self.on_end = on_frame, on_end
        self.on_room: Callable[[], None] = lambda: None
        self.most_bytes = MOST_STRANGER_BYTES
        # End if nothing of a frame that has begun comes for so many seconds, up to twice; 0: wait. A length that was
        # changed on the way asks for more than was ever sent.
        self.stalled_s = 0.0
        self._rest: Timer | None = None
        self._read_bytes = 0
        self._in = memoryview(bytearray(FIRST_BYTES))  # begins with what has come of the next frame
        self._come = 0  # how much that is
        self._out: list[memoryview] = []  # not copied: thousands may wait for the same roster
        self.waiting_bytes = 0  # of these
        self._events = READ
        loop.watch(sock, READ, self._ready)

    @property
    def closed(self) -> bool:
        """Whether the socket is gone."""
        return self._sock.fileno() < 0

    @property
    def is_connected(self) -> bool:
        """Whether the kernel has taken all that was sent, which it does only once the other side is there."""
        return not self.closed and not self._out

    def own_address(self) -> str:
        """Return this side's address, without an IPv6 zone."""
        return str(self._sock.getsockname()[0]).partition("%")[0]

    def own_end(self) -> str:
        """Return this side's address and port, as the other side of a connection without a relay sees them."""
        return endpoint(self._sock.getsockname())

    def send(self, *parts: bytes | memoryview) -> None:
        """Send, or keep for when the peer has room."""
        if self.closed:
            return
        sent = 0
        if not self._out:
            try:
                sent = self._sock.sendmsg(parts)
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

    def listen(self, *, wanted: bool) -> None:
        """Go on reading, or leave what comes with the kernel: the other side then has to wait."""
        if not self.closed:
            self._watch(self._events | READ if wanted else self._events & ~READ)

    def _watch(self, events: int) -> None:
        if events != self._events:
            self._events = events
            self._loop.rewatch(self._sock, events, self._ready)

    def close(self) -> None:
        """Close now; on_end will not come. What the kernel has taken is still delivered."""
        if not self.closed:
            self._loop.unwatch(self._sock)
            self._sock.close()

    def _end(self, reason: str) -> None:
        self.close()
        self.on_end(reason)

    def _end_soon(self, reason: str) -> None:
        """End from the loop, after reading what the other side may have said before it went."""

        def end() -> None:
            if not self.closed:
                self._read()
            if not self.closed:
                self._end(reason)

        self._loop.after(0.0, end)

    def _ready(self, events: int) -> None:
        # What came before this in the same round may have closed it. Its last words come before its end.
        if events & READ and not self.closed:
            self._read()
        if events & WRITE and not self.closed:
            self._flush()

    def _flush(self) -> None:
        data = self._out[0] if self._out else memoryview(b"")  # nothing waits where it is for an error that it came
        try:
            sent = self._sock.send(data)
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
        if self._come and self.stalled_s and self._rest is None:
            self._await_rest()

    def _await_rest(self) -> None:
        """Look once in a while, and not after each piece: a roster comes in hundreds."""
        read = self._read_bytes
        self._rest = self._loop.after(self.stalled_s, lambda: self._look(read))

    def _look(self, read: int) -> None:
        self._rest = None
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
        """Move what has come of the next frame to the buffer's beginning, or to that of a larger one."""
        if len(rest) == len(self._in):
            self._in = memoryview(bytearray(2 * len(rest)))
        self._come = len(rest)
        self._in[: self._come] = rest


def notice_loss(sock: socket.socket, *, drop_unsent: bool) -> None:
    """Have the kernel end a connection whose peer vanished without a word, as a host does that loses its power.

    Without `drop_unsent` it goes on for minutes where something is still to be delivered, as the last word of a leader
    is to a member whose host is suspended. What a listener is told holds for the connections that it accepts.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {**_PROBES, **(_UNHEARD if drop_unsent else {})}.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def dial(address: str, port: int) -> socket.socket:
    """Begin a TCP connection without waiting; OSError when the kernel refuses at once.

    A link-local IPv6 address carries its zone (`fe80::1%3`). Anything but an address is refused: connect()
    would ask the resolver, and wait for it.
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
            from mingle_hooks.fabric.ports import told

            raise told(error, family, where) from None
    except BaseException:
        sock.close()
        raise
    return sock
