"""One connection to the leader, from its greeting to its end."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.connection import STALLED_S, Callers, Connection, Loop, notice_loss
from mingle_hooks.rendezvous.leases import LEASE_S
from mingle_hooks.rendezvous.messages import LAST_EPOCH, LONGEST_PART, MEMBER_BYTES, Failure, JoinRequest, age_s
from mingle_hooks.rendezvous.roster import Entry
from mingle_hooks.rendezvous.wire import PROTOCOL_VERSION, TAG_BYTES, Secret

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.leader import Leader


# Characters of a host's name, and of an address with its port.
LONGEST_HOST, LONGEST_END = 253, 64


class Session:
    """One connection to the leader, from HELLO on."""

    __slots__ = ("_challenged", "_leader", "_proved", "_sealer", "_secret", "address", "connection", "entry", "since")

    def __init__(self, leader: Leader, loop: Loop, sock: socket.socket, address: str, secret: Secret) -> None:
        self.address = _plain(address)
        self.since = loop.clock()
        self.entry: Entry | None = None
        self._leader, self._secret = leader, secret
        self._sealer: wire.Sealer | None = None
        self._proved = False
        self._challenged = 0.0  # the time of day
        self.connection = Connection(loop, sock, self._frame, self._ended)
        self.connection.stalled_s = STALLED_S

    def tell(self, kind: int, body: Mapping[str, object]) -> None:
        """Send a sealed frame."""
        self.say(kind, wire.encode(body))

    def say(self, kind: int, payload: bytes) -> None:
        """Send a sealed frame whose body is encoded, as it goes to many."""
        if self._sealer is not None:
            self.connection.send(self._sealer.seal(kind, payload))

    def leave(self) -> None:
        """Close, and have the leader forget this connection."""
        self.connection.close()
        self._leader.lost(self)

    def _ended(self, _reason: str) -> None:
        self._leader.lost(self)

    def _frame(self, kind: int, payload: bytes) -> None:
        if self._sealer is None:
            self._stranger_frame(kind, wire.decode(payload))
        elif not self._proved:
            self._proof_frame(self._sealer, kind, payload)
        else:
            self._member_frame(kind, self._sealer.open(kind, payload))

    def _stranger_frame(self, kind: int, body: wire.Body) -> None:
        if wire.hexadecimal(body, "tag", TAG_BYTES) != self._leader.tag:
            raise wire.WireError("another world")
        if kind == wire.VERIFY:
            self._verify(body, wire.hexadecimal(body, "nonce", wire.NONCE_BYTES))
        elif kind == wire.HELLO:
            self._greeted(body)
        else:
            raise wire.WireError("not a greeting")

    def _verify(self, body: wire.Body, nonce: bytes) -> None:
        proof = wire.hexadecimal(body, "proof", wire.MAC_BYTES)
        # The address that was dialled is in it: where this connection arrived at another one, somebody hands it on.
        at = self.connection.own_end().encode()
        if not self._secret.agrees(proof, b"verify", nonce, self._leader.me.member, at):
            raise wire.WireError("not a member of this leader")
        self._once(nonce)
        self.connection.send(
            wire.frame(wire.VERIFIED, wire.encode({"proof": self._secret.mac(b"verified", nonce).hex()}))
        )
        # The leader closes first: the port then stays in TIME_WAIT here, and the kernel hands it to nobody.
        self.leave()

    def _greeted(self, body: wire.Body) -> None:
        """Answer who proves to hold the key of this run, and has dialled this very address; refuse all others."""
        host = wire.text(body, "host", LONGEST_HOST) if "host" in body else ""
        if body.get("version") != PROTOCOL_VERSION:
            self._refuse(wire.VERSION, host)
        nonce = wire.hexadecimal(body, "nonce", wire.NONCE_BYTES)
        at = wire.text(body, "at", LONGEST_END)
        proof, door = (wire.hexadecimal(body, name, wire.MAC_BYTES) for name in ("proof", "door"))
        if not self._secret.agrees(proof, b"hello", nonce, at.encode()):
            is_member = self._secret.door.agrees(door, b"door", nonce, at.encode())
            self._refuse(wire.RUN if is_member else wire.KEY, host)
        if at != self.connection.own_end():
            self._refuse(wire.RELAY, host)
        self._once(nonce)
        self._challenge(nonce)

    def _once(self, nonce: bytes) -> None:
        """Refuse what was said before: whoever says it again may only have heard it."""
        if not self._leader.acceptor.is_new(nonce):
            raise wire.WireError("said before")

    def _refuse(self, why: wire.Why, host: str) -> NoReturn:
        """Hang up on a stranger with a reason, in which nothing depends on the key."""
        reply = {"why": why, "host": self._leader.me.host, "at": self.connection.own_end()}
        self.connection.send(wire.frame(wire.REFUSED, wire.encode(reply)))
        if why != wire.RELAY:
            self._leader.reject(self.address, host, why)
        raise wire.WireError(f"another {why}")

    def _challenge(self, nonce: bytes) -> None:
        mine = os.urandom(wire.NONCE_BYTES)
        leader = self._leader
        ticket, host = leader.ticket, leader.me.host
        terms = (leader.me.member, ticket.to_bytes(8, "big"), host.encode())
        body = {
            "nonce": mine.hex(),
            "leader": leader.me.member.hex(),
            "ticket": ticket,
            "host": host,
            "proof": self._secret.mac(b"challenge", nonce, mine, *terms).hex(),
        }
        self._challenged = time.time()
        self.connection.send(wire.frame(wire.CHALLENGE, wire.encode(body)))
        self._sealer = wire.Sealer(self._secret, nonce, mine, b"leader", b"member")
        self.connection.most_bytes = wire.MOST_MEMBER_BYTES

    def _proof_frame(self, sealer: wire.Sealer, kind: int, payload: bytes) -> None:
        try:
            body = sealer.open(kind, payload)
        except wire.WireError:
            self._leader.reject(self.address)
            raise
        self._proved = True
        self._leader.acceptor.proved(self)
        if kind == wire.CHECKIN:
            self._leader.checked_in(self, join_request := JoinRequest.parse(body))
            if self.entry is not None and join_request.clock_ms is not None:
                # It said so after the challenge was sent, and before its answer came; what it read was cut to ms.
                at = join_request.clock_ms / 1000
                self.entry.clock = at - time.time(), at + 0.001 - self._challenged
        elif kind == wire.RIVAL:
            self._rival(body)
        elif kind == wire.FAILED:  # another candidate knows why there is no world
            self._leader.told(Failure.parse(body), age_s(body))
        else:
            raise wire.WireError("not a check-in")

    def _member_frame(self, kind: int, body: wire.Body) -> None:
        if self.entry is None:
            raise wire.WireError("nothing to say")
        member = self.entry.join_request.member
        if kind == wire.REACHED:
            self._leader.reached(member, wire.integer(body, "offer", 0, 255), wire.address(body, "own"))
        elif kind == wire.READY:
            lease_s = wire.integer(body, "lease_ms", 0, round(LEASE_S * 1000)) / 1000
            self._leader.is_ready(member, wire.integer(body, "epoch", 1, LAST_EPOCH), lease_s)
        elif kind == wire.DONE:
            self._leader.is_done(member)
        elif kind == wire.GAVE_UP:
            self._leader.give_up(wire.integer(body, "after_s", 0, 10**6))
        elif kind == wire.FAILED:  # it lacks what no wait brings back
            self._leader.told(Failure.parse(body), age_s(body))
        elif kind == wire.RIVAL:
            self._rival(body)
        else:
            raise wire.WireError("not a member's frame")

    def _rival(self, body: wire.Body) -> None:
        host, member = wire.text(body, "host", LONGEST_PART), wire.hexadecimal(body, "member", MEMBER_BYTES)
        if member != self._leader.me.member:
            self._leader.met_rival(host)


def _plain(address: str) -> str:
    """Return an address as people write it: without the IPv4 prefix of a dual-stack socket, or a zone."""
    return address.removeprefix("::ffff:").partition("%")[0]


# Takes a leader's connections in, and keeps those who have not shown the key few and short.

# A connection without proof is dropped after this long: ten times a handshake with two lost packets.
STRANGER_S = 10.0
# Greetings that are remembered, so that nobody can say them again: several of each of 16,384 members.
MOST_NONCES = 100_000


class Acceptor:
    """Accepts on listeners that it is given; from then on it owns them, and every session. The owner calls close()."""

    def __init__(
        self,
        loop: Loop,
        listeners: Sequence[socket.socket],
        open_session: Callable[[socket.socket, str], Session],
        most_strangers: int,
    ) -> None:
        self._loop, self._open_session, self._most_strangers = loop, open_session, most_strangers
        self.connected: dict[Session, None] = {}
        self.strangers: dict[Session, None] = {}  # of these, who has not proved to hold the key; oldest first
        self._nonces: dict[bytes, None] = {}  # of greetings, oldest first
        for listener in listeners:
            notice_loss(listener, drop_unsent=False)
        self._callers = Callers(loop, listeners, self._take, self._make_room)

    @property
    def has_members(self) -> bool:
        """Whether anybody is connected who has proved to hold the key."""
        return len(self.connected) > len(self.strangers)

    def close(self) -> None:
        """Let go of every socket and timer."""
        for session in self.connected:
            session.connection.close()
        self.connected.clear()
        self.strangers.clear()
        self._callers.close()

    def leave(self, port: int) -> None:
        """Listen no longer on a port, where there is another one; it stays bound."""
        self._callers.leave(port)

    def hand_over(self, port: int) -> list[socket.socket]:
        """Return the sockets that keep a port, on which nobody listens any more. The caller closes them."""
        return self._callers.hand_over(port)

    def proved(self, session: Session) -> None:
        """Note that the other side of a session holds the key."""
        self.strangers.pop(session, None)

    def forget(self, session: Session) -> None:
        """Forget a connection that has ended; once more changes nothing."""
        self.connected.pop(session, None)
        self.strangers.pop(session, None)

    def sweep(self) -> None:
        """Let strangers go that say nothing."""
        oldest = self._loop.clock() - STRANGER_S
        for session in list(self.strangers):
            if session.since > oldest:
                break
            session.leave()

    def is_new(self, nonce: bytes) -> bool:
        """Tell whether nobody has used this nonce yet, and note it."""
        if nonce in self._nonces:
            return False
        self._nonces[nonce] = None
        if len(self._nonces) > MOST_NONCES:
            del self._nonces[next(iter(self._nonces))]
        return True

    def _make_room(self) -> bool:
        """Let the stranger go who has said nothing for longest, if there is one."""
        for session in self.strangers:
            session.leave()
            return True
        return False

    def _take(self, sock: socket.socket, where: str) -> None:
        session = self._open_session(sock, where)
        self.connected[session] = self.strangers[session] = None
        if len(self.strangers) > self._most_strangers:
            next(iter(self.strangers)).leave()
