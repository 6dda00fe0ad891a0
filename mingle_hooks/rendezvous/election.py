"""The addresses that a leader offers its members, the best first."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from mingle_hooks import files
from mingle_hooks.errors import LimitError, NetworkError, Shortage
from mingle_hooks.net import addresses, ports
from mingle_hooks.net.addresses import Address
from mingle_hooks.rendezvous.backend import Advertisement
from mingle_hooks.rendezvous.connection import RESOLVE_S, Loop, is_local, resolve
from mingle_hooks.rendezvous.discovery import BACKENDS
from mingle_hooks.rendezvous.leader import Leader
from mingle_hooks.rendezvous.messages import Failure, JoinRequest
from mingle_hooks.rendezvous.request import Request
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
        if not ports.has_ipv6():
            self.sockets.append(four)
            return True
        self.sockets.append(four)  # owned before anything else can fail
        six = ports.bound("::", port, reuse=reuse, hold=hold)
        if six is None:
            self.sockets.remove(four)
            four.close()
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
            held += self.leader.acceptor.hand_over(self.leader.terms.port)
        self.leader.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, self.limits)


def stand_as_candidate(
    loop: Loop, request: Request, secret: Secret, me: JoinRequest, on_change: Callable[[], None]
) -> Candidate | None:
    """Return the leader that this member is or may become, None where it can be neither. Raises NetworkError."""
    if request.rank not in (0, None):
        return None
    if request.rank is None and not _may_lead_here(request):
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
        terms = Terms(what, opened.master, 0 if request.rank == 0 else _ticket())
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

    what, no_network = advertised_addresses(request.prefer, request.environ)
    if no_network is not None and (len(set(request.hosts)) > 1 or not what) and "MASTER_ADDR" not in request.pinned:
        raise no_network
    return what, no_network


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


def _ticket() -> int:
    """Return a candidate's ticket; 0 is kept for who leads by right."""
    return max(1, int.from_bytes(os.urandom(8), "big") >> 1)


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
        AdvertisedAddress(str(its.ip), loopback=True)
        for interface in found
        for its in interface.addresses
        if its.ip.is_loopback and interface.up and _is_wanted(interface, its, prefer)
    ]
    return (*own[:2], *(AdvertisedAddress(its.host, why=its.why) for its in usable))[:MOST_ADVERTISED], why


def _is_wanted(interface: addresses.Interface, its: Address, prefer: Sequence[addresses.Preference]) -> bool:
    return not prefer or any(preference.matches(interface, its) for preference in prefer)


def addresses_of_name(master_addr: str, timeout_s: float) -> tuple[AdvertisedAddress, ...]:
    """Return the addresses of the MASTER_ADDR that the user exported, none where it cannot be looked up."""
    addresses = resolve(master_addr, timeout_s)
    loopback = [ip_address(host.partition("%")[0]).is_loopback for host in addresses]
    return tuple(map(AdvertisedAddress, addresses, loopback))[:MOST_ADVERTISED]
