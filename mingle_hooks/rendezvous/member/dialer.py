"""Dial what the discovery backends find, and hand over each leader that proves itself."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.rendezvous.protocol import wire
from mingle_hooks.rendezvous.protocol.attempt import VERSION
from mingle_hooks.rendezvous.protocol.connection import STALLED_S, Connection, dial, notice_loss
from mingle_hooks.rendezvous.protocol.join_request import MEMBER_BYTES

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from mingle_hooks.rendezvous.loop import Loop, Timer
    from mingle_hooks.rendezvous.protocol.attempt import Attempt, Secret

# Connections tried at once; with more endpoints, the oldest makes room once it has had its fair time, in seconds.
MOST_CALLS = 64
FAIR_S = 1.0
# A handshake that takes longer is begun anew: TCP sends its first packet again after 1 and after 3 s.
CALL_S = 5.0
# Leave an address that answered, but is not what is looked for, alone for this long.
REST_S = 1.0
REST_AFTER_MISMATCH_S = 5.0


class Endpoint(NamedTuple):
    """Where a leader may be, and which backend said so."""

    address: str
    port: int
    backend: str


class ProvenLeader(NamedTuple):
    """A leader that has proved that it holds the key. Whoever takes it owns the channel."""

    endpoint: Endpoint
    connection: Connection
    sealer: wire.Sealer
    leader: bytes
    ticket: int  # 0: rank 0 by right
    host: str

    @property
    def precedence(self) -> tuple[int, bytes]:
        """What the lowest of wins an election."""
        return (self.ticket, self.leader)

    @property
    def label(self) -> str:
        """The leader as messages name it."""
        return f"{self.host} ({self.endpoint.address})"


class Dialer:
    """All calls in progress. `on_proven` gets each leader.

    `on_mismatch` gets each address that refuses this member, or proves nothing, the host that it says it is, and why
    (see wire.REASONS). `on_relay` gets an endpoint where somebody hands on what is said, and where the leader says it
    is: who relays could stop doing so at the worst time. Neither is proved: they are for messages, and one more call.
    """

    def __init__(
        self,
        loop: Loop,
        attempt: Attempt,
        secret: Secret,
        on_proven: Callable[[ProvenLeader], None],
        on_mismatch: Callable[[str, str, wire.Why], None],
        on_relay: Callable[[Endpoint, Endpoint], None],
        host: str = "",
    ) -> None:
        self.loop, self.secret, self.host = loop, secret, host
        self.on_proven, self.on_mismatch, self.on_relay = on_proven, on_mismatch, on_relay
        self.tag = attempt.tag.hex()  # said in each call, of which there may be thousands
        self._calls: dict[tuple[str, int], _Call] = {}
        self._resting: dict[tuple[str, int], float] = {}

    def dial(self, endpoint: Endpoint) -> None:
        """Dial an endpoint, unless that is being done or it was just seen to be no use."""
        key, now = (endpoint.address, endpoint.port), self.loop.clock()
        if (known := self._calls.get(key)) is not None:
            known.backends.add(endpoint.backend)
        if known is not None or self._resting.get(key, 0.0) > now:
            return
        if len(self._calls) >= MOST_CALLS:
            oldest = next(iter(self._calls.values()))
            if now - oldest.since < FAIR_S:
                return
            oldest.hang_up()
        try:
            sock = dial(*key)
            notice_loss(sock, drop_unsent=True)
        except OSError as error:  # no route to it now; its backend will name it again
            self.loop.missed(error)
            return
        call = self._calls[key] = _Call(self, endpoint, sock)
        call.greet()

    def is_calling(self, backend: str) -> bool:
        """Tell whether somebody whom this backend came up with has not answered yet, and may."""
        return any(backend in call.backends for call in self._calls.values())

    def rest(self, endpoint: Endpoint, delay_s: float = REST_S) -> None:
        """Leave an address alone for a while."""
        if len(self._resting) > 16 * MOST_CALLS:
            self._resting.clear()
        self._resting[endpoint.address, endpoint.port] = self.loop.clock() + delay_s

    def forget(self, endpoint: Endpoint) -> None:
        """Drop a call that is over."""
        self._calls.pop((endpoint.address, endpoint.port), None)

    def close(self) -> None:
        """Hang up every call."""
        for call in list(self._calls.values()):
            call.hang_up()


class _Call:
    """One connection, until the other side has proved itself."""

    def __init__(self, dialer: Dialer, endpoint: Endpoint, sock: socket.socket) -> None:
        self._dialer, self._endpoint, self.backends = dialer, endpoint, {endpoint.backend}
        self.since = dialer.loop.clock()
        self._nonce = os.urandom(wire.NONCE_BYTES)
        self._at = wire.dialled(endpoint.address, endpoint.port)
        self._connection = Connection(dialer.loop, sock, self._frame, self._ended)
        self._connection.stalled_s = STALLED_S
        self._timer: Timer = dialer.loop.after(CALL_S, self.hang_up)

    def greet(self) -> None:
        """Say which world is meant, and prove the key; the refusal can come at once, so the call is known before."""
        dialer, at = self._dialer, self._at.encode()
        hello = {
            "tag": dialer.tag,
            "version": VERSION,
            "nonce": self._nonce.hex(),
            "host": dialer.host,
            "at": self._at,
            "proof": dialer.secret.mac(b"hello", self._nonce, at).hex(),
            "door": dialer.secret.door.mac(b"door", self._nonce, at).hex(),
        }
        self._connection.send(wire.frame(wire.HELLO, wire.encode(hello)))

    def hang_up(self) -> None:
        """Give this call up, and let others have their turn."""
        self._connection.close()
        self._dialer.rest(self._endpoint)
        self._ended("no answer")

    def _ended(self, _reason: str) -> None:
        self._timer.cancel()
        self._dialer.forget(self._endpoint)

    def _frame(self, kind: int, payload: bytes) -> None:
        if kind == wire.REFUSED:
            self._refused(wire.decode(payload))
        elif kind == wire.CHALLENGE:
            self._challenged(wire.decode(payload))
        else:
            raise wire.WireError("not an answer to a greeting")

    def _refused(self, body: wire.Body) -> None:
        """Believe nothing of it but for a message to a person: whoever is there can say so."""
        dialer, why = self._dialer, wire.reason(body)
        host = wire.text(body, "host", 253)
        at = wire.split(wire.text(body, "at", 64)) if why == wire.RELAY else None
        self._hang_up_for(REST_AFTER_MISMATCH_S)
        if at is not None:
            dialer.on_relay(self._endpoint, Endpoint(*at, self._endpoint.backend))
        else:
            dialer.on_mismatch(self._endpoint.address, host, why)

    def _hang_up_for(self, rest_s: float) -> None:
        self._ended("refused")
        self._connection.close()
        self._dialer.rest(self._endpoint, rest_s)

    def _challenged(self, body: wire.Body) -> None:
        dialer = self._dialer
        theirs = wire.hexadecimal(body, "nonce", wire.NONCE_BYTES)
        leader = wire.hexadecimal(body, "leader", MEMBER_BYTES)
        ticket = wire.integer(body, "ticket", 0, 2**63 - 1)
        host = wire.text(body, "host", 253)
        proof = wire.hexadecimal(body, "proof", wire.MAC_BYTES)
        terms = (leader, ticket.to_bytes(8, "big"), host.encode())
        if not dialer.secret.agrees(proof, b"challenge", self._nonce, theirs, *terms):
            self._hang_up_for(REST_AFTER_MISMATCH_S)
            dialer.on_mismatch(self._endpoint.address, host, wire.KEY)
            return
        self._ended("answered")
        sealer = wire.Sealer(dialer.secret, self._nonce, theirs, b"member", b"leader")
        dialer.on_proven(ProvenLeader(self._endpoint, self._connection, sealer, leader, ticket, host))
