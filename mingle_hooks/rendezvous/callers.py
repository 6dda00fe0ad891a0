"""Accepting connections on listeners, also where this process has run out of what one takes."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

from mingle_hooks.fabric.ports import hold
from mingle_hooks.rendezvous.poller import READ

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mingle_hooks.rendezvous.loop import Loop, Timer

# Accept this many connections before looking at the others again.
ACCEPT_AT_ONCE = 256
# Out of descriptors or memory.
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# Where nobody can go, look this much later, in seconds, whether there is room: the callers wait in the kernel.
ROOM_S = 0.2


class Callers:
    """Owns the listeners, and calls `take(sock, address)` for each connection, which then belongs to whoever took it.

    `take` may raise OSError, and the connection is closed. `make_room()` lets somebody go where there is no descriptor
    or memory left, and tells whether it could. The owner calls close().
    """

    def __init__(
        self,
        loop: Loop,
        listeners: Sequence[socket.socket],
        take: Callable[[socket.socket, str], None],
        make_room: Callable[[], bool] = lambda: False,
    ) -> None:
        self._loop, self._take, self._make_room = loop, take, make_room
        self._listeners = list(listeners)
        self._left: list[socket.socket] = []  # bound, and no longer listening
        self._rooms: dict[int, Timer] = {}  # listener's descriptor -> when it is listened to again
        for listener in self._listeners:
            listener.settimeout(0)
            self._listen(listener)

    def close(self) -> None:
        """Let go of every listener and timer."""
        for timer in self._rooms.values():
            timer.cancel()
        for listener in self._listeners:
            if listener.fileno() >= 0:
                self._loop.unwatch(listener)
                listener.close()
        for listener in self._left:
            listener.close()

    def leave(self, port: int) -> None:
        """Stop listening on a port, where others are left; it stays bound."""
        its = [listener for listener in self._listeners if listener.getsockname()[1] == port]
        if len(its) < len(self._listeners):
            self._stop(its)

    def hand_over(self, port: int) -> list[socket.socket]:
        """Stop listening on a port and return its sockets, still bound. The caller closes them."""
        self._stop([listener for listener in self._listeners if listener.getsockname()[1] == port])
        held, self._left = self._left, []
        return held

    def _stop(self, listeners: list[socket.socket]) -> None:
        for listener in listeners:
            self._loop.unwatch(listener)
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
            except OSError as error:  # else the caller's own trouble, which accept(2) hands on
                self._loop.missed(error)
                if error.errno in _SHORT and not self._make_room():
                    self._wait(listener)
                return
            try:
                sock.settimeout(0)
                # A framework's bind with SO_REUSEADDR gets past a connection in TIME_WAIT only where that has it too.
                # The listener must never have it: see ports.hold.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._take(sock, where[0])
            except OSError as error:  # it has gone already, or there is no memory to watch it
                self._loop.missed(error)
                sock.close()
