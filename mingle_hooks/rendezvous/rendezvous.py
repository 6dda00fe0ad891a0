"""One attempt from beginning to end: lead it or find its leader, and return a world or an error."""

from __future__ import annotations

import os
import resource
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from mingle_hooks import files
from mingle_hooks.errors import LIMITS, LimitError, NetworkError, Shortage
from mingle_hooks.net import addresses
from mingle_hooks.net.addresses import list_entries, read_attribute, rows
from mingle_hooks.rendezvous import report, wire
from mingle_hooks.rendezvous.connection import RESOLVE_S, Loop, boottime, is_local, resolve
from mingle_hooks.rendezvous.discovery import BACKENDS, Advertisement, ProvenLeader, Search
from mingle_hooks.rendezvous.leader import Leader
from mingle_hooks.rendezvous.member import GOODBYE_S, Follower, MemberSpec, Observer, Progress, Request, join_request
from mingle_hooks.rendezvous.messages import LINGER_S, Answer, Failure, JoinRequest, Outcome
from mingle_hooks.rendezvous.roster import AdvertisedAddress, Roster, Terms, not_own
from mingle_hooks.rendezvous.wire import MASTER_PORTS, MOST_ADVERTISED, Secret, check_in_ports
from mingle_hooks.schedulers.facts import MOST_NODES, SCHEDULER

# The leader's listening sockets: the ports where members check in, and the port of the world.


class Listeners:
    """Listeners, IPv4 and IPv6 on the same port; the owner calls close(), unless a leader has taken them over.

    With `hold` the connections that the leader closes protect the world's port, for a minute, from other programs that
    bind without SO_REUSEADDR.
    """

    def __init__(self, *, hold: bool = True) -> None:
        self._hold = hold
        self.sockets: list[socket.socket] = []
        self.check_in: list[int] = []
        self.master = 0

    def open_check_in(self, choices: Iterable[Iterable[int]]) -> None:
        """Open the first free port of each group; none is required, as beacons announce the port too.

        A port in TIME_WAIT is second best. It may be held for another world's program, but an earlier run, or a
        stranger that was turned away, leaves all of them so for a minute.
        """
        for group in choices:
            for port, reuse in [*((port, False) for port in group), *((port, True) for port in group)]:
                if port in self.check_in or self._open(port, reuse=reuse):
                    self.check_in = [*dict.fromkeys([*self.check_in, port])]
                    break

    def open_named(self, port: int) -> None:
        """Open the port that the user named, for members and for the world. Raises NetworkError if it is in use."""
        # A user may run twice within a minute, while the port of the last run is in TIME_WAIT.
        if port not in self.check_in and not self._open(port, reuse=True, hold=self._hold):
            seen = f"it in use{addresses.time_wait_text([port])}"
            raise NetworkError(f"port {port} free on this host, rank 0", seen, "another port, or leaving it out")
        self.master = port

    def open_master(self, secret: Secret, port_range: range) -> None:
        """Open a free port for the world. Raises NetworkError if none of the range is free."""
        first = addresses.candidates(secret.master_seed, MASTER_PORTS, port_range)
        for port in dict.fromkeys((*first, *port_range)):
            if port not in self.check_in and self._open(port, reuse=False, hold=self._hold):
                self.master = port
                return
        own = sum(port in self.check_in for port in port_range)
        by_own = f", {own} of them for check-in" if own else ""
        raise NetworkError(
            f"a free port in {port_range.start}-{port_range.stop - 1} on this host, rank 0",
            f"all {len(port_range)} are taken{by_own}{addresses.time_wait_text(port_range)}",
            "a wider --port-range, or ending what listens there (see `ss -tan`)",
        )

    def close(self) -> None:
        """Close all listeners."""
        for listener in self.sockets:
            listener.close()

    def _open(self, port: int, *, reuse: bool, hold: bool = True) -> bool:
        """Listen on a port in both families, or in neither, and return whether it could."""
        four = addresses.bound("0.0.0.0", port, reuse=reuse, hold=hold)  # noqa: S104 - members come over any network
        if four is None:
            return False
        self.sockets.append(four)  # owned before anything else can fail
        if socket.has_dualstack_ipv6():
            six = addresses.bound("::", port, reuse=reuse, hold=hold)
            if six is None:
                self.sockets.pop().close()
                return False
            self.sockets.append(six)
        return True


# Which limits of this host are too low for a leader of N members: it cannot hold them, or some come later.

# Smaller worlds are below the lowest defaults, 1,024 open files and neighbours: nothing is read for them.
FEW_NODES = 1000
# Descriptors that a leader needs besides one per member: for its probes of addresses, its files, and strangers.
SPARE_DESCRIPTORS = 512
OPEN_FILES = "ulimit -Hn"
FILES, BACKLOG, SYN_BACKLOG, SYN_COOKIES, NEIGHBOURS, TRACKED = _SYSCTLS = (
    "fs.file-max",
    "net.core.somaxconn",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.neigh.default.gc_thresh3",
    "net.netfilter.nf_conntrack_max",
)
# The leader accepts connections while others come: 16,384 at once formed a world in 7.4 s with a queue of 4,096.
MEMBERS_PER_QUEUE_ENTRY = 4
# In a route's flags: it goes through a gateway (linux/route.h).
_GATEWAY = 2


class Limits(NamedTuple):
    """The limits of a leader's process, host and network namespace."""

    opened: int  # descriptors in use
    values: Mapping[str, int]  # of OPEN_FILES and sysctls, without those that this kernel or namespace does not have
    on_subnet: int  # hosts that the largest subnet of the leader's addresses can have


def shortfalls(nodes: int, limits: Limits) -> tuple[dict[str, int], dict[str, int]]:
    """Return the limits that are too low for a leader of N members, each with the value that suffices.

    With the first ones the leader cannot hold the world. With the others the kernel drops packets, which TCP repeats.
    """
    # One for each other member, and one for whoever connects next.
    descriptors, queue = nodes + limits.opened, nodes / MEMBERS_PER_QUEUE_ENTRY
    neighbours = min(nodes, limits.on_subnet)
    # Name -> the least value, and the one to advise.
    fatal = {OPEN_FILES: (descriptors, nodes + SPARE_DESCRIPTORS), FILES: (descriptors, 2 * nodes + SPARE_DESCRIPTORS)}
    slow = {BACKLOG: (queue, nodes), NEIGHBOURS: (neighbours, neighbours), TRACKED: (2 * nodes, 2 * nodes)}
    if limits.values.get(SYN_COOKIES) == 0:  # with cookies a full queue of SYNs drops none
        slow[SYN_BACKLOG] = (queue, nodes)

    def too_low(needs: Mapping[str, tuple[float, int]]) -> dict[str, int]:
        return {name: enough for name, (least, enough) in needs.items() if limits.values.get(name, least) < least}

    return too_low(fatal), too_low(slow)


class Capacity(NamedTuple):
    """How many members this host lets a leader hold, where that is fewer than N, and why there is no world then."""

    members: int
    failure: Failure


def check_limits(nodes: int, host: str, limits: Limits) -> tuple[Capacity | None, str | None]:
    """Return what the leader on this host can hold, if that is fewer than N, and the line about limits that delay."""
    fatal, slow = shortfalls(nodes, limits)
    held, warning = None, None
    if fatal:
        seen, remedies = _text(fatal, limits), ", and ".join(_remedy(name, enough) for name, enough in fatal.items())
        members = min(limits.values[name] for name in fatal) - limits.opened
        held = Capacity(members, Failure("limits", (str(nodes), host, seen, remedies)))
    if slow:
        seen, remedies = _text(slow, limits), ", ".join(_remedy(name, enough) for name, enough in slow.items())
        warning = f"{host}, rank 0's host, delays some of {nodes} nodes that connect at once ({seen}); try {remedies}"
    return held, warning


def _text(names: Iterable[str], limits: Limits) -> str:
    return ", ".join(f"{name} {limits.values[name]}" for name in names)


def _remedy(name: str, enough: int) -> str:
    """Return the command or setting that raises a limit."""
    if name != OPEN_FILES:
        return f"`sysctl -w {name}={enough}` there"
    return f"LimitNOFILE={enough} for the scheduler's daemon there, or `{OPEN_FILES} {enough}` as root"


def read_limits(addresses: Iterable[str], root: str = "/proc") -> Limits:
    """Return what matters for a leader that has these addresses."""
    texts = {name: read_attribute(f"{root}/sys/{name.replace('.', '/')}") for name in _SYSCTLS}
    values = {name: int(text) for name, text in texts.items() if text.isascii() and text.isdigit()}
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        values[OPEN_FILES] = hard
    return Limits(len(list_entries(f"{root}/self/fd")), values, _hosts_on_subnet(addresses, f"{root}/net/route"))


def _hosts_on_subnet(addresses: Iterable[str], path: str) -> int:
    """Return how many hosts the largest IPv4 subnet of these addresses can have, by the routes (proc(5))."""
    own = [int(found) for found in map(ip_address, addresses) if found.version == 4]  # noqa: PLR2004 - IPv4
    most = 0
    for fields in rows(path, 8):
        try:
            network, flags, mask = (int(fields[index], 16) for index in (1, 3, 7))
        except ValueError:  # the heading
            continue
        # Addresses are as in memory: their first byte is the lowest on a little-endian machine.
        network, mask = (int.from_bytes(value.to_bytes(4, sys.byteorder), "big") for value in (network, mask))
        if not flags & _GATEWAY and any(address & mask == network for address in own):
            most = max(most, (mask ^ 0xFFFFFFFF) - 1)
    return most


# A candidate: open the listeners, find the addresses to offer, and start to serve.

# Named hosts that are looked up to find whether this host is one of them.
MOST_NAMED = 8
# Descriptors that a leader would like for each member: one for its check-in, others for its probes of addresses.
DESCRIPTORS_PER_MEMBER = 4
# A candidate that cannot hold N members has a ticket above all others.
LAST_TICKETS = 1 << 62
# Connections without proof that are open at once; the oldest is dropped first. The most is the largest world, arriving
# at once; OWN_DESCRIPTORS are reserved for the leader's own calls and files.
MOST_STRANGERS, FEWEST_STRANGERS, OWN_DESCRIPTORS = 16_384, 64, 128


class Candidate(NamedTuple):
    """A member that leads, or may lead."""

    leader: Leader
    advertisement: Advertisement
    no_network: NetworkError | None  # why this host has no address for other hosts, if so
    limits: tuple[int, int]  # of open files, before they were raised
    warning: str | None  # about limits of this host that only delay members

    def close(self, held: list[socket.socket] | None = None) -> None:
        """Close every socket, and restore the limit of open files, which COMMAND of `mingle exec` must inherit.

        The sockets that hold a formed world's port are added to `held`, whose owner closes them.
        """
        if held is not None and self.leader.state == "formed":
            held += self.leader.acceptor.callers.hand_over(self.leader.terms.port)
        self.leader.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, self.limits)


def stand_as_candidate(
    loop: Loop, request: Request, secret: Secret, me: JoinRequest, on_change: Callable[[], None]
) -> Candidate | None:
    """Return the leader that this member is or may become, None if it can be neither. Raises NetworkError."""
    spec = request.spec
    if spec.rank or (spec.rank is None and not _may_lead_here(request)):
        return None
    opened = Listeners(hold=spec.settings.port_hold)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        # Listen first: members that dial from now on wait in the kernel instead of for their next attempt.
        if not _open(opened, spec, secret):
            opened.close()
            return None
        if not opened.check_in:  # members that try only the check-in ports find no leader: it is reported if any miss
            first, second = check_in_ports(spec.attempt, secret, spec.settings.port_range)
            taken = f"all check-in ports are taken: {', '.join(map(str, first + second))}"
            loop.missed(LimitError(Shortage("check-in ports", taken)))

        own, no_network = _own_addresses(spec)
        what, failure = (own, None) if "MASTER_ADDR" not in spec.pinned else _named_addresses(request)
        capacity, warning = None, None
        if spec.nodes is not None and spec.nodes >= FEW_NODES:
            own_limits = read_limits(one.address for one in own if not one.loopback)
            capacity, warning = check_limits(spec.nodes, me.host, own_limits)
        ticket = 0 if spec.rank == 0 else max(1, int.from_bytes(os.urandom(8), "big") >> 2)
        if ticket and capacity is not None:
            ticket += LAST_TICKETS
        terms = Terms(what, opened.master, ticket)
        world = {name: value for name, value in me.pinned.items() if name != "NODE_RANK"}
        roster = Roster(me._replace(pinned=world), spec.hosts, by_switch=spec.settings.order != SCHEDULER)
        most_strangers = _allow_open_files(spec.nodes)
        leader = Leader(loop, spec.attempt, secret, roster, terms, opened.sockets, on_change, most_strangers)
        if "NODE_RANK" in me.pinned:
            failure = Failure("node_rank", (me.pinned["NODE_RANK"], str(me.rank), me.host))
        leader.capacity = capacity
        if ticket == 0 and capacity is not None:  # else another candidate may be able to hold all
            failure = failure or capacity.failure
        if failure is not None:  # the leader stays to inform the others
            loop.after(0.0, lambda: leader.fail(failure))
    except BaseException:
        opened.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        raise
    addresses = tuple(offer.address for offer in own if not offer.loopback) or tuple(o.address for o in own)
    ports = tuple(opened.check_in) or (opened.master,)
    advertisement = Advertisement(me.member, terms.ticket, addresses, ports)
    return Candidate(leader, advertisement, no_network, limits, None if ticket else warning)


def _allow_open_files(nodes: int | None) -> int:
    """Raise the limit of open files to what N members need, and return how many connections may be without proof."""
    allowed = files.raise_open_files_limit(DESCRIPTORS_PER_MEMBER * (nodes or MOST_NODES) + SPARE_DESCRIPTORS)
    left = allowed - (nodes or 0) - OWN_DESCRIPTORS
    return max(FEWEST_STRANGERS, min(left, MOST_STRANGERS))


def _named_hosts(spec: MemberSpec) -> tuple[str, ...]:
    """Return the hosts where the others look for a leader, if the user or the scheduler names some."""
    if spec.settings.master is not None:
        return (spec.settings.master[0],)
    asks = any(BACKENDS[name].asks_named_hosts for name in spec.settings.via or BACKENDS)
    return spec.facts.leader_hosts[:MOST_NAMED] if asks else ()


def _may_lead_here(request: Request) -> bool:
    """Return whether the others would find a leader here: in an election all have to find all candidates.

    If the names of the scheduler's hosts are unknown, every member is a candidate that other backends may find.
    """
    spec = request.spec
    addr = spec.pinned.get("MASTER_ADDR")
    if addr is not None and not spec.trusts_addr:
        exported = resolve(addr, min(RESOLVE_S, request.timeout_s))
        return not exported or any(is_local(address) for address in exported)
    named = _named_hosts(spec)
    found = [a for host in named for a in resolve(host, min(RESOLVE_S, request.timeout_s) / len(named))]
    return any(is_local(a) for a in found) or (spec.settings.master is None and not found)


def _own_addresses(spec: MemberSpec) -> tuple[tuple[AdvertisedAddress, ...], NetworkError | None]:
    own, no_network = advertised_addresses(spec.settings.iface, spec.user_environ)
    if no_network is not None and (len(set(spec.hosts)) > 1 or not own) and "MASTER_ADDR" not in spec.pinned:
        raise no_network
    return own, no_network


def _named_addresses(request: Request) -> tuple[tuple[AdvertisedAddress, ...], Failure | None]:
    """Return the addresses of the exported MASTER_ADDR, and the failure if none of them is this host's, rank 0's."""
    spec = request.spec
    addr = spec.pinned["MASTER_ADDR"]
    hosts = resolve(addr, min(RESOLVE_S, request.timeout_s))[:MOST_ADVERTISED]
    found = tuple(AdvertisedAddress(host, addresses.is_loopback(host)) for host in hosts)
    if spec.trusts_addr and found:
        return found, None
    others = [offer for offer in found if not offer.loopback]
    if others:
        is_own = spec.rank is None or any(is_local(offer.address) for offer in others)
    else:
        is_own = bool(found) and len(set(spec.hosts)) < 2  # noqa: PLR2004 - one host, as far as is known
    return found, None if is_own else not_own(addr, request.host, found)


def _open(opened: Listeners, spec: MemberSpec, secret: Secret) -> bool:
    """Open the listeners; False if other candidates of this host hold the ports where the others look."""
    settings = spec.settings
    check_in = settings.master[1] if settings.master is not None else None
    master = spec.pinned.get("MASTER_PORT")
    try:
        if check_in is not None:
            opened.open_named(check_in)
            opened.check_in = [check_in]
        if master is not None:
            opened.open_named(int(master))
    except NetworkError:
        if spec.rank == 0:
            raise
        return False
    if check_in is None:
        opened.open_check_in(check_in_ports(spec.attempt, secret, settings.port_range))
        if not opened.check_in and spec.rank is None and _named_hosts(spec):
            return False  # this host has other candidates, and no member would find this one
    if master is None and check_in is None:
        opened.open_master(secret, settings.port_range)
    return True


def advertised_addresses(
    prefer: Sequence[addresses.Preference], environ: Mapping[str, str]
) -> tuple[tuple[AdvertisedAddress, ...], NetworkError | None]:
    """Return the addresses that this host can offer, and why none of them serves other hosts, if so.

    Loopback comes first, as the safest where all members are on this host; it is used only then, and only if it matches
    `prefer`. `environ` is the user's, with NCCL's settings.
    """
    found, why = addresses.interfaces(), None
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
        if not prefer or any(preference.matches(interface.name, address.ip) for preference in prefer)
    ]
    return (*own[:2], *(AdvertisedAddress(one.host, why=one.why) for one in usable))[:MOST_ADVERTISED], why


# The attempt.

# Without a scheduler a leader listens so many seconds for others of its id: two of a leader's beacons, and the time in
# which a candidate sends its first. Of simulated jobs that somebody starts twice within 0.4 s, 70 of 400 form two
# worlds with 0.15 s, and one of 2,000 with this, where 30 % of the datagrams are lost.
QUIET_S = 0.5
# Seconds between two reports of the progress.
TICK_S = 1.0
# A timer that is so many seconds late shows that the host was suspended, or the process stopped.
LATE_S = 2.0
# The back-off after this member has dialled itself.
NEVER_S = 3600.0


def meet(request: Request, observer: Observer) -> Answer:
    """Return the answer that all N members agreed on (see wire.ANSWER), or raise the error that every member raises.

    N is at least two: one member needs no leader. Takes at most request.timeout_s, and CLOSING_S more if the world was
    about to form. Closes all that it has opened.
    """
    with Loop(boottime) as loop, Rendezvous(loop, request, observer) as rendezvous:
        rendezvous.start()
        loop.run(lambda: rendezvous.is_over)
        return rendezvous.result()


class Rendezvous:
    """One member: it leads, or is a candidate, or follows a leader, or looks for one."""

    def __init__(self, loop: Loop, request: Request, observer: Observer) -> None:
        self._loop, self._request, self._observer = loop, request, observer
        secret = self._secret = Secret.derive(request.key, request.spec.attempt)
        me = self._me = join_request(request)
        self._outcome = Outcome(loop, request.timeout_s, request.age_s)
        self._leader: Leader | None = None  # this member's own, if it leads or is a candidate
        self._search = Search(
            loop, request, secret, observer.note, self._leader_proven, lambda: self._follower.precedence, me.member
        )
        self._follower = Follower(loop, request, secret, me, self._search, self._outcome, self._look_again, self._leads)

    def __enter__(self) -> Rendezvous:
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        self._follower.close()
        if self._search.candidate is not None:
            self._search.candidate.close(self._request.held if error is None else None)
        self._search.close()

    @property
    def is_over(self) -> bool:
        """Whether this member has its answer or its error, and has informed the others."""
        return self._outcome.is_over

    def start(self) -> None:
        """Open the listeners and backends; all else happens in the loop. Raises NetworkError."""
        self._loop.after(self._request.timeout_s, self._time_is_over)
        self._stand()
        self._search.open(self._request.spec.settings.via or tuple(BACKENDS))
        if self._request.node_facts is not None:
            self._set_node_facts(*self._request.node_facts())
        if self._leader is not None and not self._request.spec.facts.leader_hosts:
            # No scheduler keeps ids apart: others that start with the same id at once are heard before a world forms.
            self._leader.choice.listen_for(QUIET_S)
        if self._request.local_peers is not None:
            self._request.local_peers.attend(self._loop, self._local_peer_failed)
        obstacle = self._request.obstacle
        if obstacle is not None and obstacle.is_certain:
            text = f"cannot start the command: {obstacle.error().seen}; all members end once all have checked in"
            self._loop.after(TICK_S, lambda: self._observer.note(text))
        self._tick()

    def _set_node_facts(self, fingerprint: str, addresses: str) -> None:
        """Set this node's facts: only now, after other members can already find this one."""
        self._me = self._follower.me = self._me._replace(fingerprint=fingerprint, addresses=addresses)
        if self._leader is not None:
            own_entry = self._leader.roster.entry(self._me.member)
            own_entry.fingerprint, own_entry.addresses, own_entry.clock = fingerprint, addresses, (0.0, 0.0)

    def result(self) -> Answer:
        """Return the answer, or raise the MingleError, once it is over."""
        answer = self._outcome.result()
        leader, membership = self._leader, self._follower.membership
        if leader is not None and leader.answer is answer:
            report.note_by_leader(leader, self._request, self._observer, answer["at"])
        elif self._observer.explain is not None and membership is not None:
            proven = membership.proven
            self._observer.explain(f"rank 0 is {proven.label}, found by {proven.endpoint.backend}")
        me = membership.me if membership is not None else leader.me if leader is not None else self._me
        if me.spent is not None:
            answer["spent"] = list(me.spent._replace(formed_ms=self._outcome.durations().in_ms))
        return answer

    def _tick(self) -> None:
        """Report the progress to the observer, as far as this member knows it."""
        leader, progress = self._leader, None
        if self._follower.membership is not None:
            progress = self._follower.progress
        elif leader is not None and leader.state in ("gathering", "closing"):
            roster = leader.roster
            progress = Progress(len(roster), roster.nodes, roster.missing())
        elif leader is None or leader.state == "withdrawn":
            progress = Progress(0, self._request.spec.nodes, f"rank 0{self._request.spec.expected_leader}")
        if progress is not None:  # else it is over, and only others are still to be informed
            self._observer.progress(progress)
        self._loop.after(TICK_S, self._tick)

    # As a leader, or a candidate.

    def _stand(self) -> None:
        me = self._me._replace(spent=self._outcome.durations())
        candidate = stand_as_candidate(self._loop, self._request, self._secret, me, self._leader_changed)
        self._search.candidate = candidate
        if candidate is not None:
            leader = self._leader = candidate.leader
            leader.choice.is_alone, leader.one_way = self._search.is_alone, self._search.one_way
            if candidate.warning is not None:
                self._observer.note(candidate.warning)
            settings = self._request.spec.settings
            if settings.strict:
                leader.choice.refuses = lambda offer: report.refuse_different_nodes(leader, settings, offer)

    def _leads(self) -> bool:
        leader = self._leader
        return leader is not None and (leader.terms.ticket == 0 or len(leader.roster) > 1)

    def _leader_changed(self) -> None:
        leader = self._leader
        if leader is None:
            return
        self._search.reject(leader.refused["key"].list())
        if leader.state == "withdrawn" and leader.failure is not None:
            failure, leader.failure = leader.failure, None
            if self._follower.membership is not None:  # the better candidate decides
                self._follower.membership.fail(failure)
        elif leader.state == "failed" and leader.failure is not None:
            self._leader_failed(leader, leader.failure)
        elif leader.state == "formed":
            if self._outcome.answer is None:
                self._outcome.answer = leader.answer
                # As long as a member may wait for COMMIT, this leader stays to repeat it; a little longer than the
                # leases if it was suspended when it sent it.
                self._leave_at(leader, self._loop.clock() + max(leader.awaited_s, LINGER_S))
            if leader.all_done:
                self._outcome.end()

    def _leader_failed(self, leader: Leader, failure: Failure) -> None:
        error = failure.error()
        if len(leader.roster) == 1 and failure.kind != "limits":  # a better reason may be known why no member has come
            candidate = self._search.candidate
            no_network = candidate and candidate.no_network
            error = self._search.refusal() or no_network or self._search.with_local_faults(error)
        may_come_late = failure.kind not in ("missing", "unconfirmed", "keys", "runs", "versions", "network", *LIMITS)
        is_awaited = may_come_late and not leader.all_informed
        if not self._outcome.is_known:
            self._observer.failed(error)
        self._outcome.fail(error, LINGER_S if is_awaited else GOODBYE_S)
        # Each member closes its connection when it has read the reason: only then it has certainly arrived.
        if not is_awaited and not leader.acceptor.has_members:
            self._outcome.end()

    def _leave_at(self, leader: Leader, when: float) -> None:
        """Stay until then; longer for members that have returned since, or if this host was suspended."""

        def drained() -> None:
            now = self._loop.clock()
            stays_s = max(LINGER_S if now - when > LATE_S else 0.0, leader.awaited_s)
            if stays_s:
                self._leave_at(leader, now + stays_s)
                return
            if hosts := leader.unconfirmed:
                self._observer.note(f"the world is formed, but {', '.join(hosts[:8])} did not confirm it")
            self._outcome.end()

        self._loop.after(when - self._loop.clock(), drained)

    # As a follower, or in search of a leader.

    def _leader_proven(self, proven: ProvenLeader) -> None:
        """Join a proved leader, unless it is this member itself, no better, or a rival."""
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
        """Stand again if this member is a candidate, and search by every backend."""
        if self._leader is not None:
            self._leader.resume()
        self._search.seek()

    def _local_peer_failed(self, failure: Failure) -> None:
        """Fail the world, as a task of this node is missing; too late for a world that has formed."""
        leader = self._leader
        if self._follower.membership is None and leader is not None and leader.state != "withdrawn":
            leader.fail(failure)
        else:
            self._follower.fail(failure)

    # Time.

    def _time_is_over(self) -> None:
        """Give up, CLOSING_S later if the world is about to form."""
        is_closing = self._leader is not None and self._leader.state == "closing"
        if is_closing or self._follower.bound_to() is not None:
            # Counted from the deadline: this process may have been stopped meanwhile.
            self._loop.after(max(self._outcome.left_s(), 0.0), self._give_up)
        else:
            self._give_up()

    def _give_up(self, *, was_late: bool = False) -> None:
        if self._outcome.is_known:
            return  # only others are still to be informed
        if not was_late and self._follower.bound_to() is not None and self._outcome.left_s() < -LATE_S:
            # TCP repeats the frames that were lost while this host was suspended, or the leader does on request.
            self._loop.after(LINGER_S, lambda: self._give_up(was_late=True))
            return
        leader = self._leader
        if leader is not None and leader.state in ("gathering", "closing"):
            leader.give_up(self._outcome.waited_s())
        else:
            self._follower.give_up()
