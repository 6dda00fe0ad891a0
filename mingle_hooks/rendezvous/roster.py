"""The roster: which member has which rank, which contradict each other, which are missing. No sockets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

from mingle_hooks.errors import printable
from mingle_hooks.rendezvous.connection import Loop, Timer
from mingle_hooks.rendezvous.messages import Failure, JoinRequest, Member
from mingle_hooks.schedulers.facts import SEPARATOR, fold

# Missing ranks that a message names.
MOST_SHOWN = 64
# Characters of the host names in the message of an obstacle.
LONGEST_HOSTS = 120
# The leader needs these before any other member checks in.
_LEADERS = ("MASTER_ADDR", "MASTER_PORT")


class Entry:
    """A member that has checked in, and the leader's addresses that it has reached, each from one of its own."""

    __slots__ = ("address", "addresses", "arrived", "clock", "fingerprint", "join_request", "reached")

    def __init__(self, join_request: JoinRequest, address: str) -> None:
        self.join_request = join_request
        self.address = address
        self.fingerprint, self.addresses = join_request.fingerprint, join_request.addresses
        self.clock: tuple[float, float] | None = None  # seconds ahead of the leader's clock: least and most
        self.arrived = 0.0  # by the leader's clock, in seconds
        self.reached: dict[int, str] = {}

    @property
    def label(self) -> str:
        """The member's name in messages."""
        return f"{self.join_request.host} ({self.address})" if self.address else self.join_request.host

    def own_address(self, offer: int | None) -> str:
        """Return the member's address by which it has reached the leader's, else that of its check-in."""
        return self.address if offer is None else self.reached.get(offer, self.address)


class Roster:
    """The members that have checked in with one leader, itself included."""

    def __init__(self, me: JoinRequest, hosts: Sequence[str] = (), *, by_switch: bool = False) -> None:
        self.me = me
        self.by_switch = by_switch
        self._hosts = tuple(hosts)  # in rank order, where the scheduler names them
        self._entries: dict[bytes, Entry] = {}
        self._ranks: dict[int, Entry] = {}
        # "nodes" or a variable -> its value, and the first member with it
        self._first: dict[str, tuple[str, Entry]] = {}
        self._reached: dict[int, int] = {}  # offer -> number of members that reached it
        self.add(me, "")

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nodes(self) -> int | None:
        """N, as soon as any member has reported it."""
        claim = self._first.get("nodes")
        return int(claim[0]) if claim else None

    @property
    def complete(self) -> bool:
        """Whether all N have checked in."""
        return len(self._entries) == self.nodes

    @property
    def size(self) -> int:
        """WORLD_SIZE: the slots of all members."""
        return sum(entry.join_request.slots for entry in self._entries.values())

    @property
    def one_machine(self) -> bool:
        """Whether all members of the roster share one network stack."""
        return all(entry.join_request.machine == self.me.machine for entry in self._entries.values())

    def entries(self) -> list[Entry]:
        """Return all entries in the order of check-in."""
        return list(self._entries.values())

    def entry(self, member: bytes) -> Entry:
        """Return a member's entry."""
        return self._entries[member]

    def pinned(self, name: str) -> str | None:
        """Return the value that members have exported for name, None if none has."""
        claim = self._first.get(name)
        return claim[0] if claim else None

    def add(self, join_request: JoinRequest, address: str) -> Failure | None:
        """Add a member, or return why it contradicts the others. A second call changes nothing."""
        if join_request.member in self._entries:
            return None
        entry = Entry(join_request, address)
        if (failure := self._contradiction(entry)) is not None:
            return failure
        self._entries[join_request.member] = entry
        if join_request.rank is not None:
            self._ranks[join_request.rank] = entry
        for name, value in _claims(join_request).items():
            self._first.setdefault(name, (value, entry))
        return None

    def obstacle(self) -> Failure | None:
        """Return, once all have checked in, the first rank's obstacle to the command, with all hosts that have it."""
        if not self.complete:
            return None
        requests = [entry.join_request for entry in self.in_usual_order()]
        unable = [(request.host, request.obstacle) for request in requests if request.obstacle is not None]
        certain = [(host, failure) for host, failure in unable if failure.is_certain]
        if certain or len(unable) == len(requests):
            unable = certain
        if not unable:
            return None
        first = unable[0][1]
        seen = first.parts[1]
        hosts = [host for host, failure in unable if failure == (first.kind, (host, seen))]
        return Failure(first.kind, (printable(fold(hosts), LONGEST_HOSTS), seen))

    def remove(self, member: bytes) -> None:
        """Remove a member that left before the world formed."""
        entry = self._entries.pop(member)
        if entry.join_request.rank is not None:
            del self._ranks[entry.join_request.rank]
        for offer in entry.reached:
            self._reached[offer] -= 1
        if any(claim[1] is entry for claim in self._first.values()):
            self._first = {}
            for other in self._entries.values():
                for name, value in _claims(other.join_request).items():
                    self._first.setdefault(name, (value, other))

    def reach(self, member: bytes, offer: int, own_address: str) -> None:
        """Record that a member has reached one of the leader's addresses."""
        entry = self._entries[member]
        if offer not in entry.reached:
            self._reached[offer] = self._reached.get(offer, 0) + 1
        entry.reached[offer] = own_address

    def reached_by_all(self, offer: int) -> bool:
        """Return whether every member but the leader itself has reached this address."""
        return self._reached.get(offer, 0) == len(self._entries) - 1

    def unreached_text(self, advertised: Sequence[str]) -> str:
        """Return, for each offered address, the hosts that have not reached it."""
        lines = []
        for index, address in enumerate(advertised):
            if others := [entry.join_request.host for entry in self._entries.values() if index not in entry.reached]:
                lines.append(f"{address} not reached by {fold(others)}")
        return "; ".join(lines) or f"{', '.join(advertised)} reached too late"

    def missing(self) -> str:
        """Return the missing members: as hosts if the scheduler names them, else as ranks, else as a number."""
        nodes = self.nodes
        if nodes is None:
            return "any member that knows the number of nodes (--nodes)"
        count = nodes - len(self._entries)
        if count == 0:
            return "an address that all can reach"
        absent = [rank for rank in range(nodes) if rank not in self._ranks]
        if len(absent) != count:  # members without a rank are in: which ranks are missing is not known
            return f"{count} more"
        if len(self._hosts) == nodes:
            return fold([self._hosts[rank] for rank in absent])
        return (
            "rank " + fold([str(rank) for rank in absent[:MOST_SHOWN]]) + (" and more" if absent[MOST_SHOWN:] else "")
        )

    def members(self, offer: int | None) -> list[tuple[Entry, Member]]:
        """Return the members in rank order: the usual one, or that by switches."""
        ranks, entries = zip(*self._ranked(), strict=True)
        if self.by_switch:
            entries = tuple(entries[place] for place in order_by_switch([e.join_request.topology for e in entries]))
        return [
            (entry, Member(rank, entry.join_request.host, entry.own_address(offer), entry.join_request.slots))
            for rank, entry in zip(ranks, entries, strict=True)
        ]

    def in_usual_order(self) -> list[Entry]:
        """Return all entries in the usual rank order."""
        return [entry for _, entry in self._ranked()]

    def _ranked(self) -> list[tuple[int, Entry]]:
        """Return each member with its usual rank: the one it claimed, else by host name, with the leader first."""
        unranked = sorted(
            (e for e in self._entries.values() if e.join_request.rank is None),
            key=lambda e: (e.join_request is not self.me, _natural(e.join_request.host), e.join_request.member),
        )
        free = (rank for rank in range(len(self._entries)) if rank not in self._ranks)
        return sorted({**self._ranks, **dict(zip(free, unranked, strict=False))}.items())

    def _contradiction(self, entry: Entry) -> Failure | None:
        join_request = entry.join_request
        if "NODE_RANK" in join_request.pinned:
            return Failure("node_rank", (join_request.pinned["NODE_RANK"], str(join_request.rank), entry.label))
        for name, value in _claims(join_request).items():
            claim = self._first.get(name)
            if claim is None and name in _LEADERS and entry.join_request is not self.me:
                claim = ("not exported", self._entries[self.me.member])
            if claim is None or claim[0] == value:
                continue
            if name == "nodes":
                return Failure("nodes", (claim[0], claim[1].label, value, entry.label))
            return Failure("given", (name, f"{claim[0]} on {claim[1].label}", f"{value} on {entry.label}"))
        return self._no_room(entry)

    def _no_room(self, entry: Entry) -> Failure | None:
        join_request, nodes = entry.join_request, entry.join_request.nodes or self.nodes
        if join_request.rank is not None:
            if join_request.rank in self._ranks:
                return Failure("rank", (str(join_request.rank), self._ranks[join_request.rank].label, entry.label))
            if nodes is not None and join_request.rank >= nodes:
                return Failure("beyond", (str(nodes), str(join_request.rank), entry.label))
        if nodes is not None and self.nodes is None and (highest := max(self._ranks, default=-1)) >= nodes:
            return Failure("beyond", (str(nodes), str(highest), self._ranks[highest].label))
        if nodes is not None and len(self._entries) >= nodes:
            return Failure("full", (str(nodes), entry.label))
        return None


def _claims(join_request: JoinRequest) -> dict[str, str]:
    claim = dict(join_request.pinned)
    if join_request.nodes is not None:
        claim["nodes"] = str(join_request.nodes)
    return claim


def _natural(host: str) -> list[tuple[int, int, str]]:
    """Return a sort key that puts node2 before node10."""
    parts = ((is_number, "".join(letters)) for is_number, letters in groupby(host, "0123456789".__contains__))
    return [(0, int(part), "") if is_number else (1, 0, part) for is_number, part in parts]


# Ranks by switch: members below one switch have neighbouring ranks, at each level of the network.


def order_by_switch(paths: Sequence[str]) -> list[int]:
    """Return the members' indices in the order by switch; `paths` are in the usual order.

    The first member stays the first. Switches are in the order of their first members, so that little changes; members
    without a known switch stay together, as if below one of their own.
    """
    places: dict[tuple[str, ...], int] = {}
    ways = [tuple(path.split(SEPARATOR)) for path in paths]
    for place, way in enumerate(ways):
        for level in range(1, len(way) + 1):
            places.setdefault(way[:level], place)

    def key(place: int) -> tuple[bool, list[int], int]:
        way = ways[place]
        return place > 0, [places[way[:level]] for level in range(1, len(way) + 1)], place

    return sorted(range(len(paths)), key=key)


def crossings(paths: Sequence[str]) -> int:
    """Return the number of neighbours in rank that are below different switches."""
    return sum(1 for one, next_one in itertools.pairwise(paths) if one != next_one)


# Addresses that are kept: a report is for a person, and memory has a bound.
MOST_ADDRESSES = 8
# Characters of one address, with its host, in a report.
LONGEST_LABEL = 64


def peer_label(address: str, host: str) -> str:
    """Return an address with the host name that the peer claims, which is unproved, unlike the address."""
    is_name = host.isascii() and host.replace("-", "").replace(".", "").replace("_", "").isalnum()
    return printable(f"{address} ({host})" if is_name else address, LONGEST_LABEL)


class RejectedPeers:
    """Addresses of rejected peers, in the order of their first attempt."""

    def __init__(self) -> None:
        self._hosts: dict[str, str] = {}

    def add(self, address: str, host: str = "") -> bool:
        """Record an attempt from an address, with the host name that it claims, and return whether it is new."""
        if self._hosts.get(address) or (address in self._hosts and not host):
            return False
        if address not in self._hosts and len(self._hosts) >= MOST_ADDRESSES:
            return False
        self._hosts[address] = host
        return True

    def list(self) -> list[str]:
        """Return the peers so far: a host with several addresses once, with the first of them."""
        first: dict[str, str] = {}
        for address, host in self._hosts.items():
            first.setdefault(host or address, peer_label(address, host))
        return list(first.values())


# A leader's terms: the addresses that it offers, its port, and its ticket.


class AdvertisedAddress(NamedTuple):
    """One address of the leader that the world may use."""

    address: str
    loopback: bool = False  # valid only if all members share the leader's network stack
    why: str = ""  # UsableAddress.why, for a message


class Terms(NamedTuple):
    """The leader's terms: its addresses, the best first, its port, and its ticket."""

    advertised: tuple[AdvertisedAddress, ...]
    port: int
    ticket: int  # 0: rank 0 by right; else the lowest wins

    def offers(self, *, same_machine: bool) -> list[list[object]]:
        """Return the addresses that a member may try, each with its index, the best first."""
        return [
            [index, offer.address] for index, offer in enumerate(self.advertised) if not offer.loopback or same_machine
        ]

    @property
    def is_loopback(self) -> bool:
        """Whether other machines can reach none of the addresses."""
        return all(offer.loopback for offer in self.advertised)


def not_own(master_addr: str, host: str, advertised: Sequence[AdvertisedAddress]) -> Failure:
    """Return the failure of an exported MASTER_ADDR at which other hosts cannot reach rank 0's host."""
    found = ", ".join(dict.fromkeys(offer.address for offer in advertised))
    which = f", which is {found} on {host}" if found else f", which {host} cannot look up"
    return Failure("address", (master_addr, host, "" if found == master_addr else which))


# When a leader's world may close, and which of the leader's addresses it uses.

# Seconds between two checks whether another possible leader has answered.
RECHECK_S = 0.1
# Once all have checked in, the best address has so many seconds to be reached by all before the next best is used:
# a connection whose first two packets are lost still succeeds.
SETTLE_S = 3.5


class AddressChoice:
    """Calls `close` with the index of the chosen address while `gathers()` is true; the owner calls stop().

    First `is_alone()` must be true: no other possible leader is being dialled. If `refuses(index)` is true, it has
    failed the world.
    """

    def __init__(
        self, loop: Loop, roster: Roster, terms: Terms, gathers: Callable[[], bool], close: Callable[[int], None]
    ) -> None:
        self._loop, self._roster, self._terms, self._gathers, self._close = loop, roster, terms, gathers, close
        self._quiet_until = loop.clock()
        self._settles_at: float | None = None  # None: not all have checked in
        self.refuses: Callable[[int], bool] = lambda _: False
        self.is_alone: Callable[[], bool] = lambda: True
        self._next = Timer()

    def stop(self) -> None:
        """Choose no address any more."""
        self._next.cancel()

    def listen_for(self, quiet_s: float) -> None:
        """Choose nothing for quiet_s seconds, in which surplus members of this id can still check in."""
        self._quiet_until = self._loop.clock() + quiet_s

    def start_over(self) -> None:
        """Wait for the best address anew after a member has left, once all have checked in again."""
        self._settles_at = None

    def consider(self) -> None:
        """Close if an address can be chosen now, or consider it again in time."""
        if not self._gathers() or not self._roster.complete:
            return
        now = self._loop.clock()
        if self._settles_at is None:
            self._settles_at = max(now, self._quiet_until) + SETTLE_S
        if now < self._quiet_until:
            self._consider_in(self._quiet_until - now)
        elif (offer := self._best(is_settled=now >= self._settles_at)) is not None:
            if not self.is_alone():
                self._consider_in(RECHECK_S)
            elif not self.refuses(offer):
                self._close(offer)
        elif now < self._settles_at:
            self._consider_in(self._settles_at - now)

    def _consider_in(self, delay_s: float) -> None:
        self._next.cancel()
        self._next = self._loop.after(delay_s, self.consider)

    def _best(self, *, is_settled: bool) -> int | None:
        """Return the best address that may serve all, once all have reached it; after SETTLE_S the best reached one."""
        for index, offer in enumerate(self._terms.advertised):
            if offer.loopback and not self._roster.one_machine:
                continue
            if self._roster.reached_by_all(index):
                return index
            if not is_settled:
                return None
        return None
