"""One member: its request, and its side of the rendezvous, from the probes of the leader's addresses to COMMIT."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Protocol

from mingle_hooks.errors import MingleError, MissingError, UsageError
from mingle_hooks.net.addresses import is_loopback, is_preferred, machine_id
from mingle_hooks.net.devices import GpuBinding
from mingle_hooks.rendezvous import messages, wire
from mingle_hooks.rendezvous.connection import Connection, Endpoint, Loop, Timer, dial
from mingle_hooks.rendezvous.messages import Answer, Failure, JoinRequest, Outcome
from mingle_hooks.rendezvous.wire import Attempt, Material, MembershipState, Secret
from mingle_hooks.schedulers.facts import JobFacts, switches_above
from mingle_hooks.settings import Settings
from mingle_hooks.values import Counted

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.discovery import ProvenLeader, Search
    from mingle_hooks.rendezvous.local_tasks import LocalPeers


# The observer of a rendezvous.


def _count(body: wire.Body, name: str) -> int | None:
    return wire.integer(body, name, 0, 10**6) or None  # 0: no member so far knows it


class Progress(NamedTuple):
    """The progress of the world, as last reported by its leader."""

    inside: Annotated[int, wire.Key("in"), wire.within(0, 10**6)]
    nodes: Annotated[int | None, wire.Key("of"), _count]
    missing: Annotated[str, wire.printable_text(400)]
    rejected: Annotated[tuple[Annotated[str, wire.printable_text(64)], ...], wire.Key("knocks"), wire.Most(64)] = ()


class Observer(Protocol):
    """Receives the reports for the user."""

    # Called with each line of --explain once the world has formed. None: without --explain.
    explain: Callable[[str], None] | None

    def progress(self, progress: Progress) -> None:
        """Report how many have checked in, about once a second."""

    def failed(self, error: MingleError) -> None:
        """Report why there is no world, as soon as rank 0 knows it, which stays to inform the others."""

    def note(self, text: str) -> None:
        """Report a message to the user."""


# The source of the number of slots.
SlotsFrom = Counted | Literal["--slots", "LOCAL_WORLD_SIZE", "default"]


class MemberSpec(NamedTuple):
    """One call of mingle: the job's facts, completed by the user's settings."""

    settings: Settings
    facts: JobFacts
    user_environ: Mapping[str, str]  # the user's environment
    attempt: Attempt
    nodes: int | None
    nodes_source: str
    rank: int | None
    rank_source: str  # --rank, NODE_RANK, or a scheduler's variable
    slots: int
    slots_from: SlotsFrom
    pinned: Mapping[str, str]
    binding: GpuBinding | None

    @property
    def node(self) -> str:
        """The name of this node among those that may share its directories, the same for all of its tasks.

        The scheduler's own name is the same in every container of the job, whatever its host name or network.
        """
        return self.facts.host or machine_id()

    @property
    def certain_rank(self) -> int | None:
        """The node rank in the world, if it is known before the world forms: --order may assign another."""
        return self.rank if self.settings.order == "scheduler" else None

    @property
    def is_shared(self) -> bool:
        """Whether several tasks on this node share one member's answer."""
        return self.settings.scope == "task" and (self.facts.local_count or 1) > 1

    @property
    def hosts(self) -> tuple[str, ...]:
        """The scheduler's hosts if these are the members, else ()."""
        return self.facts.hosts if len(self.facts.hosts) == self.nodes else ()

    @property
    def trusts_addr(self) -> bool:
        """Whether MASTER_ADDR need not be rank 0's own address: --master names it too, or a service fronts a pod."""
        return self.settings.master is not None or bool(self.user_environ.get("KUBERNETES_SERVICE_HOST"))

    @property
    def exported(self) -> str:
        """The exported variable, if any, that makes this member look for rank 0 elsewhere."""
        if "MASTER_ADDR" in self.pinned:
            return "MASTER_ADDR"
        return "NODE_RANK" if self.rank_source == "NODE_RANK" else ""

    @property
    def expected_leader(self) -> str:
        """The expected place of rank 0, which messages put after "rank 0"."""
        if "MASTER_ADDR" in self.pinned:
            return f" ({self.pinned['MASTER_ADDR']}, from the exported MASTER_ADDR)"
        if self.facts.leader_hosts:
            return f" ({self.facts.leader_hosts[0]})"
        return f" (this is rank {self.rank}, from the exported NODE_RANK)" if self.exported else ""


class Request(NamedTuple):
    """One member's request: the call's spec, the key, this node, and what else its rendezvous needs."""

    spec: MemberSpec
    key: Material
    host: str
    machine: str
    timeout_s: float
    key_from: str = ""  # for a message
    wants_roster: bool = False
    age_s: float = 0.0  # of this process
    # Returns this node's fingerprint and addresses, once the search for others has begun.
    node_facts: Callable[[], tuple[str, str]] | None = None
    obstacle: Failure | None = None  # why this node, or one of its tasks, cannot start the command
    local_peers: LocalPeers | None = None  # this node's other tasks, without which it is no member
    held: list[socket.socket] | None = None  # gets rank 0's sockets that hold MASTER_PORT; None: they are closed


def join_request(request: Request) -> JoinRequest:
    """Return this member's check-in. Raises UsageError if no leader would accept it."""
    spec = request.spec
    member, topology = os.urandom(messages.MEMBER_BYTES), switches_above(spec.settings.order, spec.user_environ)
    me = JoinRequest(member, request.host, spec.rank, spec.nodes, spec.slots, request.machine, spec.pinned)
    me = me._replace(wants_roster=request.wants_roster, topology=topology, obstacle=request.obstacle)
    try:
        wire.parse(JoinRequest, me.body())
    except wire.WireError as error:
        seen = f"{error} (host {request.host}, slots {spec.slots})"
        raise UsageError("a valid check-in", seen, "correcting hostname, --slots, --nodes or --rank") from None
    return me


# A probe of one address that a leader offers.

# Seconds until a probe is repeated: TCP repeats its first packet after one. The pause doubles each time: if the leader
# is slow, with thousands of connections, further ones keep it slow.
PROBE_AGAIN_S, PROBE_SELDOM_S = 2.0, 16.0


class Probe:
    """Connects to one offered address until the leader answers there, which proves that this member can reach it.

    It counts once the leader has closed the connection. The side that closes first holds the port in TIME_WAIT, and
    that has to be the leader's host, where the kernel then gives the world's port to no other program.
    """

    def __init__(self, membership: Membership, offer: int, address: str, port: int) -> None:
        self._membership, self._offer, self.address, self._port = membership, offer, address, port
        self._connection: Connection | None = None
        self.own_address = ""  # this side's address, once the leader has proved itself
        self._nonce = b""
        self._again_s = PROBE_AGAIN_S
        self._timer = Timer()

    @property
    def connected(self) -> str:
        """The address, while a connection is established and not answered yet, else empty."""
        return self.address if self._connection is not None and self._connection.is_connected else ""

    def start(self) -> None:
        """Connect now, and again until the leader answers."""
        self.close()
        loop = self._membership.loop
        self._timer = loop.after(self._again_s, self.start)
        self._again_s = min(2 * self._again_s, PROBE_SELDOM_S)
        try:
            self._connection = Connection(loop, dial(self.address, self._port), self._frame, self._ended)
        except OSError as error:  # such as no route: the next attempt may find one
            loop.missed(error)
            return
        self._nonce, self.own_address = os.urandom(wire.NONCE_BYTES), ""
        at = wire.dialled(self.address, self._port).encode()
        proof = self._membership.secret.mac(b"verify", self._nonce, self._membership.proven.leader, at)
        body = {"tag": self._membership.attempt.tag.hex(), "nonce": self._nonce.hex(), "proof": proof.hex()}
        self._connection.send(wire.frame(wire.VERIFY, wire.encode(body)))

    def close(self) -> None:
        """Stop probing."""
        self._timer.cancel()
        if self._connection is not None:
            self._connection.close()

    def _frame(self, kind: int, payload: bytes) -> None:
        proof = wire.hexadecimal(wire.decode(payload), "proof", wire.MAC_BYTES)
        connection = self._connection
        if connection is None or kind != wire.VERIFIED or self.own_address:
            raise wire.WireError("not an answer")
        if not self._membership.secret.agrees(proof, b"verified", self._nonce):
            raise wire.WireError("not our leader")
        self.own_address = connection.own_address()

    def _ended(self, _reason: str) -> None:
        if self.own_address:
            self.close()
            self._membership.answered(self._offer, self)


# One check-in with a leader, from WELCOME to COMMIT.

# Seconds between the probes of the best address and of the next one, unless a connection to one that may serve all is
# established by then: some round trips of the longest path.
PROBE_NEXT_S = 0.25
# Frames of a leader that has not sent COMMIT, and has to renew every member's lease before it may.
_NOT_COMMITTED = (wire.WELCOME, wire.PROGRESS, wire.FAILED, wire.MOVED)


class _Offer(NamedTuple):
    number: Annotated[int, wire.within(0, 255)]
    address: Annotated[str, wire.address]


class _Welcome(NamedTuple):
    """The leader's addresses to probe, and the port."""

    offers: Annotated[tuple[_Offer, ...], wire.Most(wire.MOST_ADVERTISED)]
    port: Annotated[int, wire.within(1, 65535)]


class _MovedTo(NamedTuple):
    address: Annotated[str, wire.address]
    port: Annotated[int, wire.within(1, 65535)]


class _Moved(NamedTuple):
    """The addresses of the better candidate."""

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
        self.loop, self.attempt, self.secret = loop, attempt, secret
        self.proven, self.me, self._accepts, self._on_change = proven, me, accepts, on_change
        self._time_left_s = time_left_s
        self.lease_ends = loop.clock()
        self.state: MembershipState = "waiting"
        self.is_free = False  # the leader has not sent COMMIT, and must renew the lease before it may
        self.progress: Progress | None = None
        self.failure: Failure | None = None
        self.failed_ago_s = 0.0
        self.answer: Answer | None = None
        self.moved_to: list[_MovedTo] = []
        self._packed = b""
        self._probes: list[Probe] = []
        self._untried: list[Probe] = []
        self._next = Timer()  # not set: all are probed, or the others are not needed
        self._needs_all = False  # all have checked in, and some have not reached the best address
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
        """Tell the leader of another leader by right."""
        self._send(wire.RIVAL, {"host": host[: messages.LONGEST_PART], "member": member.hex()})

    def hang_up(self) -> None:
        """End this connection, as if the leader had."""
        self._ended("hung up")

    def close(self) -> None:
        """Close the connection and all probes."""
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
            self._packed = payload  # the answer holds its digest
            return
        body = self.proven.sealer.open(kind, payload)
        # The roster has no MAC but this digest: if it was changed on the way, only the connection ends.
        if kind == wire.ANSWER and "roster" in body and messages.roster_digest(self._packed) != body["roster"]:
            raise wire.WireError("roster: not the one of this answer")
        try:
            self._handle(kind, body)
        except wire.WireError as error:  # the leader holds the key: it would send the same again
            self.failure = Failure("protocol", (self.proven.label, str(error)))
            self._settle("failed")

    def _handle(self, kind: int, body: wire.Body) -> None:
        self.is_free = self.is_free or kind in _NOT_COMMITTED
        if kind == wire.WELCOME:
            self._welcome(body)
        elif kind == wire.PROGRESS:
            self._progress(body)
        elif kind == wire.ANSWER:
            if "roster" in body:
                body = {**body, "roster": messages.unpack_roster(self._packed)}
            self.answer, self.state, self._packed = messages.parse_answer(body), "ready", b""
            self.is_free = False
            self._promise(self.answer["epoch"])
        elif kind in (wire.HOLD, wire.COMMIT):
            self._hold_or_commit(kind, wire.integer(body, "epoch", 1, messages.LAST_EPOCH))
        elif kind == wire.FAILED:
            self.failure, self.failed_ago_s = Failure.parse(body), messages.age_s(body)
            self._settle("failed")
        elif kind == wire.MOVED:
            self.moved_to = list(wire.parse(_Moved, body).to)
            self._settle("moved")
        else:
            raise wire.WireError("not a leader's frame")

    def _welcome(self, body: wire.Body) -> None:
        welcome = wire.parse(_Welcome, body)
        if self._probes:
            raise wire.WireError("a second welcome")
        self._probes = [Probe(self, offer, address, welcome.port) for offer, address in welcome.offers]
        self._untried = list(self._probes)
        self._try_next()
        self._on_change()

    def _progress(self, body: wire.Body) -> None:
        # A leader sends this only while it gathers: an earlier answer is void.
        self.state, self.answer = "waiting", None
        self.progress = wire.parse(Progress, body)
        if self.progress.inside == self.progress.nodes and not self._needs_all:
            self._needs_all = True
            self._next.cancel()
            self._try_next()
        self._on_change()

    def _hold_or_commit(self, kind: int, epoch: int) -> None:
        if self.answer is None or epoch != self.answer["epoch"]:
            raise wire.WireError("a lease, or a commit, for another answer")
        if kind == wire.HOLD:
            self._promise(epoch)
        else:
            self._send(wire.DONE, {})
            self._settle("formed")

    def _promise(self, epoch: int) -> None:
        """Promise to wait for COMMIT, and send the length of the lease."""
        lease_s = max(min(messages.LEASE_S, self._time_left_s()), 0.0)
        self.lease_ends = self.loop.clock() + lease_s
        self._send(wire.READY, {"epoch": epoch, "lease_ms": int(lease_s * 1000)})
        self._on_change()

    # The probes of the offered addresses.

    def _try_next(self) -> None:
        if self._untried:
            self._next = self.loop.after(PROBE_NEXT_S, self._try_next)
            # A leader with thousands of connections answers slowly, and more connections would make it slower.
            if self._needs_all or not any(self._may_serve_all(probe.connected) for probe in self._probes):
                self._untried.pop(0).start()

    def _may_serve_all(self, address: str) -> bool:
        """Return whether the world may use this address: loopback serves the members of one machine only."""
        return bool(address) and not is_loopback(address)

    def answered(self, offer: int, probe: Probe) -> None:
        """Stop probing worse addresses, unless other members cannot reach this one."""
        if self.reached(offer, probe.own_address) and not self._needs_all and self._may_serve_all(probe.address):
            self._next.cancel()

    def reached(self, offer: int, own_address: str) -> bool:
        """Report a reached address to the leader, and return whether this member's own address may be used."""
        if not self._accepts(own_address):
            return False
        self._send(wire.REACHED, {"offer": offer, "own": own_address})
        return True


# The follower: a member stays with its leader, returns to it, or joins another one, and keeps its leases.

# A member waits so many seconds past its deadline for its leader to report the reason.
GOODBYE_S = 2.0
# A lost leader is dialled again after so many seconds: it may have lost only this connection.
CALL_AGAIN_S = 0.2
# Seconds between further calls by a member that has promised to wait for COMMIT.
ASK_AGAIN_S = 1.0
# So many seconds before its lease ends, a member without COMMIT dials its leader again. A leader sends COMMIT only if
# leases last longer (COMMIT_DELIVERY_S), so it has been sent by then, or will not be.
ASK_BEFORE_S = 4.0


class Promise(NamedTuple):
    """A promise to wait for one leader's COMMIT, and no other's, until a time by this member's clock."""

    leader: bytes
    ends: float


class Follower:
    """Follows at most one leader at a time; the owner calls close().

    `look_again()` restarts the member's search for a leader, and `leads()` is whether other members follow this one.
    """

    def __init__(
        self,
        loop: Loop,
        request: Request,
        secret: Secret,
        me: JoinRequest,
        search: Search,
        outcome: Outcome,
        look_again: Callable[[], None],
        leads: Callable[[], bool],
    ) -> None:
        self._loop, self._request, self._secret, self.me = loop, request, secret, me
        self._search, self._outcome, self._look_again, self._leads = search, outcome, look_again, leads
        self.membership: Membership | None = None
        self.progress: Progress | None = None  # as last reported by a leader
        self.promise: Promise | None = None
        self.is_late = False  # it leaves soon, and gives no lease
        self._is_passing_over = False

    @property
    def precedence(self) -> tuple[int, bytes] | None:
        """The precedence of the joined leader, None without one."""
        return self.membership.proven.precedence if self.membership is not None else None

    def close(self) -> None:
        """Leave the leader."""
        if self.membership is not None:
            self.membership.close()

    def meet(self, proven: ProvenLeader) -> bool:
        """Return whether to join this leader: if not, it is dropped; if so, any other one has been left."""
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
        """Return whether this member stays with its leader, though another one, or the same, has been found.

        It does once it waits for COMMIT, even if it has only just returned to that leader, which may still send COMMIT
        by the earlier lease. A leader that has failed meanwhile has a worse precedence than before, and is the same.
        """
        awaits = membership.state == "ready" or self.bound_to() is not None
        return awaits or proven.leader == membership.proven.leader or proven.precedence >= membership.proven.precedence

    def join(self, proven: ProvenLeader) -> None:
        """Check in with this leader."""
        me = self.me._replace(spent=self._outcome.durations())
        calls = self._accepts, lambda: 0.0 if self.is_late else self._outcome.left_s(), self._changed
        self.membership = Membership(self._loop, self._request.spec.attempt, self._secret, proven, me, *calls)

    def give_up(self) -> None:
        """Tell the leader that this member's time is over, and wait a little for the reason that all members get."""
        self.is_late = True
        if self.membership is None:
            self._outcome.fail(self._unanswered())
            return
        self.membership.give_up(self._outcome.waited_s())
        # The leader now sends all members the same reason; if the leader is gone, this member's own serves.
        self._loop.after(GOODBYE_S, lambda: self._outcome.fail(self._unanswered()))

    def fail(self, failure: Failure) -> None:
        """Tell the leader why there can be no world, and end, not before the lease: COMMIT may be under way."""
        self.is_late = True
        if self.membership is not None:
            self.membership.fail(failure)
        bound_s = self.promise.ends - self._loop.clock() if self.promise is not None else 0.0
        self._outcome.fail(failure.error(), max(bound_s, GOODBYE_S if self.membership is not None else 0.0))

    def bound_to(self) -> bytes | None:
        """Return the one leader that knows whether the world has formed, once this member has promised to wait.

        The leader relies on the promise only until the lease ends. But even later a member without COMMIT cannot know
        that it was not sent, so it joins no other leader's world: of two worlds, one would be wrong.
        """
        return self.promise.leader if self.promise is not None else None

    def _accepts(self, own_address: str) -> bool:
        """Return whether this member's own address is on a network of --iface."""
        prefer = self._request.spec.settings.iface
        return not prefer or is_preferred(own_address, prefer)

    def _changed(self) -> None:
        membership = self.membership
        if membership is None:
            return
        if membership.progress is not None:
            self.progress = membership.progress
            self._search.reject(membership.progress.rejected)
        if membership.state == "ready":
            self._promised(Promise(membership.proven.leader, membership.lease_ends))
        elif membership.is_free:
            self.promise = None
        if membership.state == "formed" and membership.answer is not None:
            self._outcome.form(membership.answer)
        elif membership.state == "failed" and membership.failure is not None:
            if self._outcome.is_before(membership.failed_ago_s):
                self._pass_over(membership, membership.failure)
            else:
                expected = membership.failure.error()
                error = self._search.with_local_faults(expected)
                error.repeats_rank_0 = str(error) == str(expected)
                self._outcome.fail(error)
        elif membership.state in ("moved", "lost"):
            self.membership = None
            self._seek_again(membership)

    def _promised(self, promise: Promise) -> None:
        if promise == self.promise:
            return
        self.promise = promise
        left_s = promise.ends - self._loop.clock()
        if left_s > messages.COMMIT_DELIVERY_S:  # with less the leader does not send COMMIT
            self._loop.after(left_s - ASK_BEFORE_S, lambda: self._doubt(promise))

    def _doubt(self, promise: Promise) -> None:
        """Return to the leader while it still answers: COMMIT may be lost on a connection that is half open."""
        membership, left_s = self.membership, promise.ends - self._loop.clock()
        is_late = left_s < ASK_BEFORE_S - 1  # this host was suspended: COMMIT may be there, and not read yet
        if self.promise is promise and membership is not None and membership.state == "ready" and not is_late:
            membership.hang_up()

    # After the loss of a leader.

    def _pass_over(self, membership: Membership, failure: Failure) -> None:
        """Pass over a leader that had failed before this process began: an earlier run's, or this member is late.

        It is late if no other leader appears while the failed one stays to inform all members.
        """
        self.membership = None
        self._search.back_off(membership.proven.endpoint, messages.LINGER_S / 2)
        self._look_again()
        if not self._is_passing_over:
            self._is_passing_over = True
            self._loop.after(messages.LINGER_S, lambda: self._was_late(failure))

    def _was_late(self, failure: Failure) -> None:
        is_bound = self.bound_to() is not None  # it has lost its connection, and asks for COMMIT
        if self.membership is None and not self._leads() and not is_bound and self._outcome.answer is None:
            error = failure.error()
            error.repeats_rank_0 = True
            self._outcome.fail(error)

    def _seek_again(self, membership: Membership) -> None:
        endpoint = membership.proven.endpoint
        self._search.back_off(endpoint, CALL_AGAIN_S)
        if self.bound_to() is not None:
            # The others may already have the world, so only this leader may be asked.
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
        """Dial a leader that was lost after its answer, until it sends COMMIT or this member's time is over."""
        if self.membership is not None or self._outcome.is_over:
            return
        if self.bound_to() is not None:
            self._search.back_off(endpoint, 0.0)  # whatever the last answer was
            self._search.dial(endpoint)
            self._loop.after(ASK_AGAIN_S, lambda: self._ask(endpoint))
        elif self.is_late:
            self._outcome.fail(self._unanswered())
        else:
            self._call_again(endpoint)
            self._look_again()

    def _unanswered(self) -> MingleError:
        after_s = self._outcome.waited_s()
        if self.membership is None:
            return self._search.no_leader(after_s)
        label = self.membership.proven.label
        if self.membership.state == "ready":
            expected, seen = f"rank 0, {label}, to commit the world", "no commit, though this member had confirmed"
        else:
            missing = f", missing {self.progress.missing}" if self.progress is not None else ""
            expected, seen = f"an answer from rank 0, {label},", f"none{missing}"
        return self._search.with_local_faults(MissingError(f"{expected} within {after_s} s", seen, messages.CHECK_HOST))
