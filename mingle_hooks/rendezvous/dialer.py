"""Dial what the discovery backends find, and hand over each leader that proves itself."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import mingle_hooks
from mingle_hooks.errors import LIMITS, ConflictError, MingleError, MissingError, NetworkError, SecretError
from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.connection import BACKOFF_S, CALL_S, STALLED_S, Connection, Endpoint, dial, notice_loss
from mingle_hooks.rendezvous.discovery import Context, Discovery
from mingle_hooks.rendezvous.messages import CHECK_HOST, LONGEST_PART, MEMBER_BYTES
from mingle_hooks.rendezvous.multicast import OneWay
from mingle_hooks.rendezvous.roster import RejectedPeers, peer_label
from mingle_hooks.rendezvous.wire import Attempt, Secret

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.connection import Loop
    from mingle_hooks.rendezvous.member import Request

# Concurrent connections; with more endpoints, the oldest makes room once it has had FAIR_S seconds.
MOST_CALLS = 64
FAIR_S = 1.0
MISMATCH_BACKOFF_S = 5.0


class ProvenLeader(NamedTuple):
    """A leader that has proved that it holds the key. The receiver owns the connection."""

    endpoint: Endpoint
    connection: Connection
    sealer: wire.Sealer
    leader: bytes
    ticket: int  # 0: rank 0 by right
    host: str

    @property
    def precedence(self) -> tuple[int, bytes]:
        """The key of an election: the lowest wins."""
        return (self.ticket, self.leader)

    @property
    def label(self) -> str:
        """The leader's name in messages."""
        return f"{self.host} ({self.endpoint.address})"


class Dialer:
    """All calls in progress. `on_proven` is called with each leader.

    `on_mismatch` is called with each address that refuses this member or proves nothing, the host name that it claims,
    and why (see wire.REASONS). `on_relay` is called with an endpoint that relays a leader, and the leader's own, as a
    relay could stop at the worst time. Neither is proved: they serve a message, and one more call.
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
        self.tag = attempt.tag.hex()  # sent in each call, of which there may be thousands
        self._calls: dict[tuple[str, int], _Call] = {}
        self._retry_at: dict[tuple[str, int], float] = {}

    def dial(self, endpoint: Endpoint) -> None:
        """Dial an endpoint, unless a call to it is in progress or has just failed."""
        key, now = (endpoint.address, endpoint.port), self.loop.clock()
        if (known := self._calls.get(key)) is not None:
            known.backends.add(endpoint.backend)
        if known is not None or self._retry_at.get(key, 0.0) > now:
            return
        if len(self._calls) >= MOST_CALLS:
            oldest = next(iter(self._calls.values()))
            if now - oldest.since < FAIR_S:
                return
            oldest.hang_up()
        try:
            sock = dial(*key)
            notice_loss(sock, drop_unsent=True)
        except OSError as error:  # no route now; its backend will name it again
            self.loop.missed(error)
            return
        call = self._calls[key] = _Call(self, endpoint, sock)
        call.greet()

    def is_calling(self, backend: str) -> bool:
        """Return whether an endpoint of this backend has not answered yet."""
        return any(backend in call.backends for call in self._calls.values())

    def back_off(self, endpoint: Endpoint, delay_s: float = BACKOFF_S) -> None:
        """Do not dial an endpoint for delay_s seconds."""
        if len(self._retry_at) > 16 * MOST_CALLS:
            self._retry_at.clear()
        self._retry_at[endpoint.address, endpoint.port] = self.loop.clock() + delay_s

    def forget(self, endpoint: Endpoint) -> None:
        """Remove a call that has ended."""
        self._calls.pop((endpoint.address, endpoint.port), None)

    def close(self) -> None:
        """End every call."""
        for call in list(self._calls.values()):
            call.hang_up()


class _Call:
    """One connection, until the other side has proved that it holds the key."""

    def __init__(self, dialer: Dialer, endpoint: Endpoint, sock: socket.socket) -> None:
        self._dialer, self._endpoint, self.backends = dialer, endpoint, {endpoint.backend}
        self.since = dialer.loop.clock()
        self._nonce = os.urandom(wire.NONCE_BYTES)
        self._at = wire.dialled(endpoint.address, endpoint.port)
        self._connection = Connection(dialer.loop, sock, self._frame, self._ended)
        self._connection.stalled_s = STALLED_S
        self._timer = dialer.loop.after(CALL_S, self.hang_up)

    def greet(self) -> None:
        """Send HELLO, with a proof of the key; the call is registered before, as the refusal can come at once."""
        dialer = self._dialer
        self._connection.send(wire.hello(dialer.secret, dialer.tag, self._nonce, dialer.host, self._at))

    def hang_up(self) -> None:
        """End this call, and let others have their turn."""
        self._connection.close()
        self._dialer.back_off(self._endpoint)
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
        """Use a refusal for messages only: anybody can send one."""
        dialer = self._dialer
        why: wire.Why = wire.one_of(wire.REASONS)(body, "why")
        host = wire.text(body, "host", 253)
        at = wire.split(wire.text(body, "at", 64)) if why == "relay" else None
        self._refuse_for(MISMATCH_BACKOFF_S)
        if at is not None:
            dialer.on_relay(self._endpoint, Endpoint(*at, self._endpoint.backend))
        else:
            dialer.on_mismatch(self._endpoint.address, host, why)

    def _refuse_for(self, backoff_s: float) -> None:
        self._ended("refused")
        self._connection.close()
        self._dialer.back_off(self._endpoint, backoff_s)

    def _challenged(self, body: wire.Body) -> None:
        dialer = self._dialer
        leader_nonce = wire.hexadecimal(body, "nonce", wire.NONCE_BYTES)
        leader = wire.hexadecimal(body, "leader", MEMBER_BYTES)
        ticket = wire.integer(body, "ticket", 0, 2**63 - 1)
        host = wire.text(body, "host", 253)
        proof = wire.hexadecimal(body, "proof", wire.MAC_BYTES)
        terms = (leader, ticket.to_bytes(8, "big"), host.encode())
        if not dialer.secret.agrees(proof, b"challenge", self._nonce, leader_nonce, *terms):
            self._refuse_for(MISMATCH_BACKOFF_S)
            dialer.on_mismatch(self._endpoint.address, host, "key")
            return
        self._ended("answered")
        sealer = wire.Sealer(dialer.secret, self._nonce, leader_nonce, b"member", b"leader")
        dialer.on_proven(ProvenLeader(self._endpoint, self._connection, sealer, leader, ticket, host))


# Relays that are reported; more would be an attack that fills the log.
MOST_REPORTS = 8

# One member's search for a leader: its discovery backends, its calls, and the peers that it rejects.


class Search(Discovery):
    """A member's discovery, which passes each leader that proves itself to `on_proven`; the owner calls close().

    `joined()` is the precedence of the leader that this member has joined, if any. Each relay is reported once, and the
    first peer with another key; the final message names all of them.
    """

    def __init__(
        self,
        loop: Loop,
        request: Request,
        secret: Secret,
        note: Callable[[str], None],
        on_proven: Callable[[ProvenLeader], None],
        joined: Callable[[], tuple[int, bytes] | None],
        member: bytes,
    ) -> None:
        self._loop, self._request = loop, request
        self._relays: set[str] = set()  # that have been reported
        self._has_reported_key = False
        self._refusals = {why: RejectedPeers() for why in wire.REASONS}  # leaders that refused this member
        self._dialer = Dialer(
            loop, request.spec.attempt, secret, on_proven, self._mismatch, self._relayed, request.host
        )
        self.dial = self._dialer.dial
        self.back_off = self._dialer.back_off
        self._one_way = OneWay()
        context = Context(loop, request.spec, secret, self.dial, self._reject, note, joined, member, self._one_way)
        super().__init__(context)

    def close(self) -> None:
        """Close every backend and call."""
        super().close()
        self._dialer.close()

    def is_alone(self) -> bool:
        """Return whether the shared directory announces no other live leader: a last check before a world forms.

        Of two leaders that are announced at the same time, at least one checks when the other's file is there.
        """
        self.look("directory")
        return not self._dialer.is_calling("directory")

    def drop(self, proven: ProvenLeader, backoff_s: float = BACKOFF_S) -> None:
        """Close the connection to a proved leader, and do not dial it for backoff_s seconds."""
        proven.connection.close()
        self._dialer.back_off(proven.endpoint, backoff_s)

    def send(self, proven: ProvenLeader, kind: int, body: wire.Body) -> None:
        """Send a proved leader one message, and close the connection."""
        proven.connection.send(proven.sealer.seal(kind, wire.encode(body)))
        self.drop(proven)

    def report_rival(self, proven: ProvenLeader, host: str, member: bytes) -> None:
        """Tell a proved leader of another one by right, and close the connection."""
        self.send(proven, wire.RIVAL, {"host": host[:LONGEST_PART], "member": member.hex()})

    def with_local_faults(self, error: MingleError) -> MingleError:
        """Add this host's own faults to an error about a missing or unreachable peer."""
        if not isinstance(error, (MissingError, NetworkError)):
            return error
        short = self._loop.shortage
        lacks = [*self.faults(), *([short.seen] if short else [])]
        lacks = [lack for lack in lacks if lack not in error.seen]
        seen = "; ".join([*self.one_way(), *([f"here {'; '.join(lacks)}"] if lacks else []), error.seen])
        return type(error)(error.expected, seen, LIMITS[short.kind][1] if short else error.remedy)

    def one_way(self) -> list[str]:
        """Return whose multicast arrives here while ours does not seem to arrive there."""
        return self._one_way.report(self.leader.roster.entries() if self.leader is not None else ())

    def no_leader(self, after_s: int) -> MingleError:
        """Return the error of a member that has not found rank 0 within after_s seconds."""
        spec = self._request.spec
        expected = f"rank 0{spec.expected_leader} within {after_s} s"
        seen = f"no answer (tried {self.tried()})"
        # A variable left over from another job is likelier than a firewall.
        remedy = f"unset {spec.exported} if another job left it, or {CHECK_HOST}" if spec.exported else CHECK_HOST
        return self.refusal() or self.with_local_faults(MissingError(expected, seen, remedy))

    def reject(self, labels: Iterable[str]) -> None:
        """Report the first address that uses another key: further ones are likely the same host's."""
        for label in labels:
            if not self._has_reported_key:
                self._has_reported_key = True
                self._context.note(f"refused {label}, which uses this id with another key")

    def refusal(self) -> MingleError | None:
        """Return the likely reason why no leader was found, if leaders have refused this member."""
        seen = {why: ", ".join(rejected.list()) for why, rejected in self._refusals.items()}
        if others := seen["version"]:
            here, remedy = f"version {mingle_hooks.__version__} here", "the same version of mingle on every member"
            return ConflictError(f"the same version of mingle as {others} has", here, remedy)
        if others := seen["run"]:
            remedy = "pbs_tmrsh or pbsdsh to start every member, or the job's PBS_JOBCOOKIE in every shell"
            expected = f"the same run of the job as {others}, by PBS_JOBCOOKIE"
            return SecretError(expected, "another one, or none, here", remedy)
        if not (others := seen["key"]):
            return None
        here = f"another key here ({self._request.key_from})" if self._request.key_from else "another key here"
        remedy = "the same --key-file or MINGLE_KEY on every member (`mingle key` makes one)"
        return SecretError(f"the same key as {others} has for this id", here, remedy)

    def _relayed(self, endpoint: Endpoint, leader: Endpoint) -> None:
        """Dial a leader directly instead of its relay: an attacker's, or a service's address in front of a pod."""
        if endpoint.address not in self._relays and len(self._relays) < MOST_REPORTS:
            self._relays.add(endpoint.address)
            seen = f"{endpoint.address} only relays {leader.address}"
            self._context.note(f"{seen}: connecting to {leader.address} directly")
        self._dialer.dial(leader)

    def _mismatch(self, address: str, host: str, why: wire.Why) -> None:
        self._refusals[why].add(address, host)
        if why == "key":
            self._reject(address, host)
        elif self.leader is not None:
            self.leader.refused[why].add(address, host)

    def _reject(self, address: str, host: str = "") -> None:
        if self.leader is not None:
            self.leader.rejected.add(address, host)
        self.reject([peer_label(address, host)])
