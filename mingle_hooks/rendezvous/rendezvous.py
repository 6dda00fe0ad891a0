"""One attempt from beginning to end: stand as its leader or find it, and come back with a world or an error."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address
from types import TracebackType
from typing import NamedTuple

from mingle_hooks import files
from mingle_hooks.errors import LIMITS, LimitError, NetworkError, Shortage
from mingle_hooks.net import addresses, ports
from mingle_hooks.rendezvous import report, wire
from mingle_hooks.rendezvous.connection import RESOLVE_S, Loop, boottime, is_local, resolve
from mingle_hooks.rendezvous.dialer import ProvenLeader, Search
from mingle_hooks.rendezvous.discovery import BACKENDS, Advertisement
from mingle_hooks.rendezvous.leader import Leader
from mingle_hooks.rendezvous.member import GOODBYE_S, Follower, Observer, Progress, Request, join_request
from mingle_hooks.rendezvous.messages import LINGER_S, Answer, Deadline, Failure, JoinRequest, Outcome, Stopwatch
from mingle_hooks.rendezvous.roster import AdvertisedAddress, Roster, Terms, not_own
from mingle_hooks.rendezvous.wire import MASTER_PORTS, MOST_ADVERTISED, Secret, check_in_ports
from mingle_hooks.schedulers.facts import MOST_NODES

# The leader's listening sockets: where members check in, and the port that the world will use.


class Listeners:
    """Open listeners, IPv4 and IPv6 on the same port; close() them, unless a leader has taken them over.

    With `hold` the connections that the leader closes keep the world's port, for a minute, from whoever binds without
    SO_REUSEADDR.
    """

    def __init__(self, *, hold: bool = True) -> None:
        self._hold = hold
        self.sockets: list[socket.socket] = []
        self.check_in: list[int] = []
        self.master = 0

    def open_check_in(self, choices: Iterable[Iterable[int]]) -> None:
        """Open the first free port of each group; none is needed, for beacons tell the port too.

        One that is merely in TIME_WAIT is second best. It may be kept for another world's program, but an earlier run,
        or a stranger that eight octets sufficed to turn away, leaves all of them so for a minute.
        """
        for group in choices:
            for port, reuse in [*((port, False) for port in group), *((port, True) for port in group)]:
                if port in self.check_in or self._open(port, reuse=reuse):
                    self.check_in = [*dict.fromkeys([*self.check_in, port])]
                    break

    def open_named(self, port: int) -> None:
        """Open a port that a person named, for members and for the world; NetworkError when it is taken."""
        # A person who names a port runs twice within a minute: take it while the last run's is in TIME_WAIT.
        if port not in self.check_in and not self._open(port, reuse=True, hold=self._hold):
            seen = f"it in use{ports.over([port])}"
            raise NetworkError(f"port {port} free on this host, rank 0", seen, "another port, or leaving it out")
        self.master = port

    def open_master(self, secret: Secret, port_range: range) -> None:
        """Open a free port for the world to use; NetworkError when the range is full."""
        first = ports.candidates(secret.master_seed, MASTER_PORTS, port_range)
        for port in dict.fromkeys((*first, *port_range)):
            if port not in self.check_in and self._open(port, reuse=False, hold=self._hold):
                self.master = port
                return
        raise NetworkError(
            f"a free port in {port_range.start}-{port_range.stop - 1} on this host, rank 0",
            f"all {len(port_range)} are taken{ports.over(port_range)}",
            "a wider --port-range, or ending what listens there (see `ss -tan`)",
        )

    def close(self) -> None:
        """Close what is open."""
        for listener in self.sockets:
            listener.close()

    def _open(self, port: int, *, reuse: bool, hold: bool = True) -> bool:
        """Listen on a port in both families, or in neither."""
        four = ports.bound("0.0.0.0", port, reuse=reuse, hold=hold)  # noqa: S104 - members come over any network
        if four is None:
            return False
        self.sockets.append(four)  # owned before anything else can fail
        if ports.has_ipv6():
            six = ports.bound("::", port, reuse=reuse, hold=hold)
            if six is None:
                self.sockets.pop().close()
                return False
            self.sockets.append(six)
        return True


# To stand as leader: open the listeners, work out what to offer, and begin to serve.

# Hosts that are looked up to see whether this is one of them.
MOST_NAMED = 8
# Descriptors that a leader needs besides four per member: one that checks in, others that try addresses.
SPARE_DESCRIPTORS = 512
# Connections without proof kept at once; the oldest goes first. Above the largest world that arrives at once,
# and, below, what a leader always keeps for its own calls and files, whoever knocks.
MOST_STRANGERS, FEWEST_STRANGERS, OWN_DESCRIPTORS = 16_384, 64, 128


class Candidate(NamedTuple):
    """A member that leads, or would."""

    leader: Leader
    advertisement: Advertisement
    no_network: NetworkError | None  # why this host can offer nothing to other hosts, where it cannot
    limits: tuple[int, int]  # of open files, as its user had them

    def close(self, held: list[socket.socket] | None = None) -> None:
        """Let go of every socket, and of the higher limit: what `mingle exec` becomes must find its user's.

        `held` gets the sockets that keep a formed world's port; its owner closes them.
        """
        if held is not None and self.leader.state == "formed":
            held += self.leader.acceptor.callers.hand_over(self.leader.terms.port)
        self.leader.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, self.limits)


def stand_as_candidate(
    loop: Loop, request: Request, secret: Secret, me: JoinRequest, on_change: Callable[[], None]
) -> Candidate | None:
    """Return the leader that this member is or may become, None where it can be neither. Raises NetworkError."""
    if request.rank or (request.rank is None and not _may_lead_here(request)):
        return None
    opened = Listeners(hold=request.port_hold)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        # First of all: whoever dials from now on waits in the kernel, and not for the time of its next try.
        if not _open(opened, request, secret):
            opened.close()
            return None
        if not opened.check_in:
            loop.missed(_no_port(request, secret))

        own, no_network = _own_addresses(request)
        what, failure = (own, None) if "MASTER_ADDR" not in request.pinned else _named_addresses(request)
        ticket = 0 if request.rank == 0 else max(1, int.from_bytes(os.urandom(8), "big") >> 1)
        terms = Terms(what, opened.master, ticket)
        world = {name: value for name, value in me.pinned.items() if name != "NODE_RANK"}
        roster = Roster(me._replace(pinned=world), request.hosts, by_switch=request.orders_by_switch)
        most_strangers = _allow_open_files(request.nodes)
        leader = Leader(loop, request.attempt, secret, roster, me, terms, opened.sockets, on_change, most_strangers)
        if "NODE_RANK" in me.pinned:
            failure = Failure("node_rank", (me.pinned["NODE_RANK"], str(me.rank), me.host))
        if failure is not None:  # the leader stays to tell the others, and not to wait for them
            loop.after(0.0, lambda: leader.fail(failure))
    except BaseException:
        opened.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        raise
    addresses = tuple(offer.address for offer in own if not offer.loopback) or tuple(o.address for o in own)
    ports = tuple(opened.check_in) or (opened.master,)
    advertisement = Advertisement(me.member, terms.ticket, addresses, ports)
    return Candidate(leader, advertisement, no_network, limits)


def _allow_open_files(nodes: int | None) -> int:
    """Allow as many open files as a leader of N members needs; return how many strangers may hold one."""
    left = files.raise_open_files_limit(4 * (nodes or MOST_NODES) + SPARE_DESCRIPTORS) - (nodes or 0) - OWN_DESCRIPTORS
    return max(FEWEST_STRANGERS, min(left, MOST_STRANGERS))


def _named_hosts(request: Request) -> tuple[str, ...]:
    """Return the hosts where the others look for a leader, where a person or the scheduler named some."""
    if request.master is not None:
        return (request.master[0],)
    return request.leader_hosts[:MOST_NAMED] if any(BACKENDS[name].asks_named_hosts for name in request.via) else ()


def _may_lead_here(request: Request) -> bool:
    """Tell whether the others would find a leader here: in an election all have to find all candidates.

    Where the scheduler names hosts that nobody can look up, every member stands, for other backends to find it.
    """
    addr = request.pinned.get("MASTER_ADDR")
    if addr is not None and not request.trusts_addr:
        exported = resolve(addr, min(RESOLVE_S, request.timeout_s))
        return not exported or any(is_local(address) for address in exported)
    named = _named_hosts(request)
    found = [a for host in named for a in resolve(host, min(RESOLVE_S, request.timeout_s) / len(named))]
    return any(is_local(a) for a in found) or (request.master is None and not found)


def _own_addresses(request: Request) -> tuple[tuple[AdvertisedAddress, ...], NetworkError | None]:
    own, no_network = advertised_addresses(request.prefer, request.environ)
    if no_network is not None and (len(set(request.hosts)) > 1 or not own) and "MASTER_ADDR" not in request.pinned:
        raise no_network
    return own, no_network


def _named_addresses(request: Request) -> tuple[tuple[AdvertisedAddress, ...], Failure | None]:
    """Return the addresses of the exported MASTER_ADDR, and what is wrong where none is this host's, rank 0's."""
    addr = request.pinned["MASTER_ADDR"]
    found = addresses_of_name(addr, min(RESOLVE_S, request.timeout_s))
    if request.trusts_addr and found:
        return found, None
    others = [offer for offer in found if not offer.loopback]
    if others:
        is_own = request.rank is None or any(is_local(offer.address) for offer in others)
    else:
        is_own = bool(found) and len(set(request.hosts)) < 2  # noqa: PLR2004 - one host, as far as is known
    return found, None if is_own else not_own(addr, request.host, found)


def _open(opened: Listeners, request: Request, secret: Secret) -> bool:
    """Open the listeners; False where other members on this host already stand at the ports where it is looked for."""
    check_in = request.master[1] if request.master is not None else None
    master = request.pinned.get("MASTER_PORT")
    try:
        if check_in is not None:
            opened.open_named(check_in)
            opened.check_in = [check_in]
        if master is not None:
            opened.open_named(int(master))
    except NetworkError:
        if request.rank == 0:
            raise
        return False
    if check_in is None:
        opened.open_check_in(check_in_ports(request.attempt, secret, request.port_range))
        if not opened.check_in and request.rank is None and _named_hosts(request):
            return False  # there are candidates enough on this host, and nobody would find this one
    if master is None and check_in is None:
        opened.open_master(secret, request.port_range)
    return True


def _no_port(request: Request, secret: Secret) -> LimitError:
    """Return what is wrong, should somebody be missing: who only tries the check-in ports does not come."""
    first, second = check_in_ports(request.attempt, secret, request.port_range)
    return LimitError(Shortage("doors", f"all check-in ports are taken: {', '.join(map(str, first + second))}"))


def advertised_addresses(
    prefer: Sequence[addresses.Preference], environ: Mapping[str, str]
) -> tuple[tuple[AdvertisedAddress, ...], NetworkError | None]:
    """Return what this host can offer, and why that is nothing for other hosts, where it is.

    Loopback comes first, for where all members are on this host it is the surest; it counts only then. Where
    networks were asked for it has to be one of them. `environ` is the user's, for what NCCL was told.
    """
    found = addresses.interfaces()
    why: NetworkError | None = None
    usable: tuple[addresses.UsableAddress, ...] = ()
    try:
        usable = addresses.usable(found, prefer=prefer, environ=environ)
    except NetworkError as error:
        why = error
    own = [
        AdvertisedAddress(str(address.ip), loopback=True)
        for interface in found
        for address in interface.addresses
        if address.ip.is_loopback and interface.up
        if not prefer or any(preference.matches(interface, address) for preference in prefer)
    ]
    return (*own[:2], *(AdvertisedAddress(one.host, why=one.why) for one in usable))[:MOST_ADVERTISED], why


def addresses_of_name(master_addr: str, timeout_s: float) -> tuple[AdvertisedAddress, ...]:
    """Return the addresses of the MASTER_ADDR that the user exported, none where it cannot be looked up."""
    addresses = resolve(master_addr, timeout_s)
    loopback = [ip_address(host.partition("%")[0]).is_loopback for host in addresses]
    return tuple(map(AdvertisedAddress, addresses, loopback))[:MOST_ADVERTISED]


# The attempt.

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
        self._stand()
        self._search.open(self._request.via)
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
            report.note_by_leader(leader, self._request, self._observer, answer["at"])
        elif self._observer.tell is not None:
            report.note_by_member(membership, self._observer)
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
        me = self._me._replace(spent=self._stopwatch.durations(0.0))
        self._candidate = stand_as_candidate(self._loop, self._request, self._secret, me, self._leader_changed)
        if self._candidate is not None:
            leader = self._candidate.leader
            leader.choice.is_alone, leader.one_way = self._search.is_alone, self._search.one_way
            if self._request.strict:
                leader.choice.refuses = lambda offer: report.refuse_different_nodes(leader, self._request, offer)

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
