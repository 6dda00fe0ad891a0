"""One order to probe others: turn by turn, until all is known or its time is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.check.node.calls import LATE, Call
from mingle_hooks.check.packet import ECHO, NOTE, PING, SIZE, Packet
from mingle_hooks.check.words import Met

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.check.node.datagrams import Datagrams
    from mingle_hooks.check.words import Peer
    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.rendezvous.protocol.attempt import Secret

# Packets' sizes that networks have; what is larger than both interfaces take is not tried.
_SIZES = (65520, 9000, 8900, 4092, 2044, 1500, 1460, 1450, 1400, 1280, 576)
# The largest is sent first, alone; all, as long as it has not come back, after so many seconds: one may be lost.
_AGAIN_S = (0.1, 0.3, 0.7)
_LARGEST = 65535
# What the kernel had no room for is sent again so much later, in seconds: each try makes it look for room.
_ROOM_S = 0.5


class Way:
    """What is known of one peer; `had_no_room` tells that this host's kernel once took nothing for it."""

    __slots__ = ("call", "closed", "echoes", "had_no_room", "mtu", "peer", "rtt_ns", "sent")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.sent = self.echoes = 0
        self.had_no_room = False
        self.call: Call | None = None
        self.closed: str | None = None
        self.rtt_ns: int | None = None
        self.mtu: int | None = None

    @property
    def want(self) -> int:
        """The largest packet that both interfaces take."""
        return min(self.peer.mtu, _LARGEST)


class Meeting:
    """Probes peers; `is_done` once everything has come back, `met()` is what is known."""

    def __init__(
        self,
        loop: Loop,
        secret: Secret,
        datagrams: Datagrams,
        clock_ns: Callable[[], int],
        peers: list[Peer],
        count: int,
        turn_s: float,
    ) -> None:
        self._loop, self._secret, self._datagrams, self._clock_ns = loop, secret, datagrams, clock_ns
        self._count, self._turn_s, self._is_over = count, turn_s, False
        self._ways = {(peer.number, peer.network): Way(peer) for peer in peers}
        for way in self._ways.values():
            loop.after(way.peer.turn * turn_s, lambda way=way: self._word(way))  # type: ignore[misc]

    @property
    def is_done(self) -> bool:
        """Whether nothing more can come that is worth waiting for."""
        return all(
            way.closed is not None
            and way.sent == self._count
            and (not way.peer.begins or (way.echoes == self._count and (way.mtu or 0) >= way.want))
            for way in self._ways.values()
        )

    def back(self, its: Packet) -> None:
        """Take note of what came back."""
        way = self._ways.get((its.sender, its.network))
        if way is None:
            return
        if its.kind == ECHO:
            took = self._clock_ns() - its.time
            way.echoes += 1
            way.rtt_ns = took if way.rtt_ns is None else min(way.rtt_ns, took)
        else:
            way.mtu = max(way.mtu or 0, its.value)

    def stop(self) -> None:
        """Send nothing more; what is under way may still come."""
        self._is_over = True

    def met(self) -> list[dict[str, object]]:
        """Return the rows; what has not answered by now does not."""
        self.stop()
        for way in self._ways.values():
            if way.call is not None and not way.call.is_over:
                way.call.read()
                way.call.end(LATE)
        return [
            dict(
                Met(
                    way.peer.number,
                    way.peer.network,
                    way.sent,
                    None if way.rtt_ns is None else way.rtt_ns // 1000,
                    way.mtu,
                    LATE if way.closed is None else way.closed,
                    way.had_no_room,
                )._asdict()
            )
            for way in self._ways.values()
        ]

    def _begin(self, way: Way) -> None:
        """Go on with a way that this host's kernel has room for."""
        peer = way.peer

        def ended(reason: str) -> None:
            way.closed = reason

        way.call = Call(self._loop, self._secret, peer.number, (peer.theirs, peer.port), ended)
        if peer.begins:
            self._loop.after(self._turn_s, lambda: self._size(way, way.want))
            for after_s in _AGAIN_S:
                self._loop.after(self._turn_s + after_s, lambda: self._sizes(way))

    def _word(self, way: Way) -> None:
        """Send one, and the next later: where this host is slow, what has come is read in between."""
        if self._is_over or way.sent == self._count:
            return
        if not self._send(way, PING if way.peer.begins else NOTE, way.sent):
            way.had_no_room = True
            self._loop.after(_ROOM_S, lambda: self._word(way))
            return
        if not way.sent:
            self._begin(way)
        way.sent += 1
        self._loop.after(self._turn_s / self._count, lambda: self._word(way))

    def _sizes(self, way: Way) -> None:
        if (way.mtu or 0) < way.want:
            for size in dict.fromkeys((way.want, *(size for size in _SIZES if size < way.want))):
                self._size(way, size)

    def _size(self, way: Way, size: int) -> None:
        self._send(way, SIZE, size)

    def _send(self, way: Way, kind: int, value: int) -> bool:
        peer = way.peer
        its = Packet(kind, self._datagrams.number, peer.number, peer.network, value, self._clock_ns())
        return self._datagrams.send(peer.mine, (peer.theirs, peer.port), its)
