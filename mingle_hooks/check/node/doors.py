"""The TCP side of a probe that others come to: it says who is here, and counts what it is sent."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

from mingle_hooks.check import packet
from mingle_hooks.check.packet import HERE, Packet
from mingle_hooks.fabric import ports
from mingle_hooks.rendezvous.callers import Callers
from mingle_hooks.rendezvous.poller import READ

if TYPE_CHECKING:
    import socket

    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.rendezvous.protocol.attempt import Secret

# Octets that came, and in how many nanoseconds.
COUNT = struct.Struct("!QQ")
_READ_BYTES = 1 << 20
# From the first octet on it counts for so long, in seconds.
COUNTED_S = 0.25


class Doors:
    """What is open to callers, and those who have come in."""

    def __init__(self, loop: Loop, secret: Secret) -> None:
        self._loop, self._secret, self.number = loop, secret, 0
        self._open: list[Callers] = []
        self._guests: set[_Guest] = set()

    def open(self, address: str, port: int) -> bool:
        """Listen on one of this host's addresses; tell whether the port is free there. Raises NetworkError."""
        listener = ports.bound(address, port, hold=False)
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
        for guest in [*self._guests]:
            guest.close()

    def _greet(self, sock: socket.socket, _where: str) -> None:
        """Say who is here, and count what comes. Raises OSError where nothing can be said any more."""
        sock.send(packet.pack(self._secret, Packet(HERE, self.number, 0)))
        self._guests.add(_Guest(self._loop, sock, self._guests))


class _Guest:
    """One who came in: counted from its first octet on."""

    def __init__(self, loop: Loop, sock: socket.socket, among: set[_Guest]) -> None:
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
            self._loop.after(COUNTED_S, self._tell)
        self._octets += len(data)

    def _tell(self) -> None:
        if self._sock.fileno() >= 0:
            try:
                self._sock.send(COUNT.pack(self._octets, time.monotonic_ns() - self._began))
            except OSError:
                self.close()
