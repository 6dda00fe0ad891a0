"""One member: what it brings to a rendezvous, and its side of it, from its call to a leader to the formed world."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Protocol

from mingle_hooks.errors import MingleError, MissingError, UsageError
from mingle_hooks.net.addresses import Preference, is_preferred, machine_id
from mingle_hooks.net.devices import GpuBinding
from mingle_hooks.net.ports import DEFAULT_RANGE
from mingle_hooks.rendezvous import messages, wire
from mingle_hooks.rendezvous.connection import Connection, Endpoint, Loop, Timer, dial
from mingle_hooks.rendezvous.messages import (
    COMMIT_DELIVERY_S,
    LEASE_S,
    LINGER_S,
    LONGEST_PART,
    LOOK,
    MEMBER_BYTES,
    Answer,
    Deadline,
    Failure,
    JoinRequest,
    Outcome,
    Stopwatch,
    age_s,
)
from mingle_hooks.rendezvous.wire import Attempt, Material, MembershipState, Secret
from mingle_hooks.schedulers.facts import JobFacts
from mingle_hooks.settings import BACKENDS, Settings
from mingle_hooks.values import Counted

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.dialer import ProvenLeader, Search
    from mingle_hooks.rendezvous.local_tasks import LocalPeers


class Request(NamedTuple):
    """What one member brings: who it is, what it knows, and how it may look for the others."""

    attempt: Attempt
    key: Material
    host: str
    machine: str
    slots: int
    rank: int | None = None
    rank_source: str = ""  # where it comes from: --rank, NODE_RANK, a scheduler's variable
    nodes: int | None = None
    timeout_s: float = 300.0
    pinned: Mapping[str, str] = MappingProxyType({})
    # MASTER_ADDR may be no address of rank 0's host: --master says so too, or this is a pod behind a service.
    trusts_addr: bool = False
    wants_roster: bool = False
    age_s: float = 0.0  # of this process
    orders_by_switch: bool = False
    topology: str = ""  # this member's switches
    hosts: tuple[str, ...] = ()
    leader_hosts: tuple[str, ...] = ()
    host_suffix: str = ""
    master: tuple[str, int | None] | None = None
    directory: str | None = None
    via: tuple[str, ...] = BACKENDS
    prefer: tuple[Preference, ...] = ()
    environ: Mapping[str, str] = MappingProxyType({})  # the user's, for what it says of networks
    port_range: range = DEFAULT_RANGE
    port_hold: bool = True
    ttl: int = 1
    key_from: str = ""  # for a message
    tells: Callable[[], tuple[str, str]] | None = (
        None  # this node's fingerprint and addresses, once it looks for others
    )
    strict: tuple[str, ...] = ()  # which differences between nodes form no world
    asks_rdma: bool = False
    obstacle: Failure | None = None  # why this node, or a task of it, cannot start the command
    local_peers: LocalPeers | None = None  # this node's other tasks, without which it is no member
    held: list[socket.socket] | None = None  # gets what keeps MASTER_PORT on rank 0; without it the port is let go

    @property
    def exported(self) -> str:
        """The exported variable, if any, by which this member looks for rank 0 elsewhere."""
        if "MASTER_ADDR" in self.pinned:
            return "MASTER_ADDR"
        return "NODE_RANK" if self.rank_source == "NODE_RANK" else ""

    @property
    def expected_leader(self) -> str:
        """Where rank 0 should be, as messages put it after "rank 0"."""
        if "MASTER_ADDR" in self.pinned:
            return f" ({self.pinned['MASTER_ADDR']}, from the exported MASTER_ADDR)"
        if self.leader_hosts:
            return f" ({self.leader_hosts[0]})"
        return f" (this is rank {self.rank}, from the exported NODE_RANK)" if self.exported else ""


def join_request(request: Request) -> JoinRequest:
    """Return what this member says of itself. Raises UsageError where no leader would take it."""
    me = JoinRequest(
        os.urandom(MEMBER_BYTES),
        request.host,
        request.rank,
        request.nodes,
        request.slots,
        request.machine,
        request.pinned,
        request.wants_roster,
        topology=request.topology,
        obstacle=request.obstacle,
    )
    try:
        wire.parse(JoinRequest, me.body())
    except wire.WireError as error:
        seen = f"{error} (host {request.host}, slots {request.slots})"
        raise UsageError("a valid check-in", seen, "correcting hostname, --slots, --nodes or --rank") from None
    return me


# Who is told how a rendezvous goes: an interface, which nothing has to load at run time.


def _count(body: wire.Body, name: str) -> int | None:
    return wire.integer(body, name, 0, 10**6) or None  # 0: nobody in knows it


class Progress(NamedTuple):
    """How far the world is, as its leader last told."""

    inside: Annotated[int, wire.Key("in"), wire.within(0, 10**6)]
    nodes: Annotated[int | None, wire.Key("of"), _count]
    missing: Annotated[str, wire.printable_text(400)]
    rejected: Annotated[tuple[Annotated[str, wire.printable_text(64)], ...], wire.Key("knocks"), wire.Most(64)] = ()


class Observer(Protocol):
    """Who is told how it goes, as text for a person."""

    # For --explain: how the world formed, a line each, once it has. None: nobody asks.
    tell: Callable[[str], None] | None

    def progress(self, progress: Progress) -> None:
        """Hear how many are in, about once a second."""

    def failed(self, error: MingleError) -> None:
        """Hear why there is no world, from rank 0, as soon as it is known: it stays to tell the others."""

    def note(self, text: str) -> None:
        """Hear something that a person should know."""


# Where the number of slots came from.
SlotsFrom = Counted | Literal["--slots", "LOCAL_WORLD_SIZE", "default"]


class MemberSpec(NamedTuple):
    """What one call asks: the facts, completed by what the user said."""

    settings: Settings
    facts: JobFacts
    user_environ: Mapping[str, str]  # the user's environment
    attempt: Attempt
    nodes: int | None
    nodes_source: str
    rank: int | None
    rank_source: str
    slots: int
    slots_from: SlotsFrom
    pinned: Mapping[str, str]
    binding: GpuBinding | None

    @property
    def node(self) -> str:
        """What tells this node from others that may share its directories, the same for all of its tasks.

        The scheduler's own name holds in every container of the job, whatever host name or network that has.
        """
        return self.facts.host or machine_id()

    @property
    def is_shared(self) -> bool:
        """Whether several tasks on this node get one member's answer."""
        return self.settings.scope == "task" and (self.facts.local_count or 1) > 1


# One address that a leader offers: a member tries it until it answers.

# Try an offered address again after this long, in seconds: TCP's own second try comes after one. Each further time
# after twice as long: where it is the leader that is slow, with thousands at its door, tries keep it so.
PROBE_AGAIN_S, PROBE_SELDOM_S = 2.0, 16.0


class Probe:
    """Connects to one offered address until it answers: the proof that this member can reach it.

    It counts once the leader has closed. Whoever closes first keeps the port in TIME_WAIT, and that has to be the
    leader's host, where the kernel then hands the world's port to nobody.
    """

    def __init__(
        self,
        loop: Loop,
        attempt: Attempt,
        secret: Secret,
        leader: bytes,
        address: str,
        port: int,
        on_reached: Callable[[Probe], None],
    ) -> None:
        self._loop, self._attempt, self._secret, self._leader = loop, attempt, secret, leader
        self.address, self._port, self._on_reached = address, port, on_reached
        self._connection: Connection | None = None
        self.own_address = ""  # this side's address, once the leader has proved itself
        self._nonce = b""
        self._again_s = PROBE_AGAIN_S
        self._timer = Timer()

    @property
    def connected(self) -> str:
        """The address, while somebody is there who has not answered yet."""
        return self.address if self._connection is not None and self._connection.is_connected else ""

    def start(self) -> None:
        """Try now, and again until it answers."""
        self._end_attempt()
        self._timer = self._loop.after(self._again_s, self.start)
        self._again_s = min(2 * self._again_s, PROBE_SELDOM_S)
        try:
            sock = dial(self.address, self._port)
        except OSError as error:  # no route, say: the next try may find one
            self._loop.missed(error)
            return
        self._nonce, self.own_address = os.urandom(wire.NONCE_BYTES), ""
        self._connection = Connection(self._loop, sock, self._frame, self._ended)
        at = wire.dialled(self.address, self._port).encode()
        proof = self._secret.mac(b"verify", self._nonce, self._leader, at)
        body = {"tag": self._attempt.tag.hex(), "nonce": self._nonce.hex(), "proof": proof.hex()}
        self._connection.send(wire.frame(wire.VERIFY, wire.encode(body)))

    def close(self) -> None:
        """Stop trying."""
        self._end_attempt()
        self._timer.cancel()

    def _end_attempt(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _frame(self, kind: int, payload: bytes) -> None:
        proof = wire.hexadecimal(wire.decode(payload), "proof", wire.MAC_BYTES)
        connection = self._connection
        if connection is None or kind != wire.VERIFIED or self.own_address:
            raise wire.WireError("not an answer")
        if not self._secret.agrees(proof, b"verified", self._nonce):
            raise wire.WireError("not our leader")
        self.own_address = connection.own_address()

    def _ended(self, _reason: str) -> None:
        if self.own_address:
            self.close()
            self._on_reached(self)


# A member's side: checked in with one leader, from the welcome to the word that the world is formed.

# The best address comes first. The next one is tried so much later, in seconds, unless one that may serve all is there
# by then, or has answered: some round trips of the longest way.
PROBE_NEXT_S = 0.25
# What a leader says only where it has not said the word, and first has to ask every member for another promise.
_NOT_COMMITTED = (wire.WELCOME, wire.PROGRESS, wire.FAILED, wire.MOVED)


class _Offer(NamedTuple):
    number: Annotated[int, wire.within(0, 255)]
    address: Annotated[str, wire.address]


class _Welcome(NamedTuple):
    """The leader's addresses to try, and the port."""

    offers: Annotated[tuple[_Offer, ...], wire.Most(wire.MOST_ADVERTISED)]
    port: Annotated[int, wire.within(1, 65535)]


class _MovedTo(NamedTuple):
    address: Annotated[str, wire.address]
    port: Annotated[int, wire.within(1, 65535)]


class _Moved(NamedTuple):
    """Where the better candidate is."""

    to: Annotated[tuple[_MovedTo, ...], wire.Most(wire.MOST_ADVERTISED)]


class Membership:
    """One check-in. States: *waiting*, *ready*, and at the end *formed*, *failed*, *moved* or *lost*."""

    def __init__(
        self,
        loop: Loop,
        attempt: Attempt,
        secret: Secret,
        proven: ProvenLeader,
        me: JoinRequest,
        accepts: Callable[[str], bool],
        time_left_s: Callable[[], float],
        on_change: Callable[[], None],
    ) -> None:
        self._loop, self._attempt, self._secret = loop, attempt, secret
        self.proven, self.me, self._accepts, self._on_change = proven, me, accepts, on_change
        self._time_left_s = time_left_s  # for how many seconds this member can still wait
        self.lease_ends = loop.clock()  # until then it asks nobody but this leader
        self.state: MembershipState = "waiting"
        self.is_free = False  # the leader has shown that it has not said the word, and must ask for a new promise
        self.progress: Progress | None = None
        self.failure: Failure | None = None
        self.failed_ago_s = 0.0
        self.answer: Answer | None = None
        self.moved_to: list[_MovedTo] = []
        self._packed = b""
        self._probes: list[Probe] = []
        self._untried: list[Probe] = []
        self._next = Timer()  # not set: all are tried, or the others are held back
        self._needs_all = False  # all members are in, and some of them have not reached the best address
        proven.connection.on_frame, proven.connection.on_end = self._frame, self._ended
        proven.connection.most_bytes = wire.MOST_LEADER_BYTES
        self._send(wire.CHECKIN, me.body(int(time.time() * 1000)))

    def give_up(self, after_s: int) -> None:
        """Tell the leader that this member will not wait any longer."""
        self._send(wire.GAVE_UP, {"after_s": after_s})

    def fail(self, failure: Failure) -> None:
        """Tell the leader why there can be no world."""
        self._send(wire.FAILED, failure.body())

    def report_rival(self, host: str, member: bytes) -> None:
        """Tell the leader of another that leads by the same right."""
        self._send(wire.RIVAL, {"host": host[:LONGEST_PART], "member": member.hex()})

    def hang_up(self) -> None:
        """Give this connection up, as if its other end had."""
        self._ended("hung up")

    def close(self) -> None:
        """Let go of the connection and of every address being tried."""
        self.proven.connection.close()
        self._next.cancel()
        for probe in self._probes:
            probe.close()

    def _send(self, kind: int, body: wire.Body) -> None:
        self.proven.connection.send(self.proven.sealer.seal(kind, wire.encode(body)))

    def _ended(self, _reason: str) -> None:
        self._settle("lost")

    def _settle(self, state: MembershipState) -> None:
        if self.state in ("waiting", "ready"):
            self.state = state
            self.close()
            self._on_change()

    def _frame(self, kind: int, payload: bytes) -> None:
        if kind == wire.ROSTER:
            self._packed = payload  # the answer tells whether it is the leader's
            return
        body = self.proven.sealer.open(kind, payload)
        if kind == wire.ANSWER and "roster" in body:
            # The roster has no MAC but this digest: one that was changed on the way ends the connection only.
            messages.check_roster(self._packed, wire.text(body, "roster", 64))
        try:
            self._handle(kind, body)
        except wire.WireError as error:  # it holds the key, so coming back would only bring the same again
            self.failure = Failure("protocol", (self.proven.label, str(error)))
            self._settle("failed")

    def _handle(self, kind: int, body: wire.Body) -> None:
        self.is_free = self.is_free or kind in _NOT_COMMITTED
        if kind == wire.WELCOME:
            self._welcome(body)
        elif kind == wire.PROGRESS:
            self._progress(body)
        elif kind == wire.ANSWER:
            self.answer, self.state = messages.parse_answer(self._with_roster(body)), "ready"
            self.is_free = False
            self._promise(self.answer["epoch"])
        elif kind == wire.HOLD:
            self._hold(wire.integer(body, "epoch", 1, messages.LAST_EPOCH))
        elif kind == wire.COMMIT:
            self._commit(body)
        elif kind == wire.FAILED:
            self.failure, self.failed_ago_s = Failure.parse(body), age_s(body)
            self._settle("failed")
        elif kind == wire.MOVED:
            self.moved_to = list(wire.parse(_Moved, body).to)
            self._settle("moved")
        else:
            raise wire.WireError("not a leader's frame")

    def _with_roster(self, body: wire.Body) -> wire.Body:
        packed, self._packed = self._packed, b""
        if "roster" not in body:
            return body

        return {**body, "roster": messages.unpack_roster(packed)}

    def _welcome(self, body: wire.Body) -> None:
        welcome = wire.parse(_Welcome, body)
        if self._probes:
            raise wire.WireError("a second welcome")
        self._probes = [self._probe(number, address, welcome.port) for number, address in welcome.offers]
        self._untried = list(self._probes)
        self._try_next()
        self._on_change()

    def _progress(self, body: wire.Body) -> None:
        # A leader tells this only while it gathers: an earlier answer will never be confirmed.
        self.state, self.answer = "waiting", None
        self.progress = wire.parse(Progress, body)
        if self.progress.inside == self.progress.nodes and not self._needs_all:
            self._needs_all = True
            self._next.cancel()
            self._try_next()
        self._on_change()

    def _hold(self, epoch: int) -> None:
        if self.answer is None or epoch != self.answer["epoch"]:
            raise wire.WireError("a lease for another answer")
        self._promise(epoch)

    def _promise(self, epoch: int) -> None:
        """Say for how long this member will wait for the word, and keep to it."""
        lease_s = max(min(LEASE_S, self._time_left_s()), 0.0)
        self.lease_ends = self._loop.clock() + lease_s
        self._send(wire.READY, {"epoch": epoch, "lease_ms": int(lease_s * 1000)})
        self._on_change()

    def _commit(self, body: wire.Body) -> None:
        if self.answer is None or wire.integer(body, "epoch", 1, messages.LAST_EPOCH) != self.answer["epoch"]:
            raise wire.WireError("a commit for another answer")
        self._send(wire.DONE, {})
        self._settle("formed")

    # Which of the offered addresses are tried, and when.

    def _try_next(self) -> None:
        if self._untried:
            self._next = self._loop.after(PROBE_NEXT_S, self._try_next)
            # A leader that has thousands at its door is slow to answer, and would be slower for more to answer.
            if self._needs_all or not any(self._may_serve_all(probe.connected) for probe in self._probes):
                self._untried.pop(0).start()

    def _may_serve_all(self, address: str) -> bool:
        """Whether this is an address that the world may use: loopback serves the members of one machine only."""
        return bool(address) and not address.startswith("127.") and address != "::1"

    def _probe(self, offer: int, address: str, port: int) -> Probe:
        parts = self._loop, self._attempt, self._secret, self.proven.leader
        return Probe(*parts, address, port, lambda probe: self._answered(offer, probe))

    def _answered(self, offer: int, probe: Probe) -> None:
        """Try no worse address than this one, unless it turns out that others do not reach it."""
        if self.reached(offer, probe.own_address) and not self._needs_all and self._may_serve_all(probe.address):
            self._next.cancel()

    def reached(self, offer: int, own_address: str) -> bool:
        """Tell the leader, and return whether this address of ours may be used."""
        if not self._accepts(own_address):
            return False
        self._send(wire.REACHED, {"offer": offer, "own": own_address})
        return True


# The leader that a member has joined: stay with it, come back to it, or go on to another, and keep one's promise.

# A member whose time is over waits this long for its leader to tell everybody why.
GOODBYE_S = 2.0
# A lost leader is called again after this long: it may only have lost this one connection.
CALL_AGAIN_S = 0.2
# And then this often by a member that has promised to wait for its word.
ASK_AGAIN_S = 1.0
# So long before its lease ends, in seconds, a member that has heard nothing calls its leader again. A leader commits
# only where leases last longer (LAST_WORD_S), so COMMIT has been sent by then, or will not be.
ASK_BEFORE_S = 4.0


class Promise(NamedTuple):
    """To wait for one leader's word, and for nobody else's, until a time by this member's clock."""

    leader: bytes
    ends: float


class Follower:
    """At most one leader at a time; the owner calls close().

    `look_again` has the whole member look for a leader as at its start, and `leads` tells whether others follow it.
    """

    def __init__(
        self,
        loop: Loop,
        request: Request,
        secret: Secret,
        me: JoinRequest,
        search: Search,
        outcome: Outcome,
        deadline: Deadline,
        stopwatch: Stopwatch,
        look_again: Callable[[], None],
        leads: Callable[[], bool],
    ) -> None:
        self._loop, self._request, self._secret, self.me = loop, request, secret, me
        self._search, self._outcome, self._look_again, self._leads = search, outcome, look_again, leads
        self._deadline, self._stopwatch = deadline, stopwatch
        self.membership: Membership | None = None
        self.progress: Progress | None = None  # as some leader last told
        self.promise: Promise | None = None
        self.is_late = False  # it leaves soon, and promises to wait for nobody
        self._is_passing_over = False

    @property
    def precedence(self) -> tuple[int, bytes] | None:
        """The leader's, which another one would have to be better than; None where none is joined."""
        return self.membership.proven.precedence if self.membership is not None else None

    def close(self) -> None:
        """Hang up."""
        if self.membership is not None:
            self.membership.close()

    def meet(self, proven: ProvenLeader) -> bool:
        """Tell whether to join this leader. Where not, it is dropped; where so, any other one has been left."""
        membership = self.membership
        if membership is None:
            joins = self.bound_to() in (None, proven.leader)
        elif proven.ticket == 0 and membership.proven.ticket == 0 and proven.leader != membership.proven.leader:
            self._search.report_rival(proven, membership.proven.label, membership.proven.leader)
            membership.report_rival(proven.label, proven.leader)
            return False
        else:
            joins = not self._stays(membership, proven)
        if not joins:
            self._search.drop(proven)
        elif membership is not None:
            self.membership = None
            membership.close()
        return joins

    def _stays(self, membership: Membership, proven: ProvenLeader) -> bool:
        """Whether this member stays with its leader, though another, or the same one, has been found.

        It does once it awaits the word, also where it has just come back to that leader: that one may still say the
        word by its earlier promise. A leader that has failed meanwhile is worse than itself before, and the same.
        """
        awaits = membership.state == "ready" or self.bound_to() is not None
        return awaits or proven.leader == membership.proven.leader or proven.precedence >= membership.proven.precedence

    def join(self, proven: ProvenLeader) -> None:
        """Check in with this leader."""
        self.membership = Membership(
            self._loop,
            self._request.attempt,
            self._secret,
            proven,
            self.me._replace(spent=self._stopwatch.durations(self._loop.names_s)),
            self._accepts,
            lambda: 0.0 if self.is_late else self._deadline.left_s(),
            self._changed,
        )

    def give_up(self) -> None:
        """Tell the leader that this member's time is over, and wait a little for the reason that it tells everybody."""
        self.is_late = True
        if self.membership is None:
            self._outcome.fail(self._unanswered())
            return
        self.membership.give_up(self._deadline.waited_s())
        # Its leader now tells everybody the same reason; should it be gone, ours has to do.
        self._loop.after(GOODBYE_S, lambda: self._outcome.fail(self._unanswered()))

    def fail(self, failure: Failure) -> None:
        """Tell the leader why there can be no world, and end; but the word may have been said, and be under way."""
        self.is_late = True
        if self.membership is not None:
            self.membership.fail(failure)
        self._outcome.fail(failure.error(), max(self._bound_s(), GOODBYE_S if self.membership is not None else 0.0))

    def bound_to(self) -> bytes | None:
        """Return the one leader that can tell whether the world has formed, once this member has promised to wait.

        The leader counts on the promise only for its time. But who has not been told the word cannot know that it was
        not said, also later, so nobody else's world is joined: of two that both exist, one would be wrong.
        """
        return self.promise.leader if self.promise is not None else None

    def _bound_s(self) -> float:
        """Return for how much longer it has promised so, in seconds."""
        return max(self.promise.ends - self._loop.clock(), 0.0) if self.promise is not None else 0.0

    def _accepts(self, own_address: str) -> bool:
        """Whether a connection from this address of ours is on a network that was asked for."""
        prefer = self._request.prefer
        return not prefer or is_preferred(own_address, prefer)

    def _changed(self) -> None:
        membership = self.membership
        if membership is None:
            return
        if membership.progress is not None:
            self.progress = membership.progress
            self._search.rejections.reject(membership.progress.rejected)
        if membership.state == "ready":
            self._promised(Promise(membership.proven.leader, membership.lease_ends))
        elif membership.is_free:
            self.promise = None
        if membership.state == "formed" and membership.answer is not None:
            self._outcome.form(membership.answer)
        elif membership.state == "failed" and membership.failure is not None:
            if self._deadline.is_before(membership.failed_ago_s):
                self._pass_over(membership, membership.failure)
            else:
                expected = membership.failure.error()
                error = self._search.with_local_faults(expected)
                error.is_of_rank_0 = str(error) == str(expected)
                self._outcome.fail(error)
        elif membership.state in ("moved", "lost"):
            self.membership = None
            self._seek_again(membership)

    def _promised(self, promise: Promise) -> None:
        if promise == self.promise:
            return
        self.promise = promise
        left_s = promise.ends - self._loop.clock()
        if left_s > COMMIT_DELIVERY_S:  # with less the leader does not commit
            self._loop.after(left_s - ASK_BEFORE_S, lambda: self._doubt(promise))

    def _doubt(self, promise: Promise) -> None:
        """Call the leader again while it still answers: COMMIT may be lost on a connection that only this end keeps."""
        membership, left_s = self.membership, promise.ends - self._loop.clock()
        is_late = left_s < ASK_BEFORE_S - 1  # this host was suspended: COMMIT may be there, and not read yet
        if self.promise is promise and membership is not None and membership.state == "ready" and not is_late:
            membership.hang_up()

    # Without the leader that was.

    def _pass_over(self, membership: Membership, failure: Failure) -> None:
        """Go on without a leader that had failed before this process began: an earlier run's, or this one is late.

        It is late where no other leader comes while the failed one is still there to tell everybody.
        """
        self.membership = None
        self._search.back_off(membership.proven.endpoint, LINGER_S / 2)
        self._look_again()
        if not self._is_passing_over:
            self._is_passing_over = True
            self._loop.after(LINGER_S, lambda: self._was_late(failure))

    def _was_late(self, failure: Failure) -> None:
        is_bound = self.bound_to() is not None  # it has lost its connection, and asks for the word
        if self.membership is None and not self._leads() and not is_bound and self._outcome.answer is None:
            error = failure.error()
            error.is_of_rank_0 = True
            self._outcome.fail(error)

    def _seek_again(self, membership: Membership) -> None:
        endpoint = membership.proven.endpoint
        self._search.back_off(endpoint, CALL_AGAIN_S)
        if self.bound_to() is not None:
            # The others may already have the world, so this leader is the only one to ask.
            self._ask(endpoint)
            return
        if self.is_late:
            self._outcome.fail(self._unanswered())
            return
        for address, port in membership.moved_to:
            self._search.dial(Endpoint(address, port, endpoint.backend))
        self._loop.after(CALL_AGAIN_S, lambda: self._call_again(endpoint))
        self._look_again()

    def _call_again(self, endpoint: Endpoint) -> None:
        if self.membership is None:
            self._search.dial(endpoint)

    def _ask(self, endpoint: Endpoint) -> None:
        """Ask a leader that was lost after its answer came, until it says the word or this member's time is over."""
        if self.membership is not None or self._outcome.is_over:
            return
        if self.bound_to() is not None:
            self._search.back_off(endpoint, 0.0)  # whatever it, or whoever is on the way to it, answered before
            self._search.dial(endpoint)
            self._loop.after(ASK_AGAIN_S, lambda: self._ask(endpoint))
        elif self.is_late:
            self._outcome.fail(self._unanswered())
        else:
            self._call_again(endpoint)
            self._look_again()

    def _unanswered(self) -> MingleError:
        after_s = self._deadline.waited_s()
        if self.membership is None:
            return self._search.no_leader(after_s)
        if self.membership.state == "ready":
            expected = f"rank 0, {self.membership.proven.label}, to commit the world within {after_s} s"
            return self._search.with_local_faults(
                MissingError(expected, "no commit, though this member had confirmed", LOOK)
            )
        missing = f", missing {self.progress.missing}" if self.progress is not None else ""
        expected = f"an answer from rank 0, {self.membership.proven.label}, within {after_s} s"
        return self._search.with_local_faults(MissingError(expected, f"none{missing}", LOOK))
