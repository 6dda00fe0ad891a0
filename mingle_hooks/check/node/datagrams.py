"""The UDP side of a probe: a socket for each of its addresses, and what came there."""

from __future__ import annotations

import errno
import socket
import struct
from typing import TYPE_CHECKING

from mingle_hooks.check import packet
from mingle_hooks.check.packet import ECHO, NOTE, PING, SIZE, SIZED, Packet
from mingle_hooks.rendezvous.poller import READ, WRITE

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.rendezvous.protocol.attempt import Secret

# linux/in.h, linux/in6.h: no packet is to be cut into pieces, by nobody.
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _DO = 10, 23, 2
# The same files: the kernel tells what became of a datagram. Without it one that it has no room for is lost silently.
_IP_RECVERR, _IPV6_RECVERR = 11, 25
# The kernel took nothing: its table of neighbours is full (IPv6 says EINVAL), or a queue.
_NO_ROOM = (errno.ENOBUFS, errno.EINVAL, errno.EAGAIN)
_TRIES = 3  # an error may be about an earlier datagram, and is told once
_MOST_BYTES = 1 << 16
_READ_AT_ONCE, _MOST_WAITING = 64, 100_000
# The kernel cuts it to net.core.rmem_max: a host that is busy is not to look like one that loses datagrams.
_KEPT_BYTES = 4 * 1024 * 1024
_MOST_SEQUENCE = 1 << 10
# asm-generic/socket.h, linux/sock_diag.h: a socket's memory; the last number is what it dropped for want of it.
_SO_MEMINFO, _MEMINFO = 55, struct.Struct("9I")


class Datagrams:
    """Sends and answers; `on_echo(packet)` and `on_sized(packet)` get what came back to this host.

    `heard` counts the distinct datagrams of each host on each network.
    """

    def __init__(
        self, loop: Loop, secret: Secret, clock_ns: Callable[[], int], on_back: Callable[[Packet], None]
    ) -> None:
        self._loop, self._secret, self._clock_ns, self._on_back = loop, secret, clock_ns, on_back
        self.number = 0
        self._sockets: dict[str, socket.socket] = {}
        self._heard: dict[tuple[int, int], int] = {}  # (sender, network) -> a bit for each

    def open(self, address: str, port: int) -> bool:
        """Open one of this host's addresses; tell whether the port is free there."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_DGRAM)
        try:
            sock.settimeout(0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KEPT_BYTES)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _DO)
                sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVERR, 1)
            else:
                sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _DO)
                sock.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
            sock.bind((address, port))
        except OSError:
            sock.close()
            return False
        self._sockets[address] = sock
        self._loop.watch(sock, READ, lambda events: self._ready(sock, events))
        return True

    def close(self) -> None:
        """Close all."""
        for sock in self._sockets.values():
            self._loop.unwatch(sock)
            sock.close()
        self._sockets.clear()

    def heard(self) -> list[list[int]]:
        """Return host, network and how many of its datagrams came, those that wait to be read among them."""
        for sock in self._sockets.values():
            self._read(sock, _MOST_WAITING)
        return [[*its, bits.bit_count()] for its, bits in self._heard.items()]

    def dropped(self) -> int:
        """Return how many datagrams came and were not kept, as nobody read them in time."""
        return sum(_dropped(sock) for sock in self._sockets.values())

    def send(self, mine: str, where: tuple[str, int], its: Packet) -> bool:
        """Send; one of a size is filled up to it. Return False where the kernel has no room for it."""
        pad = packet.padding(where[0], its.value) if its.kind == SIZE else 0
        return _sent(self._sockets[mine], packet.pack(self._secret, its) + bytes(pad), where)

    def _ready(self, sock: socket.socket, events: int) -> None:
        if events & WRITE:  # nobody waits for that: it is an error of an earlier one
            _forget_errors(sock)
        self._read(sock)

    def _read(self, sock: socket.socket, most: int = _READ_AT_ONCE) -> None:
        for _ in range(most):
            try:
                data, where = sock.recvfrom(_MOST_BYTES)
            except BlockingIOError:
                return
            except OSError as error:  # what became of an earlier one
                if error.errno == errno.EBADF:
                    return
                continue
            its = packet.unpack(self._secret, data)
            if its is not None and its.to == self.number:
                self._take(sock, its, len(data), where)

    def _take(self, sock: socket.socket, its: Packet, size: int, where: tuple[str, int]) -> None:
        if its.kind in (ECHO, SIZED):
            self._on_back(its)
        if its.kind in (PING, NOTE) and its.value < _MOST_SEQUENCE:
            key = its.sender, its.network
            self._heard[key] = self._heard.get(key, 0) | 1 << its.value
        if its.kind == PING or (its.kind == SIZE and size == packet.BYTES + packet.padding(where[0], its.value)):
            kind = ECHO if its.kind == PING else SIZED
            answer = its._replace(kind=kind, sender=self.number, to=its.sender)
            _sent(sock, packet.pack(self._secret, answer), where)


def _sent(sock: socket.socket, data: bytes, where: tuple[str, int]) -> bool:
    """Send a datagram; one that is refused for another reason than want of room is lost like any other."""
    for _ in range(_TRIES):
        try:
            sock.sendto(data, where)
        except OSError as error:  # too large for a way that is known, no neighbour, or a firewall of this host's own
            if error.errno in _NO_ROOM:
                return False
        else:
            return True
    return True


def _dropped(sock: socket.socket) -> int:
    try:
        return int(_MEMINFO.unpack(sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))[-1])
    except (OSError, struct.error):  # a kernel before 4.12
        return 0


def _forget_errors(sock: socket.socket) -> None:
    for _ in range(_READ_AT_ONCE):
        try:
            sock.recvmsg(1, 0, socket.MSG_ERRQUEUE)
        except OSError:
            return
