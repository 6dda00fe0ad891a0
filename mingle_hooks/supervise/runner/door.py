"""Where supervisors reach the runner: a TCP port, and a UDP port of the same number for signs of life."""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING

from mingle_hooks.errors import NetworkError
from mingle_hooks.fabric import ports
from mingle_hooks.rendezvous.poller import READ
from mingle_hooks.supervise.protocol import life
from mingle_hooks.supervise.protocol.doors import opened
from mingle_hooks.supervise.protocol.link import RUNNER, SUPERVISOR

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.rendezvous.protocol.attempt import Secret

    Address = tuple[object, ...]

_TRIES = 64
# More than a few supervisors get their signs in so many parts of a second.
_FEW, _PARTS = 64, 10
# struct in_pktinfo is interface, source, destination; struct in6_pktinfo is address, interface.
_V4, _V6 = struct.Struct("@I4s4s"), struct.Struct("@16sI")
_IP_PKTINFO = getattr(socket, "IP_PKTINFO", 8)


class Sockets:
    """Listeners and datagram sockets of one port, in all families that this host has, or on loopback alone.

    The port is one of those `chosen`, else of the range, which a site's firewall may let through; on loopback it is the
    kernel's choice.
    """

    def __init__(
        self, *, is_local: bool, port_range: range = ports.DEFAULT_RANGE, chosen: tuple[int, ...] = ()
    ) -> None:
        if not chosen:
            chosen = (0,) * _TRIES if is_local else ports.candidates(os.urandom(16), _TRIES, port_range)
        self.port, sockets = opened(chosen, (socket.SOCK_STREAM, socket.SOCK_DGRAM), is_local=is_local)
        if not self.port:
            seen = f"{len(chosen)} of {port_range.start}-{port_range.stop - 1} are taken"
            raise NetworkError("a free port for the supervisors", seen, "a wider --port-range")
        self.datagrams = [sock for sock in sockets if sock.type & socket.SOCK_DGRAM]
        self.listeners = [sock for sock in sockets if sock not in self.datagrams]
        for sock in self.datagrams:  # on which address a sign came: the answer has to come from there
            is_six = sock.family == socket.AF_INET6
            six, four = (socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO), (socket.IPPROTO_IP, _IP_PKTINFO)
            sock.setsockopt(*(six if is_six else four), 1)

    def close(self) -> None:
        """Close all."""
        for sock in (*self.listeners, *self.datagrams):
            sock.close()
        self.listeners, self.datagrams = [], []


class Pulses:
    """Gives signs to all that have given one, and calls `on_sign(number)` for each that is new.

    The runner's own signs do not wait for others': where packets are lost, only one of two would then come through.
    """

    def __init__(
        self,
        loop: Loop,
        datagrams: list[socket.socket],
        secret: Secret,
        on_sign: Callable[[int], None],
        interval_s: float = life.INTERVAL_S,
    ) -> None:
        self._loop, self._interval_s, self._part = loop, interval_s, 0
        self._secret, self._tag, self._on_sign = secret, life.tag(secret), on_sign
        self._latest: dict[int, int] = {}  # number -> sequence of its last sign
        self._ways: dict[int, tuple[socket.socket, Address, list[tuple[int, int, bytes]]]] = {}
        self._sent = 0
        for sock in datagrams:
            loop.watch(sock, READ, lambda _events, sock=sock: self._take(sock))  # type: ignore[misc]
        self._beat()

    def forget(self, number: int) -> None:
        """Forget a supervisor; the next of that number counts anew."""
        self._latest.pop(number, None)
        self._ways.pop(number, None)

    def ask(self, number: int) -> None:
        """Send a supervisor that is quiet a sign, which it may answer."""
        if number in self._ways:
            self._give(number)

    def _take(self, sock: socket.socket) -> None:
        while True:
            try:
                data, extra, _, where = sock.recvmsg(life.BYTES + 1, 128)
            except BlockingIOError:
                return
            except OSError:  # what became of an earlier answer
                continue
            sign = life.unpack(self._secret, self._tag, SUPERVISOR, data)
            if sign is None or sign.sequence <= self._latest.get(sign.number, 0):
                continue
            is_first = sign.number not in self._ways
            self._latest[sign.number] = sign.sequence
            self._ways[sign.number] = (sock, where, _from(extra))
            if is_first:
                self._give(sign.number)
            self._on_sign(sign.number)

    def _beat(self) -> None:
        """Give a sign to each, to many of them not all at once."""
        parts = _PARTS if len(self._ways) > _FEW else 1
        self._part += 1
        for number in [number for number in self._ways if number % parts == self._part % parts]:
            self._give(number)
        self._loop.after(self._interval_s / parts, self._beat)

    def _give(self, number: int) -> None:
        sock, where, extra = self._ways[number]
        self._sent += 1
        try:
            sock.sendmsg([life.pack(self._secret, self._tag, RUNNER, life.Sign(number, self._sent))], extra, 0, where)
        except OSError:  # the next may get through
            pass


def _from(extra: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """Return what makes an answer come from the address that was asked."""
    for level, kind, data in extra:
        if level == socket.IPPROTO_IP and kind == _IP_PKTINFO and len(data) == _V4.size:
            _, local, _ = _V4.unpack(data)
            return [(level, kind, _V4.pack(0, local, bytes(4)))]
        if level == socket.IPPROTO_IPV6 and kind == socket.IPV6_PKTINFO and len(data) == _V6.size:
            return [(level, kind, data)]
    return []
