"""The leader's side: let members in, agree on an address, and form the world whole or not at all.

States: *gathering* until all N are in and one address is reached by all; *closing* while each of the N holds
its answer and has not yet said READY; *formed* once all have and all still wait, when COMMIT goes out; *failed* or
*withdrawn* otherwise. A member lost while closing takes the state back to gathering: nobody has printed anything yet.
"""

from __future__ import annotations

import errno

from mingle_hooks import jsontext
from mingle_hooks import sockets as socket
from mingle_hooks.digest import sha256
from mingle_hooks.errors import printable
from mingle_hooks.rendezvous.leader.session import Session
from mingle_hooks.rendezvous.poller import READ
from mingle_hooks.rendezvous.protocol import wire
from mingle_hooks.rendezvous.protocol.answer import LAST_EPOCH
from mingle_hooks.rendezvous.protocol.failure import Failure
from mingle_hooks.rendezvous.protocol.leases import LAST_WORD_S, LEASE_S, RENEW_S, Leases
from mingle_hooks.rendezvous.rejected import RejectedPeers
from mingle_hooks.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mingle_hooks.rendezvous.leader.roster import Roster
    from mingle_hooks.rendezvous.loop import Loop, Timer
    from mingle_hooks.rendezvous.protocol.attempt import Attempt, Secret
    from mingle_hooks.rendezvous.protocol.join_request import JoinRequest

# Accept this many connections before looking at the others again.
ACCEPT_AT_ONCE = 256
# A connection without proof is dropped after this long: ten times a handshake with two lost packets.
STRANGER_S = 10.0
# Out of descriptors or memory: then somebody has to go, and it is whoever has said nothing for longest.
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# Where nobody can go, look this much later, in seconds, whether there is room: the callers wait in the kernel.
ROOM_S = 0.2
# While somebody who may lead as well is asked, look this much later, in seconds, whether it has answered.
ASKED_S = 0.1
# With all in, wait this long for the best address to be reached by all before taking the next best:
# a connection whose first two packets are lost still comes through.
SETTLE_S = 3.5
# All are in, and the world still gathers: tell them, for then they try the other addresses too, once nobody has reached
# one for this long, in seconds. Thousands may be about to reach the best, and the rest of SETTLE_S suffices.
NEEDS_ALL_S = 0.5
# After these contradictions there is probably one member more than the world has.
ONE_TOO_MANY = ("rank", "full")
# Why somebody was refused -> the failure that says so where members are missing; the likeliest mistake first.
REFUSALS = {wire.VERSION: "versions", wire.RUN: "runs", wire.KEY: "keys"}
# Greetings that are remembered, so that nobody can say them again: several of each of 16,384 members.
MOST_NONCES = 100_000
# Tell waiting members how many are in at most this often, and then less often, in seconds.
PROGRESS_S = (0.5, 1, 2, 5, 10)


class AdvertisedAddress(NamedTuple):
    """One address of the leader that the world may use, the best first."""

    address: str
    loopback: bool = False  # good only where all members share the leader's network stack


def not_own(master_addr: str, host: str, advertised: Sequence[AdvertisedAddress]) -> Failure:
    """Return the failure for a MASTER_ADDR, as it was exported, at which other hosts cannot reach rank 0's."""
    found = ", ".join(dict.fromkeys(offer.address for offer in advertised))
    which = f", which is {found} on {host}" if found else f", which {host} cannot look up"
    return Failure("address", (master_addr, host, "" if found == master_addr else which))


class Terms(NamedTuple):
    """What the leader brings to a world."""

    advertised: tuple[AdvertisedAddress, ...]
    port: int
    ticket: int  # 0: rank 0 by right; else the lowest wins


class Leader:
    """Serves check-ins on listeners that its owner opened; the owner calls close()."""

    def __init__(
        self,
        loop: Loop,
        attempt: Attempt,
        secret: Secret,
        roster: Roster,
        me: JoinRequest,
        terms: Terms,
        listeners: Sequence[socket.socket],
        on_change: Callable[[], None],
        most_strangers: int,
    ) -> None:
        self._loop, self._attempt, self._secret = loop, attempt, secret
        self.tag = attempt.tag
        self.roster, self.me, self.terms = roster, me, terms
        self.state = "gathering"
        self.failure: Failure | None = None
        self._began, self._failed = loop.clock(), 0.0
        self.answer: wire.Body | None = None  # this member's own, once formed
        self.refused = {why: RejectedPeers() for why in wire.REASONS}
        self.moved_to: list[list[object]] = []
        self._on_change = on_change
        self._listeners = list(listeners)
        self._most_strangers = most_strangers
        self._connected: dict[Session, None] = {}
        self._strangers: dict[Session, None] = {}  # of these, who has not proved to hold the key; oldest first
        self._sessions: dict[bytes, Session] = {}
        self._epoch = 0
        self._answers: dict[bytes, wire.Body] = {}
        self._packed = b""  # the roster's frame, where some member asks for it
        self._leases = Leases(loop.clock)
        self._done: set[bytes] = set()
        self._told: set[bytes] = set()
        self._nonces: dict[bytes, None] = {}  # of greetings, oldest first
        self._settled = False
        self._quiet_until = loop.clock()
        self._is_alone: Callable[[], bool] = lambda: True
        self._timers: dict[str, Timer] = {}
        mine = roster.entry(me.member)
        mine.arrived = loop.clock()
        mine.reached = {index: offer.address for index, offer in enumerate(terms.advertised)}
        for listener in self._listeners:
            listener.settimeout(0)
            self._listen(listener)
        self._progress(0)
        self._sweep()
        self._timers["first"] = loop.after(0.0, self._consider)  # the leader may be all there is

    @property
    def ticket(self) -> int:
        """What members compare. A leader by right whose world has failed is no rival of the next try's."""
        return self.terms.ticket or int(self.state == "failed")

    @property
    def rejected(self) -> RejectedPeers:
        """Who tried with another key."""
        return self.refused[wire.KEY]

    @property
    def everybody_left(self) -> bool:
        """Whether nobody is connected any more who was to hear something."""
        return len(self._connected) == len(self._strangers)

    @property
    def everybody_done(self) -> bool:
        """Whether every member has said that it has the world."""
        return self.state == "formed" and len(self._done) == len(self.roster) - 1

    @property
    def everybody_told(self) -> bool:
        """Whether all members that may be about know that there is no world."""
        if self.state != "failed" or self.failure is None:
            return False
        about = (self.roster.nodes or 1) + (self.failure.kind in ONE_TOO_MANY)
        return len(self._told) + 1 >= about

    @property
    def awaited_s(self) -> float:
        """For how many seconds a member may still come back and ask for the word."""
        return self._leases.left_s()

    @property
    def unconfirmed(self) -> list[str]:
        """Hosts that were sent the world and have not said that it arrived."""
        return [v.entry.label for m, v in self._sessions.items() if m not in self._done and v.entry is not None]

    def close(self) -> None:
        """Let go of every socket and timer."""
        for timer in self._timers.values():
            timer.cancel()
        for session in self._connected:
            session.connection.close()
        for held in (self._connected, self._strangers, self._sessions):
            held.clear()
        for listener in self._listeners:
            if listener.fileno() >= 0:
                self._loop.unwatch(listener)
                listener.close()

    def fail(self, failure: Failure) -> None:
        """Tell everybody, now and when they come later, that there is no world, and why."""
        if self.state in ("failed", "formed"):
            return
        self.state, self.failure, self._failed = "failed", failure, self._loop.clock()
        self._tell_all(wire.FAILED, failure.body())
        self._told.update(self._sessions)
        self._on_change()

    def why(self) -> wire.Body:
        """Return what tells others, once this leader has failed, why and how long ago."""
        return {} if self.failure is None else self.failure.body(self._loop.clock() - self._failed)

    def told(self, failure: Failure, age_s: float) -> None:
        """Fail as another member did, unless that was before this one began: it was another run then."""
        if age_s > self._loop.clock() - self._began:
            return
        if self.state == "withdrawn":  # this member may have promised to wait for the better candidate's word
            self.failure = failure
            self._on_change()
        else:
            self.fail(failure)

    def withdraw(self, endpoints: list[list[object]]) -> None:
        """Send this candidate's members to a better one; later ones are sent there too."""
        self.state, self.moved_to = "withdrawn", endpoints
        for session in list(self._sessions.values()):
            session.tell(wire.MOVED, {"to": endpoints})
            session.leave()

    def resume(self) -> None:
        """Stand again: the better candidate was lost."""
        if self.state == "withdrawn":
            self.state = "gathering"

    def give_up(self, after_s: int) -> None:
        """Fail for all as the leader's or a member's time is over, and say who was missing."""
        if self.roster.complete and self.state == "gathering":
            short = self.roster.short_of([offer.address for offer in self.terms.advertised])
            self.fail(Failure("network", (self.me.host, short)))
            return
        nodes = self.roster.nodes
        seen = f"{len(self.roster)} in"
        if self.state == "closing":
            seen += f", of which {len(self._leases) + 1} confirmed"
        told = (str(nodes or "all"), str(after_s), seen, self.roster.missing())
        if (lack := self._loop.shortage) is not None:
            self.fail(Failure(lack.kind, (*told[:2], f"{seen}; on {self.me.host} {lack.seen}", told[3])))
            return
        for why, kind in REFUSALS.items():
            if rejected := self.refused[why].list():
                self.fail(Failure(kind, (*told[:2], f"{seen}; still missing: {told[3]}", ", ".join(rejected))))
                return
        self.fail(Failure("missing", told))

    def met_rival(self, host: str) -> None:
        """Another member leads by right as well."""
        if self.terms.ticket == 0:
            first, second = sorted([self.me.host, host])
            self.fail(Failure("leaders", (first, second)))

    # What sessions do.

    def checked_in(self, session: Session, join_request: JoinRequest) -> None:
        """Take in a member that has proved itself and said who it is, or tell it why not."""
        if self.state == "failed":
            session.tell(wire.FAILED, self.why())
            self._told.add(join_request.member)
            self._on_change()
            return
        if self.state == "withdrawn":
            session.tell(wire.MOVED, {"to": self.moved_to})
            session.leave()
            return
        if self.state == "formed":
            self._again(session, join_request)
            return
        if join_request.member == self.me.member:
            raise wire.WireError("member: the leader's own")
        older = self._sessions.get(join_request.member)
        if older is not None:  # its connection broke and it has come back
            older.leave()
        if (failure := self.roster.add(join_request, session.address)) is not None:
            self._sessions[join_request.member] = session
            self.fail(failure)
            return
        self._sessions[join_request.member] = session
        session.entry = self.roster.entry(join_request.member)
        session.entry.arrived = self._loop.clock()
        addr = self.roster.pinned("MASTER_ADDR")
        if addr and join_request.machine != self.me.machine and all(offer.loopback for offer in self.terms.advertised):
            self.fail(not_own(addr, self.me.host, self.terms.advertised))
            return
        advertised = [
            [index, offer.address]
            for index, offer in enumerate(self.terms.advertised)
            if not offer.loopback or join_request.machine == self.me.machine
        ]
        session.tell(wire.WELCOME, {"offers": advertised, "port": self.terms.port})
        if self.roster.complete and len(self.terms.advertised) > 1:
            self._tell_all_in_later()
        self._on_change()

    def reached(self, member: bytes, offer: int, own_address: str) -> None:
        """Note that a member has connected to one of the addresses that it was offered."""
        if offer < len(self.terms.advertised):
            self.roster.reach(member, offer, own_address)
            if "all in" in self._timers:
                self._tell_all_in_later()
            self._consider()

    def is_ready(self, member: bytes, epoch: int, lease_s: float) -> None:
        """Note that a member holds its answer, and for how long it will wait for the word."""
        if self.state != "closing" or epoch != self._epoch:
            return
        self._leases.promised(member, lease_s)
        # Who is about to give up is not asked again: it says so itself.
        if lease_s > LAST_WORD_S and len(self._leases) == len(self.roster) - 1:
            if late := self._leases.ending(LAST_WORD_S):
                self._renew(late)
            else:
                self._commit()

    def is_done(self, member: bytes) -> None:
        """Note that a member has the world."""
        if self.state == "formed":
            self._done.add(member)
            self._on_change()

    def lost(self, session: Session) -> None:
        """Forget a connection that has ended; once more changes nothing."""
        self._connected.pop(session, None)
        self._strangers.pop(session, None)
        if self.state in ("failed", "formed"):
            self._on_change()
            return
        member = session.entry.join_request.member if session.entry is not None else b""
        if self._sessions.get(member) is not session:
            return
        del self._sessions[member]
        self.roster.remove(member)
        self._unsettle()
        if self.state == "closing":
            self.state = "gathering"
        self._on_change()

    def proved(self, session: Session) -> None:
        """Note that the other side of a session holds the key."""
        self._strangers.pop(session, None)

    def reject(self, address: str, host: str = "", why: str = wire.KEY) -> None:
        """Somebody was refused, who says that it is this host."""
        if self.refused[why].add(address, host):
            self._on_change()

    def is_new(self, nonce: bytes) -> bool:
        """Tell whether a member has not used this nonce yet, and note it."""
        if nonce in self._nonces:
            return False
        self._nonces[nonce] = None
        if len(self._nonces) > MOST_NONCES:
            del self._nonces[next(iter(self._nonces))]
        return True

    # From all in to formed.

    def listen_for(self, quiet_s: float) -> None:
        """Form no world for so many seconds, in which others of this id that are too many can be heard."""
        self._quiet_until = self._loop.clock() + quiet_s
        self._timers["quiet"] = self._loop.after(quiet_s, self._consider)

    def ask_first(self, is_alone: Callable[[], bool]) -> None:
        """Form a world only once this says that nobody who may lead as well is being asked."""
        self._is_alone = is_alone

    def _consider(self) -> None:
        if self.state != "gathering" or not self.roster.complete or self._loop.clock() < self._quiet_until:
            return
        if "settle" not in self._timers:
            self._timers["settle"] = self._loop.after(SETTLE_S, self._settle)
        for index, offer in enumerate(self.terms.advertised):
            if offer.loopback and not self.roster.one_machine:
                continue
            if self.roster.reached_by_all(index):
                if self._is_alone():
                    self._close(index)
                else:
                    self._timers["asked"] = self._loop.after(ASKED_S, self._consider)
                return
            if not self._settled:
                return

    def _settle(self) -> None:
        self._settled = True
        self._consider()

    def _unsettle(self) -> None:
        """Wait for the best address anew when all are in again."""
        self._settled = False
        self._cancel("settle")
        self._cancel("all in")

    def _cancel(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()

    def _close(self, offer: int) -> None:
        self.state = "closing"
        self._epoch = self._epoch % LAST_EPOCH + 1
        self._leases = Leases(self._loop.clock)
        self._answers = {}  # of who was in an earlier epoch, and may not be in this one
        members = self.roster.members(offer)
        size = sum(row.slots for _, row in members)
        pinned_size = self.roster.pinned("WORLD_SIZE")
        if pinned_size is not None and pinned_size != str(size):
            self.fail(Failure("size", (pinned_size, str(size))))
            return
        roster = [[row.node_rank, row.host, row.address, row.slots] for _, row in members]
        encoded = jsontext.dumps(roster).encode()
        shared = self._shared(offer, len(members), size, encoded)
        others = (entry.join_request for entry, _ in members if entry.join_request.member != self.me.member)
        digest = self._pack(encoded) if any(join_request.wants_roster for join_request in others) else ""
        offset = 0
        for entry, row in members:
            place = {"rank": row.node_rank, "offset": offset, "own": row.address, "slots": row.slots}
            offset += row.slots
            body = {**shared, **place}
            if entry.join_request.wants_roster:
                body["roster"] = roster if entry.join_request.member == self.me.member else digest
            self._answers[entry.join_request.member] = body
        for member, session in self._sessions.items():
            self._leases.ask(member)
            self._send_answer(session, self._answers[member])
        if len(self.roster) == 1:
            self._commit()

    def _pack(self, encoded: bytes) -> str:
        """Have the roster's frame ready for those members who ask for it; return what their answers say of it."""
        from mingle_hooks.rendezvous.protocol import packed_roster

        packed = packed_roster.pack(encoded)
        self._packed = wire.frame(wire.ROSTER, packed)
        return packed_roster.digest(packed)

    def _send_answer(self, session: Session, answer: wire.Body) -> None:
        if "roster" in answer:
            session.connection.send(self._packed)
        session.tell(wire.ANSWER, answer)

    def _shared(self, offer: int, nodes: int, size: int, roster: bytes) -> wire.Body:
        address = self.terms.advertised[offer].address
        addr = self.roster.pinned("MASTER_ADDR") or address
        shared = {"nodes": nodes, "size": size, "addr": addr, "port": self.terms.port}
        # With the leader's nonce: two worlds in a row may have the same address and port, and are not the same.
        digest = sha256(self._attempt.name + self.me.member + wire.encode(shared) + roster).hexdigest()[:16]
        return {**shared, "digest": digest, "epoch": self._epoch, "at": address}

    def _renew(self, members: list[bytes]) -> None:
        for member in members:
            if self._leases.ask(member):
                self._sessions[member].tell(wire.HOLD, {"epoch": self._epoch})

    def _commit(self) -> None:
        self.state = "formed"
        self._tell_all(wire.COMMIT, {"epoch": self._epoch})
        self.answer = self._answers[self.me.member]
        self._on_change()

    def _tell_all(self, kind: int, body: wire.Body) -> None:
        payload = wire.encode(body)
        for session in self._sessions.values():
            session.say(kind, payload)

    def _again(self, session: Session, join_request: JoinRequest) -> None:
        """Tell a member of the formed world once more: its connection broke before the word arrived."""
        answer = self._answers.get(join_request.member)
        if answer is None:
            session.tell(wire.FAILED, Failure("full", (str(len(self.roster)), join_request.host)).body())
            return
        session.entry = self.roster.entry(join_request.member)
        self._sessions[join_request.member] = session
        self._send_answer(session, answer)
        session.tell(wire.COMMIT, {"epoch": self._epoch})

    # Time.

    def _tell_progress(self) -> None:
        if self.state == "gathering":
            body = {
                "in": len(self.roster),
                "of": self.roster.nodes or 0,
                "missing": printable(self.roster.missing(), 300),
                "knocks": self.rejected.list(),
            }
            self._tell_all(wire.PROGRESS, body)

    def _tell_all_in_later(self) -> None:
        self._cancel("all in")
        self._timers["all in"] = self._loop.after(NEEDS_ALL_S, self._tell_all_in)

    def _tell_all_in(self) -> None:
        del self._timers["all in"]
        self._tell_progress()

    def _progress(self, step: int) -> None:
        if "all in" not in self._timers:
            self._tell_progress()
        delay = PROGRESS_S[min(step, len(PROGRESS_S) - 1)]
        self._timers["progress"] = self._loop.after(delay, lambda: self._progress(step + 1))

    def _sweep(self) -> None:
        """Let strangers go that say nothing, and have those that wait for the word promise to go on."""
        oldest = self._loop.clock() - STRANGER_S
        for session in list(self._strangers):
            if session.since > oldest:
                break
            session.leave()
        if self.state == "closing":
            self._renew(self._leases.ending(LEASE_S - RENEW_S))
        self._timers["sweep"] = self._loop.after(1.0, self._sweep)

    def _listen(self, listener: socket.socket) -> None:
        self._loop.watch(listener, READ, lambda _events: self._accept(listener))

    def _make_room(self, listener: socket.socket) -> None:
        """Let the stranger go who has said nothing for longest; where there is none, leave callers waiting a while."""
        if self._strangers:
            next(iter(self._strangers)).leave()
            return
        self._loop.unwatch(listener)
        again = self._loop.after(ROOM_S, lambda: self._listen(listener))
        self._timers[f"room {listener.fileno()}"] = again

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPT_AT_ONCE):
            try:
                sock, where = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # else the caller's own trouble, which accept(2) hands on
                self._loop.missed(error)
                if error.errno in _SHORT:
                    self._make_room(listener)
                return
            try:
                sock.settimeout(0)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                session = Session(self, self._loop, sock, where[0], self._secret)
            except OSError as error:  # it has gone already, or there is no memory to watch it
                self._loop.missed(error)
                sock.close()
                continue
            self._connected[session] = self._strangers[session] = None
            if len(self._strangers) > self._most_strangers:
                next(iter(self._strangers)).leave()
