"""One attempt from beginning to end: find the leader or be it, and come back with a world or an error."""

from __future__ import annotations

from types import TracebackType

from mingle_hooks.errors import LIMITS
from mingle_hooks.rendezvous import timeline, wire
from mingle_hooks.rendezvous.connection import Loop, boottime
from mingle_hooks.rendezvous.dialer import ProvenLeader, Search
from mingle_hooks.rendezvous.election import Candidate, stand_as_candidate
from mingle_hooks.rendezvous.leader import Leader
from mingle_hooks.rendezvous.member import GOODBYE_S, Follower
from mingle_hooks.rendezvous.messages import LINGER_S, Answer, Deadline, Failure, Outcome, Stopwatch
from mingle_hooks.rendezvous.request import Observer, Progress, Request, join_request
from mingle_hooks.rendezvous.timeline import refuse_different_nodes
from mingle_hooks.rendezvous.wire import Secret

# Without a scheduler a leader listens this long for others of its id, in seconds: two of a leader's beacons, and the
# time in which a candidate sends its first.
QUIET_S = 0.5
# A person who watches sees every so many seconds that time passes.
TICK_S = 1.0
# A timer that rings so much later, in seconds, tells of a host that was suspended, or a process that was stopped.
LATE_S = 2.0
# A leader that this member need not look for again: itself.
NEVER_S = 3600.0


def meet(request: Request, observer: Observer) -> Answer:
    """Return the answer that all N members agreed on (see wire.ANSWER), or raise what every member raises.

    Takes at most request.timeout_s, and CLOSING_S more where the world was about to form. Whatever it
    opened is closed when it returns.
    """
    with Loop(boottime) as loop, Rendezvous(loop, request, observer) as rendezvous:
        return rendezvous.run()


class Rendezvous:
    """One member: it leads, or stands for it, or follows a leader, or looks for one."""

    def __init__(self, loop: Loop, request: Request, observer: Observer) -> None:
        self._loop, self._request, self._observer = loop, request, observer
        self._secret = Secret.derive(request.key, request.attempt)
        self._me = join_request(request)
        self._candidate: Candidate | None = None
        self._outcome = Outcome(loop)
        self._deadline = Deadline(loop, request.timeout_s)
        self._stopwatch = Stopwatch(loop.clock, request.age_s)
        self._search = Search(
            loop,
            request,
            self._secret,
            observer.note,
            self._leader_proven,
            candidate=lambda: self._candidate,
            joined=lambda: self._follower.precedence,
            member=self._me.member,
        )
        self._follower = Follower(
            loop,
            request,
            self._secret,
            self._me,
            self._search,
            self._outcome,
            self._deadline,
            self._stopwatch,
            look_again=self._look_again,
            leads=self._leads,
        )

    def __enter__(self) -> Rendezvous:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._follower.close()
        if self._candidate is not None:
            self._candidate.close(self._request.held if error is None else None)
        self._search.close()

    @property
    def is_over(self) -> bool:
        """Whether this member has its answer or its error, and nobody is still to be told."""
        return self._outcome.is_over

    @property
    def _leader(self) -> Leader | None:
        return self._candidate.leader if self._candidate is not None else None

    def run(self) -> Answer:
        """See meet()."""
        self.start()
        self._loop.run(lambda: self.is_over)
        return self.result()

    def start(self) -> None:
        """Open what this member needs; all else happens in its loop. Raises NetworkError."""
        self._loop.after(self._request.timeout_s, self._time_is_over)
        if self._request.rank in (0, None):
            self._stand()
        self._search.open()
        if self._request.tells is not None:
            self._set_node_facts(*self._request.tells())
        if self._leader is not None and not self._request.leader_hosts:
            # Nobody keeps others from taking this id: whoever begins at the same time is heard before a world forms.
            self._leader.choice.listen_for(QUIET_S)
        if self._request.local_peers is not None:
            self._request.local_peers.attend(self._loop, self._local_peer_failed)
        if self._request.obstacle is not None and self._request.obstacle.is_certain:
            self._loop.after(TICK_S, self._note_obstacle)
        self._tick()

    def _note_obstacle(self) -> None:
        """Say why there will be no world to whoever watches this member wait for the others."""
        if self._request.obstacle is not None:
            seen = self._request.obstacle.error().seen
            self._observer.note(f"cannot start the command: {seen}; all members end once all have checked in")

    def _set_node_facts(self, fingerprint: str, addresses: str) -> None:
        """Have it compared with the others': only now, as others already knock, or know that this member is here."""
        self._me = self._follower.me = self._me._replace(fingerprint=fingerprint, addresses=addresses)
        if self._leader is not None:
            own_entry = self._leader.roster.entry(self._me.member)
            own_entry.fingerprint, own_entry.addresses, own_entry.clock = fingerprint, addresses, (0.0, 0.0)

    def result(self) -> Answer:
        """Return the answer, or raise why there is none, a MingleError, once it is over."""
        answer = self._outcome.result()
        leader, membership = self._leader, self._follower.membership
        if leader is not None and leader.answer is answer:
            timeline.note_by_leader(leader, self._request, self._observer, answer["at"])
        elif self._observer.tell is not None:
            timeline.note_by_member(membership, self._observer)
        me = membership.me if membership is not None else leader.me if leader is not None else self._me
        if me.spent is not None:
            answer["spent"] = list(self._stopwatch.formed(me.spent))
        return answer

    def _tick(self) -> None:
        """Tell the observer how far the world is, as far as this member knows."""
        leader, progress = self._leader, None
        if self._follower.membership is not None:
            progress = self._follower.progress
        elif leader is not None and leader.state in ("gathering", "closing"):
            roster = leader.roster
            progress = Progress(len(roster), roster.nodes, roster.missing())
        elif leader is None or leader.state == "withdrawn":
            progress = Progress(0, self._request.nodes, f"rank 0{self._request.expected_leader}")
        if progress is not None:  # else over but for telling the others
            self._observer.progress(progress)
        self._loop.after(TICK_S, self._tick)

    # Leading, or standing for it.

    def _stand(self) -> None:
        # What most members do not need.

        me = self._me._replace(spent=self._stopwatch.durations(0.0))
        self._candidate = stand_as_candidate(self._loop, self._request, self._secret, me, self._leader_changed)
        if self._candidate is not None:
            leader = self._candidate.leader
            leader.choice.ask_first(self._search.is_alone)
            leader.one_way = self._search.one_way
            if self._request.strict:
                leader.choice.compare_first(lambda offer: refuse_different_nodes(leader, self._request, offer))

    def _leads(self) -> bool:
        leader = self._leader
        return leader is not None and (leader.terms.ticket == 0 or len(leader.roster) > 1)

    def _leader_changed(self) -> None:
        leader = self._leader
        if leader is None:
            return
        self._search.rejections.reject(leader.rejected.list())
        if leader.state == "withdrawn" and leader.failure is not None:
            failure, leader.failure = leader.failure, None
            if self._follower.membership is not None:  # the better candidate decides
                self._follower.membership.fail(failure)
        elif leader.state == "failed" and leader.failure is not None:
            self._leader_failed(leader, leader.failure)
        elif leader.state == "formed":
            if self._outcome.answer is None:
                self._outcome.answer = leader.answer
                # As long as some member may wait for the word, this leader stays to repeat it; a little longer than
                # they promised where it was suspended as it said it.
                self._leave_at(self._loop.clock() + max(leader.awaited_s, LINGER_S))
            if leader.all_done:
                self._outcome.end()

    def _leader_failed(self, leader: Leader, failure: Failure) -> None:
        error = failure.error()
        if len(leader.roster) == 1:  # a better reason may be known why nobody has come
            no_network = self._candidate.no_network if self._candidate is not None else None
            error = self._search.rejections.refusal() or no_network or self._search.with_local_faults(error)
        may_come_late = failure.kind not in ("missing", "unconfirmed", "keys", "runs", "versions", "network", *LIMITS)
        is_awaited = may_come_late and not leader.all_informed
        if not self._outcome.is_known:
            self._observer.failed(error)
        self._outcome.fail(error, LINGER_S if is_awaited else GOODBYE_S)
        # Each hangs up when it has read why: only then is it certain to have arrived.
        if not is_awaited and not leader.acceptor.has_members:
            self._outcome.end()

    def _leave_at(self, when: float) -> None:
        """Stay until then; longer for members that have come back since, or where this host was suspended."""

        def drained() -> None:
            now = self._loop.clock()
            stays_s = LINGER_S if now - when > LATE_S else 0.0
            if self._leader is not None:
                stays_s = max(stays_s, self._leader.awaited_s)
            if stays_s:
                self._leave_at(now + stays_s)
            else:
                self._drained()

        self._loop.after(max(when - self._loop.clock(), 0.0), drained)

    def _drained(self) -> None:
        if self._leader is not None and (hosts := self._leader.unconfirmed):
            self._observer.note(f"the world is formed, but {', '.join(hosts[:8])} did not confirm it")
        self._outcome.end()

    # Following a leader, or looking for one.

    def _leader_proven(self, proven: ProvenLeader) -> None:
        """Join a leader that has proved itself, unless it is this member, no better, or a rival."""
        leader = self._leader
        if proven.leader == self._me.member or self.is_over:
            self._search.drop(proven, NEVER_S)
        elif leader is None or leader.state == "withdrawn":
            if self._follower.meet(proven):
                self._join(proven)
        elif leader.state == "failed":
            self._search.send(proven, wire.FAILED, leader.failure_body())  # a better candidate would wait for us
        elif leader.terms.ticket == 0 and proven.ticket == 0:
            self._search.report_rival(proven, leader.me.host, leader.me.member)
            leader.met_rival(proven.label)
        elif leader.state != "gathering" or proven.precedence > (leader.terms.ticket, leader.me.member):
            self._search.drop(proven)
        else:
            self._join(proven)

    def _join(self, proven: ProvenLeader) -> None:
        self._search.pause()
        if self._leader is not None and self._leader.state == "gathering":
            self._leader.withdraw([[proven.endpoint.address, proven.endpoint.port]])
        self._follower.join(proven)

    def _look_again(self) -> None:
        """Stand again, where this member did, and look for a leader by every backend."""
        if self._leader is not None:
            self._leader.resume()
        self._search.seek()

    def _local_peer_failed(self, failure: Failure) -> None:
        """Fail for all as this node's tasks are not whole; too late for a world that has formed."""
        leader = self._leader
        if self._follower.membership is None and leader is not None and leader.state != "withdrawn":
            leader.fail(failure)
        else:
            self._follower.fail(failure)

    # Time.

    def _time_is_over(self) -> None:
        """Give up; but a world that is about to form gets CLOSING_S more to do so."""
        is_closing = self._leader is not None and self._leader.state == "closing"
        if is_closing or self._follower.bound_to() is not None:
            # Counted from the deadline: this process may have been stopped meanwhile.
            self._loop.after(max(self._deadline.left_s(), 0.0), self._give_up)
        else:
            self._give_up()

    def _give_up(self, *, was_late: bool = False) -> None:
        if self._outcome.is_known:
            return  # over but for telling the others
        if not was_late and self._follower.bound_to() is not None and self._deadline.left_s() < -LATE_S:
            # What was said while this host was suspended is sent again by TCP, or when this member asks.
            self._loop.after(LINGER_S, lambda: self._give_up(was_late=True))
            return
        leader = self._leader
        if leader is not None and leader.state in ("gathering", "closing"):
            leader.give_up(self._deadline.waited_s())
        else:
            self._follower.give_up()
