"""Where a runner is asked: a port for those who hold one key of its user's.

Strangers cost it next to nothing: they are few at a time, and each has a few seconds. Nothing is said to them but a
random number.
"""

from __future__ import annotations

import errno

from mingle_hooks import sockets as socket
from mingle_hooks.errors import NetworkError, limit
from mingle_hooks.rendezvous.poller import READ
from mingle_hooks.supervise.protocol.link import Link
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.loop import Loop, Timer
    from mingle_hooks.rendezvous.protocol.attempt import Secret
    from mingle_hooks.rendezvous.protocol.wire import Body

# So many callers at once, each for so long, unless it waits for the end; with one more the first of them goes.
MOST_CALLERS, CALLER_S = 64, 10.0
_ACCEPT_AT_ONCE = 16
_BACKLOG = 128
# Out of descriptors or memory: look this much later whether there are some.
_SHORT, _ROOM_S = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM), 1.0
_TRIES = 16


class Door:
    """`on_question(link, kind, body)` gets what those ask who hold the key, and may raise WireError.

    Raises NetworkError where no port can be opened.
    """

    def __init__(self, loop: Loop, secret: Secret, on_question: Callable[[Link, int, Body], None]) -> None:
        self._loop, self._secret, self._on_question = loop, secret, on_question
        self._callers: dict[Link, float] = {}  # and since when it is here; oldest first
        self._sweeper: Timer | None = None
        self._listeners: list[socket.socket] = []
        self.port = _opened(self._listeners)
        for listener in self._listeners:
            self._listen(listener)

    def close(self) -> None:
        """Close all. What has been said is still delivered."""
        for listener in self._listeners:
            self._loop.unwatch(listener)
            listener.close()
        for link in self._callers:
            link.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._listeners = []
        self._callers.clear()

    def _listen(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._loop.watch(listener, READ, lambda _events: self._accept(listener))

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPT_AT_ONCE):
            try:
                sock, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # else the caller's own trouble, which accept(2) hands on
                if error.errno in _SHORT:
                    self._loop.unwatch(listener)
                    self._loop.after(_ROOM_S, lambda: self._listen(listener))
                return
            try:
                sock.settimeout(0)
                self._take_in(sock)
            except OSError:  # it has gone already, or there is no memory to watch it
                sock.close()

    def _take_in(self, sock: socket.socket) -> None:
        link = Link(self._loop, sock, self._secret, is_runner=True, on_end=lambda _reason: self._forget(link))
        link.on_message = lambda kind, body: self._on_question(link, kind, body)
        self._callers[link] = self._loop.clock()
        if len(self._callers) > MOST_CALLERS:
            self._turn_away(next(iter(self._callers)))
        if self._sweeper is None:
            self._sweep()

    def _sweep(self) -> None:
        """Turn those away who have been here for too long, and look again when the next will have been."""
        now = self._loop.clock()
        for link in [link for link, since in self._callers.items() if since <= now - CALLER_S]:
            self._turn_away(link)
        oldest = next(iter(self._callers.values()), None)
        self._sweeper = None if oldest is None else self._loop.after(oldest + CALLER_S - now, self._sweep)

    def keep(self, link: Link) -> None:
        """Leave a caller who has proved to hold the key to its owner: it may wait for the end."""
        self._forget(link)

    def _forget(self, link: Link) -> None:
        self._callers.pop(link, None)

    def _turn_away(self, link: Link) -> None:
        if link in self._callers:
            self._forget(link)
            link.close()


def _opened(kept: list[socket.socket]) -> int:
    """Listen on a port of the kernel's choice in all families that this host has; return it. Raises NetworkError."""
    for _ in range(_TRIES):
        port = 0
        try:
            for family, where in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):  # noqa: S104 - any of its networks
                if family == socket.AF_INET6 and not _has_ipv6():
                    continue
                sock = socket.socket(family, socket.SOCK_STREAM)
                kept.append(sock)
                sock.settimeout(0)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.bind((where, port))
                sock.listen(_BACKLOG)
                port = int(sock.getsockname()[1])
        except OSError as error:
            for sock in kept:
                sock.close()
            kept.clear()
            if (short := limit(error)) is not None:
                raise short from None
        else:
            return port
    raise NetworkError("a free port for questions", "none", "an end of what listens on this host")


def _has_ipv6() -> bool:
    try:
        socket.socket(socket.AF_INET6, socket.SOCK_STREAM).close()
    except OSError:
        return False
    return True
