"""The leader's side: check members in, agree on an address, and form the world whole or not at all.

States: *gathering* until all N have checked in and all have reached one address; *closing* while the members hold their
answers and have not all sent READY; *formed* once all have and all still wait, when COMMIT is sent; *failed* or
*withdrawn* otherwise. A member lost while closing takes the state back to gathering, as no member has printed yet.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NoReturn

from mingle_hooks import values
from mingle_hooks.errors import Shortage, printable
from mingle_hooks.rendezvous import messages, wire
from mingle_hooks.rendezvous.connection import STALLED_S, Callers, Connection, Loop, Timer, notice_loss
from mingle_hooks.rendezvous.messages import LEASE_S, Answer, Failure, JoinRequest, Kind, Leases
from mingle_hooks.rendezvous.roster import AddressChoice, Entry, RejectedPeers, Roster, Terms, not_own
from mingle_hooks.rendezvous.wire import PROTOCOL_VERSION, TAG_BYTES, Attempt, LeaderState, Secret
from mingle_hooks.schedulers.facts import fold

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.rendezvous import Capacity

# One connection to the leader, from HELLO to its end.

# Characters of a host name, and of an address with its port.
LONGEST_HOST, LONGEST_END = 253, 64


class Session:
    """One connection to the leader, from HELLO on."""

    __slots__ = ("_challenged", "_leader", "_proved", "_sealer", "_secret", "address", "connection", "entry", "since")

    def __init__(self, leader: Leader, loop: Loop, sock: socket.socket, address: str) -> None:
        self.address = address.partition("%")[0]  # without a zone
        self.since = loop.clock()
        self.entry: Entry | None = None
        self._leader, self._secret = leader, leader.secret
        self._sealer: wire.Sealer | None = None
        self._proved = False
        self._challenged = 0.0  # the time of day
        self.connection = Connection(loop, sock, self._frame, lambda _reason: leader.lost(self))
        self.connection.stalled_s = STALLED_S

    def send(self, kind: int, body: Mapping[str, object]) -> None:
        """Send a sealed frame."""
        self.send_payload(kind, wire.encode(body))

    def send_payload(self, kind: int, payload: bytes) -> None:
        """Send a sealed frame of an encoded body, which may go to many members."""
        if self._sealer is not None:
            self.connection.send(self._sealer.seal(kind, payload))

    def leave(self) -> None:
        """Close the connection, and remove it from the leader."""
        self.connection.close()
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
        # It covers the address that was dialled: if this connection arrived at another one, it is relayed.
        at = self.connection.own_end().encode()
        if not self._secret.agrees(proof, b"verify", nonce, self._leader.me.member, at):
            raise wire.WireError("not a member of this leader")
        self._leader.acceptor.refuse_replay(nonce)
        proof = self._secret.mac(b"verified", nonce)
        self.connection.send(wire.frame(wire.VERIFIED, wire.encode({"proof": proof.hex()})))
        # The leader closes first: the port then stays in TIME_WAIT here, and the kernel hands it to nobody.
        self.leave()

    def _greeted(self, body: wire.Body) -> None:
        """Answer a member that holds the key of this run and has dialled this very address; refuse all others."""
        host = wire.text(body, "host", LONGEST_HOST) if "host" in body else ""
        if body.get("version") != PROTOCOL_VERSION:
            self._refuse("version", host)
        nonce = wire.hexadecimal(body, "nonce", wire.NONCE_BYTES)
        at = wire.text(body, "at", LONGEST_END)
        proof, attempt_proof = (wire.hexadecimal(body, name, wire.MAC_BYTES) for name in ("proof", "door"))
        if not self._secret.agrees(proof, b"hello", nonce, at.encode()):
            is_member = self._secret.attempt_secret.agrees(attempt_proof, b"door", nonce, at.encode())
            self._refuse("run" if is_member else "key", host)
        if at != self.connection.own_end():
            self._refuse("relay", host)
        self._leader.acceptor.refuse_replay(nonce)
        self._challenge(nonce)

    def _refuse(self, reason: wire.Why, host: str) -> NoReturn:
        """Refuse a stranger, with a reason that does not depend on the key, and close the connection."""
        reply = {"why": reason, "host": self._leader.me.host, "at": self.connection.own_end()}
        self.connection.send(wire.frame(wire.REFUSED, wire.encode(reply)))
        if reason != "relay":
            self._leader.reject(self.address, host, reason)
        raise wire.WireError(f"another {reason}")

    def _challenge(self, member_nonce: bytes) -> None:
        nonce = os.urandom(wire.NONCE_BYTES)
        leader = self._leader
        ticket, host = leader.ticket, leader.me.host
        terms = (leader.me.member, ticket.to_bytes(8, "big"), host.encode())
        body = {
            "nonce": nonce.hex(),
            "leader": leader.me.member.hex(),
            "ticket": ticket,
            "host": host,
            "proof": self._secret.mac(b"challenge", member_nonce, nonce, *terms).hex(),
        }
        self._challenged = time.time()
        self.connection.send(wire.frame(wire.CHALLENGE, wire.encode(body)))
        self._sealer = wire.Sealer(self._secret, member_nonce, nonce, b"leader", b"member")
        self.connection.most_bytes = wire.MOST_MEMBER_BYTES

    def _proof_frame(self, sealer: wire.Sealer, kind: int, payload: bytes) -> None:
        try:
            body = sealer.open(kind, payload)
        except wire.WireError:
            self._leader.reject(self.address)
            raise
        self._proved = True
        self._leader.acceptor.strangers.pop(self, None)
        if kind == wire.CHECKIN:
            self._leader.checked_in(self, join_request := wire.parse(JoinRequest, body))
            if self.entry is not None and join_request.clock_ms is not None:
                # It read its clock, cut to ms, after the challenge was sent and before its check-in arrived.
                at = join_request.clock_ms / 1000
                self.entry.clock = at - time.time(), at + 0.001 - self._challenged
        else:  # another candidate's
            self._report_frame(kind, body)

    def _member_frame(self, kind: int, body: wire.Body) -> None:
        if self.entry is None:
            raise wire.WireError("not checked in")
        member = self.entry.join_request.member
        if kind == wire.REACHED:
            self._leader.reached(member, wire.integer(body, "offer", 0, 255), wire.address(body, "own"))
        elif kind == wire.READY:
            lease_s = wire.integer(body, "lease_ms", 0, round(LEASE_S * 1000)) / 1000
            self._leader.is_ready(member, wire.integer(body, "epoch", 1, messages.LAST_EPOCH), lease_s)
        elif kind == wire.DONE:
            self._leader.is_done(member)
        elif kind == wire.GAVE_UP:
            self._leader.give_up(wire.integer(body, "after_s", 0, 10**6))
        else:
            self._report_frame(kind, body)

    def _report_frame(self, kind: int, body: wire.Body) -> None:
        """Receive the reason why there is no world, or that there is another leader."""
        if kind == wire.FAILED:
            self._leader.receive_failure(Failure.parse(body), messages.age_s(body))
        elif kind == wire.RIVAL:
            host = wire.text(body, "host", messages.LONGEST_PART)
            member = wire.hexadecimal(body, "member", messages.MEMBER_BYTES)
            if member != self._leader.me.member:
                self._leader.met_rival(host)
        else:
            raise wire.WireError("not a member's frame")


# The acceptor of a leader's connections, which bounds the number and time of those without proof of the key.

# A connection without proof is dropped after so many seconds: ten times a handshake with two lost packets.
STRANGER_S = 10.0
# Nonces that are remembered, so that no frame can be replayed: several of each of 16,384 members.
MOST_NONCES = 100_000


class Acceptor:
    """Accepts connections, and owns the listeners and every session. The owner calls close()."""

    def __init__(self, leader: Leader, loop: Loop, listeners: Sequence[socket.socket], most_strangers: int) -> None:
        self._leader, self._loop, self._most_strangers = leader, loop, most_strangers
        self.connected: dict[Session, None] = {}
        self.strangers: dict[Session, None] = {}  # those of them without proof of the key; oldest first
        self._nonces: dict[bytes, None] = {}  # oldest first
        for listener in listeners:
            notice_loss(listener, drop_unsent=False)
        self.callers = Callers(loop, listeners, self._take, self._make_room)

    @property
    def has_members(self) -> bool:
        """Whether any connected peer has proved that it holds the key."""
        return len(self.connected) > len(self.strangers)

    def close(self) -> None:
        """Close every socket, and cancel every timer."""
        for session in self.connected:
            session.connection.close()
        self.callers.close()

    def forget(self, session: Session) -> None:
        """Remove a connection that has ended; a second call changes nothing."""
        self.connected.pop(session, None)
        self.strangers.pop(session, None)

    def sweep(self) -> None:
        """Drop strangers that have sent no proof in time."""
        oldest = self._loop.clock() - STRANGER_S
        for session in list(self.strangers):
            if session.since > oldest:
                break
            session.leave()

    def refuse_replay(self, nonce: bytes) -> None:
        """Record this nonce. Raises WireError if it was used before: its frame may be replayed."""
        if nonce in self._nonces:
            raise wire.WireError("a repeated nonce")
        self._nonces[nonce] = None
        if len(self._nonces) > MOST_NONCES:
            del self._nonces[next(iter(self._nonces))]

    def _make_room(self) -> bool:
        """Drop the oldest stranger, and return whether there was one."""
        for session in self.strangers:
            session.leave()
            return True
        return False

    def _take(self, sock: socket.socket, where: str) -> None:
        session = Session(self._leader, self._loop, sock, where)
        self.connected[session] = self.strangers[session] = None
        if len(self.strangers) > self._most_strangers:
            next(iter(self.strangers)).leave()


# One epoch of a leader that closes: each member gets its answer and sends READY, repeatedly, until all wait at once.
#
# An epoch ends without COMMIT if a member is lost; the next one is another object, so nothing of this one counts there.


class Closing:
    """The answers of an epoch, and the members' leases.

    `offer` is the index of the leader's address that all have reached. `sessions` are the leader's own, so that a
    member that has returned is asked on its new connection.
    """

    def __init__(self, leader: Leader, epoch: int, offer: int, sessions: Mapping[bytes, Session]) -> None:
        self.epoch, self.leases, self._sessions = epoch, Leases(leader.clock), sessions
        members, me = leader.roster.members(offer), leader.me.member
        roster = [[*row] for _, row in members]
        encoded = values.to_json(roster).encode()
        at = leader.terms.advertised[offer].address
        addr = leader.roster.pinned("MASTER_ADDR") or at
        world: Any = {"nodes": len(members), "size": leader.roster.size, "addr": addr, "port": leader.terms.port}
        # It covers the leader's random id: two successive worlds may have the same address and port.
        digest = sha256(leader.attempt.name + me + wire.encode(world) + encoded).hexdigest()[:16]
        world |= {"digest": digest, "epoch": epoch, "at": at}
        others = (entry.join_request for entry, _ in members if entry.join_request.member != me)
        packed = messages.pack_roster(encoded) if any(request.wants_roster for request in others) else b""
        self._roster_frame = wire.frame(wire.ROSTER, packed)
        roster_digest = messages.roster_digest(packed)
        self.answers: dict[bytes, Answer] = {}
        offset = 0
        for entry, row in members:
            body: Any = {**world, "rank": row.node_rank, "offset": offset, "own": row.address, "slots": row.slots}
            offset += row.slots
            if entry.join_request.wants_roster:
                body["roster"] = roster if entry.join_request.member == me else roster_digest
            self.answers[entry.join_request.member] = body
        for member, session in sessions.items():
            self.leases.ask(member)
            self._answer(session, member)

    def may_commit(self, member: bytes, lease_s: float, members: int) -> bool:
        """Record a member's lease, and return whether all `members` besides the leader now wait long enough."""
        self.leases.promised(member, lease_s)
        # A member that is about to give up is not asked again: it sends GAVE_UP.
        if lease_s <= messages.COMMIT_DELIVERY_S or len(self.leases) != members:
            return False
        return not self._renew(self.leases.ending(messages.COMMIT_DELIVERY_S))

    def renew(self) -> None:
        """Renew the leases that have run for messages.RENEW_S."""
        self._renew(self.leases.ending(LEASE_S - messages.RENEW_S))

    def silent(self) -> list[bytes]:
        """Return the members that have been asked and have not sent READY."""
        return [member for member in self._sessions if self.leases.owes(member)]

    def resend(self, session: Session, member: bytes) -> None:
        """Send the answer and COMMIT again to a member that lost its connection before COMMIT arrived."""
        self.leases.renewed(member)
        self._answer(session, member)
        session.send(wire.COMMIT, {"epoch": self.epoch})

    def _answer(self, session: Session, member: bytes) -> None:
        """Send a member its answer, after the roster if it requested that."""
        answer = self.answers[member]
        if "roster" in answer:
            session.connection.send(self._roster_frame)
        session.send(wire.ANSWER, answer)

    def _renew(self, members: list[bytes]) -> bool:
        for member in members:
            if self.leases.ask(member):
                self._sessions[member].send(wire.HOLD, {"epoch": self.epoch})
        return bool(members)


# Progress reports to waiting members: how many have checked in.

# Seconds between two reports, from the first pair on.
PROGRESS_S = (0.5, 1, 2, 5, 10)
# Once all have checked in, and no member has reached an address for so many seconds, all are informed, as they then try
# the other addresses too. Thousands may be about to reach the best, and the rest of SETTLE_S suffices.
NEEDS_ALL_S = 0.5


class ProgressReports:
    """Calls `send` from time to time; the owner calls close()."""

    def __init__(self, loop: Loop, send: Callable[[], None]) -> None:
        self._loop, self._send = loop, send
        self._next = Timer()
        self._is_all_in = False  # the next report says that all have checked in
        self._step = 0
        self._report()

    def close(self) -> None:
        """Stop reporting."""
        self._next.cancel()

    def all_in(self) -> None:
        """Report, in NEEDS_ALL_S from now and not before, that all have checked in."""
        self._is_all_in = True
        self._report_in(NEEDS_ALL_S)

    def address_reached(self) -> None:
        """Postpone the report that all have checked in: others may be about to reach an address too."""
        if self._is_all_in:
            self.all_in()

    def _report(self) -> None:
        self._is_all_in = False
        self._send()
        self._report_in(PROGRESS_S[min(self._step, len(PROGRESS_S) - 1)])
        self._step += 1

    def _report_in(self, delay_s: float) -> None:
        self._next.cancel()
        self._next = self._loop.after(delay_s, self._report)


# Why a world has not formed in time.

# Reason of a refusal -> kind of failure where members are missing; the likeliest mistake first.
REFUSALS: dict[wire.Why, Kind] = {"version": "versions", "run": "runs", "key": "keys"}


def missing_members(leader: Leader, shortage: Shortage | None, after_s: int, silent: list[str] | None) -> Failure:
    """Return why there is no world: no common address, or members missing, with the likeliest cause.

    `shortage` is the limit that the leader's host has reached. `silent` are the hosts that hold the answer and have not
    sent READY, None if no answer was sent.
    """
    roster, host, one_way = leader.roster, leader.me.host, leader.one_way()
    if silent is None and roster.complete:
        return Failure("network", (host, roster.unreached_text([offer.address for offer in leader.terms.advertised])))
    nodes, inside, missing = str(roster.nodes or "all"), str(len(roster)), roster.missing()
    if silent is not None:
        inside = f"{len(roster) - len(silent)} of {inside} confirmed"
        missing = fold(silent) or "none, but some too late"
    if shortage is not None:
        inside += f" (on {host}: {shortage.seen})"
        return Failure(shortage.kind, (nodes, str(after_s), inside, missing))
    if silent is not None:
        return Failure("unconfirmed", (nodes, str(after_s), inside, missing))
    for why, kind in REFUSALS.items():
        if rejected := leader.refused[why].list():
            return Failure(kind, (nodes, str(after_s), f"{inside}, missing {missing}", ", ".join(rejected)))
    if one_way and len(roster) > 1:  # a leader that is alone reports it by itself
        inside += f" (on {host}: {'; '.join(one_way)})"
    return Failure("missing", (nodes, str(after_s), inside, missing))


# After these contradictions there is probably one member too many.
ONE_TOO_MANY = ("rank", "full")


class Leader:
    """Serves check-ins on the listeners of its owner, which calls close()."""

    def __init__(
        self,
        loop: Loop,
        attempt: Attempt,
        secret: Secret,
        roster: Roster,
        terms: Terms,
        listeners: Sequence[socket.socket],
        on_change: Callable[[], None],
        most_strangers: int,
    ) -> None:
        self._loop, self.clock, self.attempt, self.secret = loop, loop.clock, attempt, secret
        self.tag = attempt.tag
        self.roster, self.me, self.terms = roster, roster.me, terms
        self.state: LeaderState = "gathering"
        self.failure: Failure | None = None
        self._began, self._failed = loop.clock(), 0.0
        self.answer: Answer | None = None  # this member's own, once formed
        self.capacity: Capacity | None = None  # None: this host can hold all N
        self.one_way: Callable[[], Sequence[str]] = tuple  # whose multicast arrives, though they do not check in
        self.refused = {why: RejectedPeers() for why in wire.REASONS}
        self.moved_to: list[list[object]] = []
        self._on_change = on_change
        self._sessions: dict[bytes, Session] = {}
        self.formed_at = 0.0  # by the loop's clock
        self._closing: Closing | None = None  # the last epoch, once there was one
        self._done: set[bytes] = set()
        self._informed: set[bytes] = set()
        own_entry = roster.entry(roster.me.member)
        own_entry.arrived = loop.clock()
        own_entry.reached = {index: offer.address for index, offer in enumerate(terms.advertised)}
        self.acceptor = Acceptor(self, loop, listeners, most_strangers)
        self._progress = ProgressReports(loop, self._send_progress)
        self.choice = AddressChoice(loop, roster, terms, lambda: self.state == "gathering", self._close)
        self._sweep()

    @property
    def ticket(self) -> int:
        """The ticket that members compare. A leader by right that has failed is no rival of the next attempt's."""
        return self.terms.ticket or int(self.state == "failed")

    @property
    def all_done(self) -> bool:
        """Whether every member has confirmed COMMIT."""
        return self.state == "formed" and len(self._done) == len(self.roster) - 1

    @property
    def all_informed(self) -> bool:
        """Whether all members that may exist know that there is no world."""
        if self.state != "failed" or self.failure is None:
            return False
        about = (self.roster.nodes or 1) + (self.failure.kind in ONE_TOO_MANY)
        return len(self._informed) + 1 >= about

    @property
    def awaited_s(self) -> float:
        """For how many seconds a member may still return and ask for COMMIT."""
        return self._closing.leases.left_s() if self._closing is not None else 0.0

    @property
    def unconfirmed(self) -> list[str]:
        """Hosts that were sent COMMIT and have not confirmed it."""
        return [self.roster.entry(member).label for member in self._sessions if member not in self._done]

    def close(self) -> None:
        """Close every socket, and cancel every timer."""
        self._next_sweep.cancel()
        self.choice.stop()
        self._progress.close()
        self.acceptor.close()

    def fail(self, failure: Failure) -> None:
        """Fail the world, and report the reason to all members, including those that check in later."""
        if self.state in ("failed", "formed"):
            return
        self.state, self.failure, self._failed = "failed", failure, self._loop.clock()
        self._broadcast(wire.FAILED, failure.body())
        self._informed.update(self._sessions)
        self._on_change()

    def failure_body(self) -> wire.Body:
        """Return the message about this leader's failure, with its age."""
        return {} if self.failure is None else self.failure.body(self._loop.clock() - self._failed)

    def receive_failure(self, failure: Failure, age_s: float) -> None:
        """Fail as another member did, unless that happened before this leader began, in another run."""
        if age_s > self._loop.clock() - self._began:
            return
        if self.state == "withdrawn":  # this member may have promised to wait for the better candidate
            self.failure = failure
            self._on_change()
        else:
            self.fail(failure)

    def withdraw(self, endpoints: list[list[object]]) -> None:
        """Send this candidate's members, and later ones, to a better candidate."""
        self.state, self.moved_to = "withdrawn", endpoints
        for session in list(self._sessions.values()):
            session.send(wire.MOVED, {"to": endpoints})
            session.leave()

    def resume(self) -> None:
        """Become a candidate again: the better one was lost."""
        if self.state == "withdrawn":
            self.state = "gathering"

    def give_up(self, after_s: int) -> None:
        """Fail at the leader's or a member's deadline, and report which members are missing."""
        silent = None
        if self._closing is not None and self.state == "closing":
            silent = [self.roster.entry(member).join_request.host for member in self._closing.silent()]
        self.fail(missing_members(self, self._loop.shortage, after_s, silent))

    def met_rival(self, host: str) -> None:
        """Fail if this member leads by right, as another does too."""
        if self.terms.ticket == 0:
            first, second = sorted([self.me.host, host])
            self.fail(Failure("leaders", (first, second)))

    # Called by sessions.

    def checked_in(self, session: Session, join_request: JoinRequest) -> None:
        """Add a member that has proved itself, or tell it why not. Raises WireError."""
        if self.state == "failed":
            session.send(wire.FAILED, self.failure_body())
            self._informed.add(join_request.member)
            self._on_change()
            return
        if self.state == "withdrawn":
            session.send(wire.MOVED, {"to": self.moved_to})
            session.leave()
            return
        if self.state == "formed":
            self._rejoin(session, join_request)
            return
        if join_request.member == self.me.member:
            raise wire.WireError("member: the leader's own")
        older = self._sessions.get(join_request.member)
        if older is not None:  # its connection broke, and it has returned
            older.leave()
        self._sessions[join_request.member] = session
        if (failure := self.roster.add(join_request, session.address) or self._over_capacity()) is not None:
            self.fail(failure)
            return
        session.entry = self.roster.entry(join_request.member)
        session.entry.arrived = self._loop.clock()
        addr = self.roster.pinned("MASTER_ADDR")
        same_machine = join_request.machine == self.me.machine
        failure = self.roster.obstacle()
        if addr and not same_machine and self.terms.is_loopback:
            failure = not_own(addr, self.me.host, self.terms.advertised)
        if failure is not None:
            self.fail(failure)
            return
        session.send(wire.WELCOME, {"offers": self.terms.offers(same_machine=same_machine), "port": self.terms.port})
        if self.roster.complete and len(self.terms.advertised) > 1:
            self._progress.all_in()
        self._on_change()

    def _over_capacity(self) -> Failure | None:
        if self.capacity is None or len(self.roster) < self.capacity.members:
            return None
        return self.capacity.failure

    def reached(self, member: bytes, offer: int, own_address: str) -> None:
        """Record that a member has reached one of the addresses that it was offered."""
        if offer < len(self.terms.advertised):
            self.roster.reach(member, offer, own_address)
            self._progress.address_reached()
            self.choice.consider()

    def is_ready(self, member: bytes, epoch: int, lease_s: float) -> None:
        """Record that a member holds its answer, and how long it waits for COMMIT."""
        closing = self._closing
        if self.state != "closing" or closing is None or closing.epoch != epoch:
            return
        if closing.may_commit(member, lease_s, len(self.roster) - 1):
            self._commit(closing)

    def is_done(self, member: bytes) -> None:
        """Record that a member has confirmed COMMIT."""
        if self.state == "formed":
            self._done.add(member)
            self._on_change()

    def lost(self, session: Session) -> None:
        """Remove a connection that has ended, and its member; a second call changes nothing."""
        self.acceptor.forget(session)
        if self.state in ("failed", "formed"):
            self._on_change()
            return
        member = session.entry.join_request.member if session.entry is not None else b""
        if self._sessions.get(member) is not session:
            return
        del self._sessions[member]
        self.roster.remove(member)
        self.choice.start_over()
        if self.state == "closing":
            self.state = "gathering"
        self._on_change()

    def reject(self, address: str, host: str = "", why: wire.Why = "key") -> None:
        """Record a refused peer, with the host name that it claims."""
        if self.refused[why].add(address, host):
            self._on_change()

    # From the last check-in to COMMIT.

    def _close(self, offer: int) -> None:
        size, exported = str(self.roster.size), self.roster.pinned("WORLD_SIZE")
        if exported not in (None, size):
            self.fail(Failure("size", (str(exported), size)))
            return
        self.state = "closing"
        epoch = self._closing.epoch + 1 if self._closing is not None else 1
        self._closing = Closing(self, epoch, offer, self._sessions)

    def _commit(self, closing: Closing) -> None:
        self.state, self.formed_at = "formed", self._loop.clock()
        self.acceptor.callers.leave(self.terms.port)  # a member may connect to its next owner at once
        self._broadcast(wire.COMMIT, {"epoch": closing.epoch})
        self.answer = closing.answers[self.me.member]
        self._on_change()

    def _broadcast(self, kind: int, body: wire.Body) -> None:
        payload = wire.encode(body)
        for session in self._sessions.values():
            session.send_payload(kind, payload)

    def _rejoin(self, session: Session, join_request: JoinRequest) -> None:
        """Send COMMIT again to a member of the formed world that has returned."""
        member = join_request.member
        if self._closing is None or member not in self._closing.answers:
            session.send(wire.FAILED, Failure("full", (str(len(self.roster)), join_request.host)).body())
            return
        session.entry = self.roster.entry(member)
        self._sessions[member] = session
        self._closing.resend(session, member)

    # Timers.

    def _send_progress(self) -> None:
        if self.state == "gathering":
            body = {"in": len(self.roster), "of": self.roster.nodes or 0, "knocks": self.refused["key"].list()}
            self._broadcast(wire.PROGRESS, {**body, "missing": printable(self.roster.missing(), 300)})

    def _sweep(self) -> None:
        """Drop silent strangers, and renew the leases of members that wait for COMMIT."""
        self.acceptor.sweep()
        if self.state == "closing" and self._closing is not None:
            self._closing.renew()
        self._next_sweep = self._loop.after(1.0, self._sweep)
