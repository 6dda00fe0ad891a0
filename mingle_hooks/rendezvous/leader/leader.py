"""The leader's side: let members in, agree on an address, and form the world whole or not at all.

States: *gathering* until all N are in and one address is reached by all; *closing* while each of the N holds
its answer and has not yet said READY; *formed* once all have and all still wait, when COMMIT goes out; *failed* or
*withdrawn* otherwise. A member lost while closing takes the state back to gathering: nobody has printed anything yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.rendezvous.leader import progress, shortfall  # not later: who is out of descriptors loads nothing
from mingle_hooks.rendezvous.leader.acceptor import Acceptor
from mingle_hooks.rendezvous.leader.answers import Answers, Place, size
from mingle_hooks.rendezvous.leader.choice import AddressChoice
from mingle_hooks.rendezvous.leader.closing import Closing
from mingle_hooks.rendezvous.leader.session import Session
from mingle_hooks.rendezvous.leader.terms import not_own
from mingle_hooks.rendezvous.protocol import wire
from mingle_hooks.rendezvous.protocol.answer import LAST_EPOCH
from mingle_hooks.rendezvous.protocol.failure import Failure
from mingle_hooks.rendezvous.rejected import RejectedPeers

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from mingle_hooks.rendezvous.leader.roster import Roster
    from mingle_hooks.rendezvous.leader.terms import Terms
    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.rendezvous.protocol.answer import Answer
    from mingle_hooks.rendezvous.protocol.attempt import Attempt, Secret
    from mingle_hooks.rendezvous.protocol.join_request import JoinRequest
    from mingle_hooks.rendezvous.protocol.states import LeaderState

# After these contradictions there is probably one member more than the world has.
ONE_TOO_MANY = ("rank", "full")


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
        self.state: LeaderState = "gathering"
        self.failure: Failure | None = None
        self._began, self._failed = loop.clock(), 0.0
        self.answer: Answer | None = None  # this member's own, once formed
        self.one_way: Callable[[], Sequence[str]] = tuple  # tells who is heard by multicast, and does not come
        self.refused = {why: RejectedPeers() for why in wire.REASONS}
        self.moved_to: list[list[object]] = []
        self._on_change = on_change
        self._sessions: dict[bytes, Session] = {}
        self._epoch = 0
        self.formed_at = 0.0  # by the loop's clock
        self._closing: Closing | None = None  # the last epoch, once there was one
        self._done: set[bytes] = set()
        self._told: set[bytes] = set()
        mine = roster.entry(me.member)
        mine.arrived = loop.clock()
        mine.reached = {index: offer.address for index, offer in enumerate(terms.advertised)}
        self.acceptor = Acceptor(
            loop, listeners, lambda sock, address: Session(self, loop, sock, address, self._secret), most_strangers
        )
        self._progress = progress.ProgressReports(loop, self._tell_progress)
        self.choice = AddressChoice(loop, roster, terms, lambda: self.state == "gathering", self._close)
        self._sweep()

    @property
    def ticket(self) -> int:
        """What members compare. A leader by right whose world has failed is no rival of the next try's."""
        return self.terms.ticket or int(self.state == "failed")

    @property
    def rejected(self) -> RejectedPeers:
        """Who tried with another key."""
        return self.refused[wire.KEY]

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
        return self._closing.leases.left_s() if self._closing is not None else 0.0

    @property
    def unconfirmed(self) -> list[str]:
        """Hosts that were sent the world and have not said that it arrived."""
        return [v.entry.label for m, v in self._sessions.items() if m not in self._done and v.entry is not None]

    def close(self) -> None:
        """Let go of every socket and timer."""
        self._next_sweep.cancel()
        self.choice.stop()
        self._progress.close()
        self.acceptor.close()
        self._sessions.clear()

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
        silent = None
        if self._closing is not None and self.state == "closing":
            silent = [self.roster.entry(member).join_request.host for member in self._closing.silent()]
        seen = shortfall.Seen(self.roster, self.terms, self.me.host, self.refused, self._loop.shortage, self.one_way())
        self.fail(shortfall.failure(seen, after_s, silent))

    def met_rival(self, host: str) -> None:
        """Another member leads by right as well."""
        if self.terms.ticket == 0:
            first, second = sorted([self.me.host, host])
            self.fail(Failure("leaders", (first, second)))

    # What sessions do.

    def checked_in(self, session: Session, join_request: JoinRequest) -> None:
        """Take in a member that has proved itself and said who it is, or tell it why not. Raises WireError."""
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
        self._sessions[join_request.member] = session
        if (failure := self.roster.add(join_request, session.address)) is not None:
            self.fail(failure)
            return
        session.entry = self.roster.entry(join_request.member)
        session.entry.arrived = self._loop.clock()
        addr = self.roster.pinned("MASTER_ADDR")
        same_machine = join_request.machine == self.me.machine
        if addr and not same_machine and self.terms.is_loopback:
            self.fail(not_own(addr, self.me.host, self.terms.advertised))
            return
        if (obstacle := self.roster.obstacle()) is not None:
            self.fail(obstacle)
            return
        session.tell(wire.WELCOME, {"offers": self.terms.offers(same_machine=same_machine), "port": self.terms.port})
        if self.roster.complete and len(self.terms.advertised) > 1:
            self._progress.all_in()
        self._on_change()

    def reached(self, member: bytes, offer: int, own_address: str) -> None:
        """Note that a member has connected to one of the addresses that it was offered."""
        if offer < len(self.terms.advertised):
            self.roster.reach(member, offer, own_address)
            self._progress.somebody_reached()
            self.choice.consider()

    def is_ready(self, member: bytes, epoch: int, lease_s: float) -> None:
        """Note that a member holds its answer, and for how long it will wait for the word."""
        closing = self._closing
        if self.state != "closing" or closing is None or closing.epoch != epoch:
            return
        if closing.may_commit(member, lease_s, len(self.roster) - 1):
            self._commit(closing)

    def is_done(self, member: bytes) -> None:
        """Note that a member has the world."""
        if self.state == "formed":
            self._done.add(member)
            self._on_change()

    def lost(self, session: Session) -> None:
        """Forget a connection that has ended; once more changes nothing."""
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
        self._progress.not_all_in()
        if self.state == "closing":
            self.state = "gathering"
        self._on_change()

    def reject(self, address: str, host: str = "", why: wire.Why = wire.KEY) -> None:
        """Somebody was refused, who says that it is this host."""
        if self.refused[why].add(address, host):
            self._on_change()

    # From all in to formed.

    def _close(self, offer: int) -> None:
        self.state = "closing"
        self._epoch = self._epoch % LAST_EPOCH + 1
        self._closing = None  # the answers of an earlier epoch are of others
        members = self.roster.members(offer)
        pinned_size = self.roster.pinned("WORLD_SIZE")
        if pinned_size is not None and pinned_size != str(size(members)):
            self.fail(Failure("size", (pinned_size, str(size(members)))))
            return
        at = self.terms.advertised[offer].address
        addr = self.roster.pinned("MASTER_ADDR") or at
        place = Place(self._attempt.name, self.me.member, self._epoch, addr, at, self.terms.port)
        self._closing = Closing(self._loop.clock, self._epoch, Answers(place, members), self._sessions)
        if len(self.roster) == 1:
            self._commit(self._closing)

    def _commit(self, closing: Closing) -> None:
        self.state, self.formed_at = "formed", self._loop.clock()
        self.acceptor.leave(self.terms.port)  # whoever is told may call its next owner at once
        self._tell_all(wire.COMMIT, {"epoch": closing.epoch})
        self.answer = closing.answers.of(self.me.member)
        self._on_change()

    def _tell_all(self, kind: int, body: wire.Body) -> None:
        payload = wire.encode(body)
        for session in self._sessions.values():
            session.say(kind, payload)

    def _again(self, session: Session, join_request: JoinRequest) -> None:
        """Tell a member of the formed world once more: its connection broke before the word arrived."""
        member = join_request.member
        if self._closing is None or self._closing.answers.of(member) is None:
            session.tell(wire.FAILED, Failure("full", (str(len(self.roster)), join_request.host)).body())
            return
        session.entry = self.roster.entry(member)
        self._sessions[member] = session
        self._closing.say_again(session, member)

    # Time.

    def _tell_progress(self) -> None:
        if self.state == "gathering":
            self._tell_all(wire.PROGRESS, progress.body(self.roster, self.rejected.list()))

    def _sweep(self) -> None:
        """Let strangers go that say nothing, and have those that wait for the word promise to go on."""
        self.acceptor.sweep()
        if self.state == "closing" and self._closing is not None:
            self._closing.renew()
        self._next_sweep = self._loop.after(1.0, self._sweep)
