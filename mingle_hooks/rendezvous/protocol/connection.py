"""One TCP connection that carries frames, both ways, without blocking."""

from __future__ import annotations

from mingle_hooks import sockets as socket
from mingle_hooks.rendezvous.poller import READ, WRITE
from mingle_hooks.rendezvous.protocol.wire import HEADER, MOST_STRANGER_BYTES, WireError, endpoint
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.loop import Loop

# Read in pieces of this many bytes: more than any frame but a large roster.
READ_BYTES = 64 * 1024
# A peer that does not read is dropped once this much waits for it: two of the largest frames.
MOST_WAITING_BYTES = 16 * 1024 * 1024


class Connection:
    """A connection that owns its socket: hands over whole frames, and says once when it has ended.

    `on_frame(kind, payload)` may raise WireError, which ends the connection. `on_end(reason)` comes exactly
    once, unless close() was called first, and never out of send(): who sends to many does not expect that
    they change meanwhile. `on_room()` comes when less is waiting than before. `most_bytes` bounds a frame, and
    grows when the peer has proved itself; `read_bytes` is how much is read at once.
    """

    __slots__ = (
        "_events",
        "_in",
        "_loop",
        "_out",
        "_sock",
        "most_bytes",
        "on_end",
        "on_frame",
        "on_room",
        "read_bytes",
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
        self.most_bytes, self.read_bytes = MOST_STRANGER_BYTES, READ_BYTES
        self._in = bytearray()
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

    def send(self, data: bytes) -> None:
        """Send, or keep for when the peer has room."""
        if self.closed:
            return
        sent = 0
        if not self._out:
            try:
                sent = self._sock.send(data)
            except BlockingIOError:
                pass
            except OSError as error:
                self._end_soon(error.strerror or "send failed")
                return
            if sent == len(data):
                return
            self._watch(self._events | WRITE)
        self._out.append(memoryview(data)[sent:])
        self.waiting_bytes += len(data) - sent
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
            data = self._sock.recv(self.read_bytes)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error.strerror or "receive failed")
            return
        if not data:
            self._end("it closed the connection")
            return
        self._in += data
        try:
            self._frames()
        except WireError as error:
            if not self.closed:
                self._end(str(error))

    def _frames(self) -> None:
        while not self.closed and len(self._in) >= HEADER.size:
            length, kind = HEADER.unpack_from(self._in)
            if length > self.most_bytes:
                raise WireError(f"a frame of {length} bytes, more than {self.most_bytes}")
            end = HEADER.size + length
            if len(self._in) < end:
                return
            with memoryview(self._in) as view:
                payload = bytes(view[HEADER.size : end])  # copied once
            del self._in[:end]
            self.on_frame(kind, payload)


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
