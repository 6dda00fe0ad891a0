"""The TCP side of a probe that goes to others: whether they are there, and how much gets through."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from mingle_hooks.check import packet
from mingle_hooks.check.node.doors import COUNT
from mingle_hooks.check.packet import HERE
from mingle_hooks.fabric.ports import GONE_AT_ONCE
from mingle_hooks.rendezvous.poller import READ, WRITE
from mingle_hooks.rendezvous.protocol.connection import dial

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.rendezvous.protocol.attempt import Secret

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
        self._said = b""
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
        """Whether the end has been told."""
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
        self._said += data
        if not data:
            self.end("it closed the connection")
        elif len(self._said) >= packet.BYTES:
            here = packet.unpack(self._secret, self._said[: packet.BYTES])
            if here is None or here.kind != HERE or here.sender != self._number:
                self.end(OTHER)
            else:
                self._met(self._sock, self._said[packet.BYTES :])

    def _met(self, _sock: socket.socket, _more: bytes) -> None:
        self.end("")


class Transfer(Call):
    """A call that sends for as long as the other side counts; `count` is the octets and nanoseconds that it told."""

    count: tuple[int, int] | None = None
    _is_sending = False

    def _met(self, sock: socket.socket, more: bytes) -> None:
        if not self._is_sending:
            self._is_sending = True
            self._loop.rewatch(sock, READ | WRITE, lambda events: self._ready(sock, events))
        elif len(more) >= COUNT.size:
            self.count = COUNT.unpack_from(more)
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
