"""One attempt from beginning to end: find the leader or be it, and come back with a world or an error."""

from __future__ import annotations

import gc
import os

from mingle_hooks.errors import LIMITS, MingleError, MissingError, NetworkError, UsageError
from mingle_hooks.rendezvous import discovery
from mingle_hooks.rendezvous.discovery.discovery import Discovery
from mingle_hooks.rendezvous.leader import listeners
from mingle_hooks.rendezvous.loop import Loop
from mingle_hooks.rendezvous.member.dialer import REST_S, Dialer, Endpoint, ProvenLeader
from mingle_hooks.rendezvous.member.membership import Membership, Progress
from mingle_hooks.rendezvous.protocol import wire
from mingle_hooks.rendezvous.protocol.attempt import Secret
from mingle_hooks.rendezvous.protocol.failure import LONGEST_PART
from mingle_hooks.rendezvous.protocol.join_request import MEMBER_BYTES, JoinRequest
from mingle_hooks.rendezvous.protocol.leases import CLOSING_S, LINGER_S
from mingle_hooks.rendezvous.rejected import label
from mingle_hooks.rendezvous.rejections import Rejections
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from mingle_hooks.rendezvous.leader.candidate import Candidate
    from mingle_hooks.rendezvous.leader.leader import Leader
    from mingle_hooks.rendezvous.observer import Observer
    from mingle_hooks.rendezvous.protocol.failure import Failure
    from mingle_hooks.rendezvous.protocol.wire import Body
    from mingle_hooks.rendezvous.request import Request

# A member whose time is over waits this long for its leader to tell everybody why.
GOODBYE_S = 2.0
# Without a scheduler a leader listens this long for others of its id, in seconds: two of a leader's beacons, and the
# time in which a candidate sends its first.
QUIET_S = 0.5
# A person who watches sees every so many seconds that time passes.
TICK_S = 1.0
# A lost leader is called again after this long: it may only have lost this one connection.
CALL_AGAIN_S = 0.2
# And then this often by a member that has promised to wait for its word.
ASK_AGAIN_S = 1.0
# New objects before the interpreter looks for cycles among them. With its own 700, that is a tenth of the time in which
# a leader of 16,384 members closes, and there is hardly any to find.
COLLECT_AFTER = 10_000
_LOOK = "a look at that host, its log and its firewall, or a longer --timeout"


def meet(request: Request, observer: Observer) -> Body:
    """Return the answer that all N members agreed on (see wire.ANSWER), or raise what every member raises.

    Takes at most request.timeout_s, and CLOSING_S more where the world was about to form. Whatever it
    opened is closed when it returns.
    """
    # A wait may be long, and connections that come and go leave cycles behind; what is loaded by now stays.
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)
    gc.enable()
    with Loop() as loop, Rendezvous(loop, request, observer) as rendezvous:
        return rendezvous.run()


class Rendezvous:
    """The member's own state: leading, or standing for it; checked in with a leader; or looking for one."""

    def __init__(self, loop: Loop, request: Request, observer: Observer) -> None:
        self._loop, self._request, self._observer = loop, request, observer
        self._secret = Secret.derive(request.key, request.attempt)
        self._me = JoinRequest(
            os.urandom(MEMBER_BYTES),
            request.host,
            request.rank,
            request.nodes,
            request.slots,
            request.machine,
            request.pinned,
            request.wants_roster,
        )
        try:
            JoinRequest.parse(self._me.body())
        except wire.WireError as error:
            seen = f"{error} (host {request.host}, slots {request.slots})"
            raise UsageError("a check-in that others take", seen, "hostname, --slots, --nodes and --rank") from None
        self._began = loop.clock()
        self._is_late = self._is_passing_over = False  # late: it leaves soon, and promises to wait for nobody
        self._bound: tuple[bytes, float] | None = (
            None  # the leader that this member has promised to wait for, until when
        )
        self._candidate: Candidate | None = None
        self._leader: Leader | None = None
        self._membership: Membership | None = None
        self._advertisement: discovery.Advertisement | None = None
        self._progress: Progress | None = None
        self._rejections = Rejections(observer.note, request.key_from)
        self.is_over = False
        self._error: MingleError | None = None
        self._answer: Body | None = None
        self._no_network: NetworkError | None = None
        self._dialer = Dialer(
            loop, request.attempt, self._secret, self._leader_proven, self._mismatch, self._relayed, request.host
        )
        self._discovery = Discovery(
            self._context(),
            is_wanted=lambda: self._membership is None,
            advertisement=lambda: self._advertisement,
            leads=lambda: self._leader is not None and self._leader.state == "gathering",
        )

    def __enter__(self) -> Rendezvous:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._discovery.close()
        if self._membership is not None:
            self._membership.close()
        if self._candidate is not None:
            self._candidate.close()
        self._dialer.close()

    def run(self) -> Body:
        """See meet()."""
        self.start()
        self._loop.run(lambda: self.is_over)
        return self.result()

    def start(self) -> None:
        """Open what this member needs; all else happens in its loop."""
        self._loop.after(self._request.timeout_s, self._time_is_over)
        if self._request.rank in (0, None):
            self._stand()
        self._discovery.open(self._request.via)
        if self._leader is not None and not self._request.leader_hosts:
            # Nobody keeps others from taking this id: whoever begins at the same time is heard before a world forms.
            self._leader.listen_for(QUIET_S)
        if self._request.local_peers is not None:
            self._request.local_peers.attend(self._loop, self._local_peer_failed)
        self._tick()

    def result(self) -> Body:
        """Return the answer, or raise why there is none, once it is over."""
        if self._answer is None:
            raise self._error or MissingError("an answer", "none", "the same again, and please report it")
        if self._observer.tell is not None:
            self._explain(self._answer, self._observer.tell)
        return self._answer

    def _explain(self, answer: Body, tell: Callable[[str], None]) -> None:
        from mingle_hooks.rendezvous import report

        if self._leader is not None and self._leader.answer is answer:
            lines = report.of_leader(self._leader, answer["at"])
        else:
            lines = report.of_member(self._membership)
        for line in lines:
            tell(line)

    def _stand(self) -> None:
        from mingle_hooks.rendezvous.leader.candidate import stand  # 5 ms that most members do not need

        self._candidate = stand(self._loop, self._request, self._secret, self._me, self._leader_changed)
        if self._candidate is not None:
            self._leader, self._advertisement, self._no_network, _ = self._candidate
            self._leader.ask_first(self._is_alone)

    def _is_alone(self) -> bool:
        """Tell whether the shared directory announces nobody else who is there: a last look before a world forms.

        Of two leaders that are announced at the same time, one at least looks when the other one's file is there.
        """
        self._discovery.look("directory")
        return not self._dialer.is_calling("directory")

    def _tick(self) -> None:
        """Tell the observer how far the world is, as far as this member knows."""
        leader = self._leader
        if self._membership is not None:
            progress = self._progress
        elif leader is not None and leader.state in ("gathering", "closing"):
            roster = leader.roster
            progress = Progress(len(roster), roster.nodes, roster.missing())
        elif leader is None or leader.state == "withdrawn":
            progress = Progress(0, self._request.nodes, f"rank 0{self._expected_leader()}")
        else:  # over but for telling the others
            progress = None
        if progress is not None:
            self._observer.progress(progress)
        self._loop.after(TICK_S, self._tick)

    def _expected_leader(self) -> str:
        """Return where rank 0 should be, as messages put it."""
        request = self._request
        if "MASTER_ADDR" in request.pinned:
            return f" ({request.pinned['MASTER_ADDR']}, by MASTER_ADDR as it was exported)"
        own = f" (this is rank {request.rank}, by NODE_RANK as it was exported)" if self._exported() else ""
        return f" ({request.leader_hosts[0]})" if request.leader_hosts else own

    # Leading, or standing for it.

    def _leader_changed(self) -> None:
        leader = self._leader
        if leader is None:
            return
        self._rejections.reject(leader.rejected.list())
        if leader.state == "withdrawn" and leader.failure is not None:
            failure, leader.failure = leader.failure, None
            if self._membership is not None:  # the better candidate decides
                self._membership.fail(failure)
        elif leader.state == "failed" and leader.failure is not None:
            alone = len(leader.roster) == 1
            is_awaited = (
                leader.failure.kind not in ("missing", "keys", "runs", "versions", "network", *LIMITS)
                and not leader.everybody_told
            )
            error = leader.failure.error()
            self._fail(self._alone(error) if alone else error, LINGER_S if is_awaited else GOODBYE_S)
            # Each hangs up when it has read why: only then is it certain to have arrived.
            self.is_over = self.is_over or (leader.everybody_left and not is_awaited)
        elif leader.state == "formed":
            if self._answer is None:
                self._answer = leader.answer
                # As long as some member may wait for the word, this leader stays to repeat it.
                self._loop.after(leader.awaited_s, self._drained)
            self.is_over = self.is_over or leader.everybody_done

    def _drained(self) -> None:
        if self._leader is not None and (hosts := self._leader.unconfirmed):
            self._observer.note(f"the world is formed, but {', '.join(hosts[:8])} did not confirm it")
        self.is_over = True

    def _alone(self, error: MingleError) -> MingleError:
        """Return a better reason, where one is known, why nobody has come."""
        return self._rejections.refusal() or self._no_network or self._here(error)

    def _here(self, error: MingleError) -> MingleError:
        """Add what this host itself lacked to an error that somebody was missing or not reached."""
        if not isinstance(error, (MissingError, NetworkError)):
            return error
        short = self._loop.shortage
        lacks = [*self._discovery.faults(), *([short.seen] if short else [])]
        lacks = [lack for lack in lacks if lack not in error.seen]
        seen = f"here {'; '.join(lacks)}; {error.seen}" if lacks else error.seen
        return type(error)(error.expected, seen, LIMITS[short.kind][1] if short else error.remedy)

    # Looking for a leader.

    def _context(self) -> discovery.Context:
        request = self._request
        ports = listeners.check_in_ports(request.attempt, self._secret, request.port_range)
        return discovery.Context(
            loop=self._loop,
            attempt=request.attempt,
            secret=self._secret,
            dial=self._dialer.dial,
            reject=self._reject,
            note=self._observer.note,
            leader_hosts=request.leader_hosts,
            host_suffix=request.host_suffix,
            master=request.master,
            ports=tuple(dict.fromkeys([port for group in ports for port in group])),
            directory=request.directory,
            multicast_port=listeners.multicast_port(request.attempt),
            nets=tuple(p.text if p.network is None else str(p.network) for p in request.prefer),
            ttl=request.ttl,
            nodes=request.nodes,
            joined=lambda: self._membership.proven.precedence if self._membership is not None else None,
        )

    def _relayed(self, endpoint: Endpoint, leader: Endpoint) -> None:
        """Go round somebody who hands on what the leader says: a thief, or a service's address before a pod's own."""
        self._rejections.relayed(endpoint.address, leader.address)
        self._dialer.dial(leader)

    def _mismatch(self, address: str, host: str, why: str) -> None:
        self._rejections.refusals[why].add(address, host)
        if why == wire.KEY:
            self._reject(address, host)
        elif self._leader is not None:
            self._leader.refused[why].add(address, host)

    def _reject(self, address: str, host: str = "") -> None:
        if self._leader is not None:
            self._leader.rejected.add(address, host)
        self._rejections.reject([label(address, host)])

    def _leader_proven(self, proven: ProvenLeader) -> None:
        """Join a leader that has proved itself, unless it is this member, no better, or a rival."""
        leader, membership = self._leader, self._membership
        if proven.leader == self._me.member or self.is_over:
            self._drop(proven, rest_s=3600.0)
        elif leader is not None and leader.state != "withdrawn":
            if leader.state == "failed":
                self._tell(proven, wire.FAILED, leader.why())  # a better candidate would wait for us
            elif leader.terms.ticket == 0 and proven.ticket == 0:
                self._accuse(proven, leader.me.host, leader.me.member)
                leader.met_rival(proven.label)
            elif leader.state != "gathering" or proven.precedence > (leader.terms.ticket, leader.me.member):
                self._drop(proven)
            else:
                self._join(proven)
        elif membership is None:
            if self._bound_to() in (None, proven.leader):
                self._join(proven)
            else:
                self._drop(proven)
        elif proven.ticket == 0 and membership.proven.ticket == 0 and proven.leader != membership.proven.leader:
            self._accuse(proven, membership.proven.label, membership.proven.leader)
            membership.accuse(proven.label, proven.leader)
        elif self._stays(membership, proven):
            self._drop(proven)
        else:
            self._membership = None
            membership.close()
            self._join(proven)

    def _stays(self, membership: Membership, proven: ProvenLeader) -> bool:
        """Whether this member stays with its leader, though another, or the same one, has been found.

        It does once it awaits the word, also where it has just come back to that leader: that one may still say the
        word by its earlier promise. A leader that has failed meanwhile is worse than itself before, and the same.
        """
        awaits = membership.state == "ready" or self._bound_to() is not None
        return awaits or proven.leader == membership.proven.leader or proven.precedence >= membership.proven.precedence

    def _drop(self, proven: ProvenLeader, rest_s: float = REST_S) -> None:
        proven.connection.close()
        self._dialer.rest(proven.endpoint, rest_s)

    def _accuse(self, proven: ProvenLeader, host: str, member: bytes) -> None:
        self._tell(proven, wire.RIVAL, {"host": host[:LONGEST_PART], "member": member.hex()})

    def _tell(self, proven: ProvenLeader, kind: int, body: Body) -> None:
        proven.connection.send(proven.sealer.seal(kind, wire.encode(body)))
        self._drop(proven)

    def _join(self, proven: ProvenLeader) -> None:
        self._discovery.rest()
        if self._leader is not None and self._leader.state == "gathering":
            self._leader.withdraw([[proven.endpoint.address, proven.endpoint.port]])
        request = self._request
        self._membership = Membership(
            self._loop,
            request.attempt,
            self._secret,
            proven,
            self._me,
            self._accepts,
            self._patience_s,
            self._member_changed,
        )

    def _accepts(self, own_address: str) -> bool:
        """Whether a connection from this address of ours is on a network that was asked for."""
        prefer = self._request.prefer
        if not prefer:
            return True
        from mingle_hooks.fabric.interfaces import is_preferred

        return is_preferred(own_address, prefer)

    # Checked in.

    def _member_changed(self) -> None:
        membership = self._membership
        if membership is None:
            return
        if membership.progress is not None:
            self._progress = membership.progress
            self._rejections.reject(membership.progress.rejected)
        if membership.state == "ready":
            self._bound = membership.proven.leader, membership.lease_ends
        elif membership.is_free:
            self._bound = None
        if membership.state == "formed":
            self._answer, self.is_over = membership.answer, True
        elif membership.state == "failed" and membership.failure is not None:
            if membership.failed_ago_s > self._loop.clock() - self._began:
                self._pass_over(membership, membership.failure)
            else:
                self._fail(self._here(membership.failure.error()), 0.0)
        elif membership.state in ("moved", "lost"):
            self._membership = None
            self._seek_again(membership)

    def _pass_over(self, membership: Membership, failure: Failure) -> None:
        """Go on without a leader that had failed before this process began: an earlier run's, or this one is late.

        It is late where no other leader comes while the failed one is still there to tell everybody.
        """
        self._membership = None
        self._dialer.rest(membership.proven.endpoint, LINGER_S / 2)
        self._look_again()
        if not self._is_passing_over:
            self._is_passing_over = True
            self._loop.after(LINGER_S, lambda: self._was_late(failure))

    def _was_late(self, failure: Failure) -> None:
        leader = self._leader
        gathers = leader is not None and (leader.terms.ticket == 0 or len(leader.roster) > 1)
        is_bound = self._bound_to() is not None  # it has lost its connection, and asks for the word
        if self._membership is None and not gathers and not is_bound and self._answer is None:
            self._fail(failure.error(), 0.0)

    def _seek_again(self, membership: Membership) -> None:
        endpoint = membership.proven.endpoint
        self._dialer.rest(endpoint, CALL_AGAIN_S)
        if self._bound_to() is not None:
            # The others may already have the world, so this leader is the only one to ask.
            self._ask(endpoint)
            return
        if self._is_late:
            self._fail(self._unanswered(), 0.0)
            return
        for address, port in membership.moved_to:
            self._dialer.dial(Endpoint(address, port, endpoint.backend))
        self._loop.after(CALL_AGAIN_S, lambda: self._call_again(endpoint))
        self._look_again()

    def _bound_to(self) -> bytes | None:
        """Return the one leader that can tell whether the world has formed, once this member has promised to wait.

        The leader counts on the promise only for its time. But who has not been told the word cannot know that it was
        not said, also later, so nobody else's world is joined: of two that both exist, one would be wrong.
        """
        return self._bound[0] if self._bound is not None else None

    def _bound_s(self) -> float:
        """Return for how much longer it has promised so, in seconds."""
        return max(self._bound[1] - self._loop.clock(), 0.0) if self._bound is not None else 0.0

    def _look_again(self) -> None:
        """Stand again, where this member did, and look for a leader by every way."""
        if self._leader is not None:
            self._leader.resume()
        self._discovery.seek()

    def _call_again(self, endpoint: Endpoint) -> None:
        if self._membership is None:
            self._dialer.dial(endpoint)

    def _ask(self, endpoint: Endpoint) -> None:
        """Ask a leader that was lost after its answer came, until it says the word or this member's promise ends."""
        if self._membership is not None or self.is_over:
            return
        if self._bound_to() is not None:
            self._dialer.dial(endpoint)
            self._loop.after(ASK_AGAIN_S, lambda: self._ask(endpoint))
        elif self._is_late:
            self._fail(self._unanswered(), 0.0)
        else:
            self._call_again(endpoint)
            self._look_again()

    def _local_peer_failed(self, failure: Failure) -> None:
        """Fail for all as this node's tasks are not whole; too late for a world that has formed."""
        leader, membership = self._leader, self._membership
        if membership is None and leader is not None and leader.state != "withdrawn":
            leader.fail(failure)
            return
        self._is_late = True
        if membership is not None:
            membership.fail(failure)
        # The word may have been said, and be under way.
        self._fail(failure.error(), max(self._bound_s(), GOODBYE_S if membership is not None else 0.0))

    # Time.

    def _patience_s(self) -> float:
        """Return for how long this member can still wait, in seconds, once it holds an answer."""
        return 0.0 if self._is_late else self._left_s()

    def _left_s(self) -> float:
        return self._began + self._request.timeout_s + CLOSING_S - self._loop.clock()

    def _time_is_over(self) -> None:
        """Give up; but a world that is about to form gets CLOSING_S more to do so."""
        is_closing = self._leader is not None and self._leader.state == "closing"
        is_ready = self._membership is not None and self._membership.state == "ready"
        if is_closing or is_ready or self._bound_to() is not None:
            # Counted from the deadline: this process may have been stopped meanwhile.
            self._loop.after(max(self._left_s(), 0.0), self._give_up)
        else:
            self._give_up()

    def _give_up(self) -> None:
        if self._answer is not None or self._error is not None:
            return  # over but for telling the others
        self._is_late = True
        leader, membership = self._leader, self._membership
        if leader is not None and leader.state in ("gathering", "closing"):
            leader.give_up(self._waited_s())
        elif membership is not None:
            membership.give_up(self._waited_s())
            # Its leader now tells everybody the same reason; should it be gone, ours has to do.
            self._loop.after(GOODBYE_S, lambda: self._fail(self._unanswered(), 0.0))
        else:
            self._fail(self._unanswered(), 0.0)

    def _waited_s(self) -> int:
        return round(self._loop.clock() - self._began)

    def _unanswered(self) -> MingleError:
        after_s = self._waited_s()
        if self._membership is not None:
            leader, progress = self._membership.proven.label, self._progress
            missing = f"; still missing: {progress.missing}" if progress is not None else ""
            expected = f"an answer from rank 0, {leader}, within {after_s} s"
            return self._here(MissingError(expected, f"none{missing}", _LOOK))
        expected = f"rank 0{self._expected_leader()} within {after_s} s"
        seen = f"no answer (tried {self._discovery.tried()})"
        # What is left over from another job is likelier than a firewall.
        mend = f"unset {self._exported()} if it is left over, or {_LOOK}" if self._exported() else _LOOK
        return self._rejections.refusal() or self._here(MissingError(expected, seen, mend))

    def _exported(self) -> str:
        """Return the exported variable, if any, by which this member looks for rank 0 elsewhere."""
        if "MASTER_ADDR" in self._request.pinned:
            return "MASTER_ADDR"
        return "NODE_RANK" if self._request.rank_source == "NODE_RANK" else ""

    def _fail(self, error: MingleError, linger_s: float) -> None:
        if self._error is None:
            self._error = error
        if linger_s:
            self._loop.after(linger_s, self._end)
        else:
            self.is_over = True

    def _end(self) -> None:
        self.is_over = True
