"""Where probes report: who has come with the check's key, and what each says."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from mingle_hooks.check.words import ANSWER, FACTS
from mingle_hooks.rendezvous.poller import READ
from mingle_hooks.rendezvous.protocol.wire import WireError
from mingle_hooks.supervise.protocol.link import Link
from mingle_hooks.supervise.protocol.messages import JOIN, LEAVE, WELCOME, Join, Leave, Welcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.rendezvous.protocol.attempt import Secret
    from mingle_hooks.rendezvous.protocol.wire import Body
    from mingle_hooks.supervise.runner.door import Sockets

_ACCEPT_AT_ONCE = 256
# Callers that have not said who they are; hosts are a few thousand at most.
_MOST_STRANGERS = 8192
_SILENCE_MS = 60_000  # a probe gives no signs of life, and expects none


class Desk:
    """`facts` and `answers` are what hosts have said, by number; `gone` is why one that was here is not any more."""

    def __init__(self, loop: Loop, sockets: Sockets, secret: Secret, hosts: Sequence[str]) -> None:
        self._loop, self._sockets, self._secret = loop, sockets, secret
        self._numbers = {host: number for number, host in enumerate(hosts)}
        self._strangers: dict[Link, None] = {}
        self._here: dict[int, Link] = {}
        self.facts: dict[int, Body] = {}
        self.answers: dict[int, list[Body]] = {}
        self.gone: dict[int, str] = {}
        for listener in sockets.listeners:
            loop.watch(listener, READ, lambda _events, listener=listener: self._accept(listener))  # type: ignore[misc]

    def send(self, number: int, kind: int, body: Body) -> None:
        """Tell a probe something, if it is here."""
        if number in self._here:
            self._here[number].send(kind, body)

    def dismiss(self) -> None:
        """Let all go."""
        for number in self._here:
            self.send(number, LEAVE, Leave(0).body())

    def close(self) -> None:
        """Close all."""
        for link in (*self._strangers, *self._here.values()):
            link.close()

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPT_AT_ONCE):
            try:
                sock, _ = listener.accept()
            except OSError as error:  # none is left, or the caller's own trouble, or no descriptor is free
                if not isinstance(error, BlockingIOError):
                    self._loop.missed(error)
                return
            sock.settimeout(0)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._greet(sock)
            if len(self._strangers) > _MOST_STRANGERS:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                oldest.close()

    def _greet(self, sock: socket.socket) -> None:
        link = Link(self._loop, sock, self._secret, is_runner=True, on_end=lambda why: self._forget(link, why))
        link.on_message = lambda kind, body: self._introduced(link, kind, body)
        self._strangers[link] = None

    def _forget(self, link: Link, why: str) -> None:
        self._strangers.pop(link, None)
        for number, its in [*self._here.items()]:
            if its is link:
                del self._here[number]
                self.gone[number] = why

    def _introduced(self, link: Link, kind: int, body: Body) -> None:
        """Take in who holds the key. Raises WireError for one that is not meant."""
        self._strangers.pop(link, None)
        number = self._numbers.get(Join.parse(body).host)
        if kind != JOIN or number is None or number in self._here:
            raise WireError("no host of this check")
        self._here[number] = link
        link.on_message = lambda kind, body: self._said(number, kind, body)
        link.send(WELCOME, Welcome(number, self._sockets.port, _SILENCE_MS).body())

    def _said(self, number: int, kind: int, body: Body) -> None:
        if kind == FACTS:
            self.facts[number] = body
        elif kind == ANSWER:
            self.answers.setdefault(number, []).append(body)
        else:
            raise WireError("not a probe's message")
