"""Dial what the ways of finding a leader come up with, and hand over each leader that proves itself."""

from __future__ import annotations

import os

from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.attempt import VERSION
from mingle_hooks.rendezvous.channel import Channel, dial
from mingle_hooks.rendezvous.checkin import MEMBER_BYTES
from mingle_hooks.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks import sockets as socket
    from mingle_hooks.rendezvous.attempt import Attempt, Secret
    from mingle_hooks.rendezvous.loop import Loop, Timer

# Connections tried at once; with more leads, the oldest makes room once it has had its fair time, in seconds.
MOST_CALLS = 64
FAIR_S = 1.0
# A handshake that takes longer is begun anew: TCP sends its first packet again after 1 and after 3 s.
CALL_S = 5.0
# Leave an address that answered, but is not what is looked for, alone for this long.
REST_S = 1.0
REST_AFTER_MISMATCH_S = 5.0


class Lead(NamedTuple):
    """Where a leader may be, and which way said so."""

    address: str
    port: int
    way: str


class Found(NamedTuple):
    """A leader that has proved that it holds the key. Whoever takes it owns the channel."""

    lead: Lead
    channel: Channel
    session: wire.Session
    leader: bytes
    ticket: int  # 0: rank 0 by right
    host: str

    @property
    def standing(self) -> tuple[int, bytes]:
        """What the lowest of wins an election."""
        return (self.ticket, self.leader)

    @property
    def label(self) -> str:
        """The leader as messages name it."""
        return f"{self.host} ({self.lead.address})"


class Search:
    """All calls under way. `on_found` gets each leader.

    `on_mismatch` gets each address that refuses this member, or proves nothing, the host that it says it is, and why
    (see wire.REASONS). `on_relay` gets a lead where somebody hands on what is said, and where the leader says it is:
    who relays could stop doing so at the worst time. Neither is proved: they are for messages, and one more lead.
    """

    def __init__(
        self,
        loop: Loop,
        attempt: Attempt,
        secret: Secret,
        on_found: Callable[[Found], None],
        on_mismatch: Callable[[str, str, str], None],
        on_relay: Callable[[Lead, Lead], None],
        host: str = "",
    ) -> None:
        self.loop, self.attempt, self.secret, self.host = loop, attempt, secret, host
        self.on_found, self.on_mismatch, self.on_relay = on_found, on_mismatch, on_relay
        self._calls: dict[tuple[str, int], _Call] = {}
        self._resting: dict[tuple[str, int], float] = {}

    def found(self, lead: Lead) -> None:
        """Dial a lead, unless that is being done or it was just seen to be no use."""
        key, now = (lead.address, lead.port), self.loop.clock()
        if (known := self._calls.get(key)) is not None:
            known.ways.add(lead.way)
        if known is not None or self._resting.get(key, 0.0) > now:
            return
        if len(self._calls) >= MOST_CALLS:
            oldest = next(iter(self._calls.values()))
            if now - oldest.since < FAIR_S:
                return
            oldest.hang_up()
        try:
            sock = dial(*key)
        except OSError as error:  # no route to it now; its way will name it again
            self.loop.missed(error)
            return
        call = self._calls[key] = _Call(self, lead, sock)
        call.greet()

    def is_calling(self, way: str) -> bool:
        """Tell whether somebody whom this way came up with has not answered yet, and may."""
        return any(way in call.ways for call in self._calls.values())

    def rest(self, lead: Lead, delay_s: float = REST_S) -> None:
        """Leave an address alone for a while."""
        if len(self._resting) > 16 * MOST_CALLS:
            self._resting.clear()
        self._resting[lead.address, lead.port] = self.loop.clock() + delay_s

    def forget(self, lead: Lead) -> None:
        """Drop a call that is over."""
        self._calls.pop((lead.address, lead.port), None)

    def close(self) -> None:
        """Hang up every call."""
        for call in list(self._calls.values()):
            call.hang_up()


class _Call:
    """One connection, until the other side has proved itself."""

    def __init__(self, search: Search, lead: Lead, sock: socket.socket) -> None:
        self._search, self._lead, self.ways = search, lead, {lead.way}
        self.since = search.loop.clock()
        self._nonce = os.urandom(wire.NONCE_BYTES)
        self._at = wire.dialled(lead.address, lead.port)
        self._channel = Channel(search.loop, sock, self._frame, self._ended)
        self._timer: Timer = search.loop.after(CALL_S, self.hang_up)

    def greet(self) -> None:
        """Say which world is meant, and prove the key; the refusal can come at once, so the call is known before."""
        search, at = self._search, self._at.encode()
        hello = {
            "tag": search.attempt.tag.hex(),
            "version": VERSION,
            "nonce": self._nonce.hex(),
            "host": search.host,
            "at": self._at,
            "proof": search.secret.mac(b"hello", self._nonce, at).hex(),
            "door": search.secret.door.mac(b"door", self._nonce, at).hex(),
        }
        self._channel.send(wire.frame(wire.HELLO, wire.encode(hello)))

    def hang_up(self) -> None:
        """Give this call up, and let others have their turn."""
        self._channel.close()
        self._search.rest(self._lead)
        self._ended("no answer")

    def _ended(self, _reason: str) -> None:
        self._timer.cancel()
        self._search.forget(self._lead)

    def _frame(self, kind: int, payload: bytes) -> None:
        if kind == wire.REFUSED:
            self._refused(wire.decode(payload))
        elif kind == wire.CHALLENGE:
            self._challenged(wire.decode(payload))
        else:
            raise wire.WireError("not an answer to a greeting")

    def _refused(self, body: wire.Body) -> None:
        """Believe nothing of it but for a message to a person: whoever is there can say so."""
        search, why = self._search, wire.text(body, "why", 16)
        if why not in wire.REASONS:
            raise wire.WireError("not a reason")
        host = wire.text(body, "host", 253)
        at = wire.split(wire.text(body, "at", 64)) if why == wire.RELAY else None
        self._hang_up_for(REST_AFTER_MISMATCH_S)
        if at is not None:
            search.on_relay(self._lead, Lead(*at, self._lead.way))
        else:
            search.on_mismatch(self._lead.address, host, why)

    def _hang_up_for(self, rest_s: float) -> None:
        self._ended("refused")
        self._channel.close()
        self._search.rest(self._lead, rest_s)

    def _challenged(self, body: wire.Body) -> None:
        search = self._search
        theirs = wire.hexadecimal(body, "nonce", wire.NONCE_BYTES)
        leader = wire.hexadecimal(body, "leader", MEMBER_BYTES)
        ticket = wire.integer(body, "ticket", 0, 2**63 - 1)
        host = wire.text(body, "host", 253)
        proof = wire.hexadecimal(body, "proof", wire.MAC_BYTES)
        terms = (leader, ticket.to_bytes(8, "big"), host.encode())
        if not search.secret.agrees(proof, b"challenge", self._nonce, theirs, *terms):
            self._hang_up_for(REST_AFTER_MISMATCH_S)
            search.on_mismatch(self._lead.address, host, wire.KEY)
            return
        self._ended("answered")
        session = wire.Session(search.secret, self._nonce, theirs, b"member", b"leader")
        search.on_found(Found(self._lead, self._channel, session, leader, ticket, host))
