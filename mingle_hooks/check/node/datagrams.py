"""The UDP side of a probe: a socket for each of its addresses, and what came there."""

from __future__ import annotations

import errno

from mingle_hooks import sockets as socket
from mingle_hooks.check import packet
from mingle_hooks.check.packet import ECHO, NOTE, PING, SIZE, SIZED, Packet
from mingle_hooks.rendezvous.poller import READ
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.rendezvous.protocol.attempt import Secret

# linux/in.h, linux/in6.h: no packet is to be cut into pieces, by nobody.
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _DO = 10, 23, 2
_MOST_BYTES = 1 << 16
_READ_AT_ONCE, _MOST_WAITING = 64, 100_000
# The kernel cuts it to net.core.rmem_max: a host that is busy is not to look like one that loses datagrams.
_KEPT_BYTES = 4 * 1024 * 1024
_MOST_SEQUENCE = 1 << 10


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
            else:
                sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _DO)
            sock.bind((address, port))
        except OSError:
            sock.close()
            return False
        self._sockets[address] = sock
        self._loop.watch(sock, READ, lambda _events: self._read(sock))
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

    def send(self, mine: str, where: tuple[str, int], its: Packet) -> None:
        """Send; one of a size is filled up to it. What the kernel refuses is lost like any other."""
        pad = packet.padding(where[0], its.value) if its.kind == SIZE else 0
        try:
            self._sockets[mine].sendto(packet.pack(self._secret, its) + bytes(pad), where)
        except OSError:  # too large for a way that is known, no neighbour, or a firewall of this host's own
            pass

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
            try:
                sock.sendto(packet.pack(self._secret, answer), where)
            except OSError:
                pass
