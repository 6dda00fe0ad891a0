"""Who is in: which member has which rank, who contradicts whom, who is missing. No sockets."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from mingle_hooks.errors import printable
from mingle_hooks.rendezvous.protocol.failure import Failure
from mingle_hooks.schedulers.hostlist import fold
from mingle_hooks.world import Member

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mingle_hooks.rendezvous.protocol.join_request import JoinRequest

# Missing ranks that a message names; gaps between them would make it long.
MOST_SHOWN = 64
# Characters of host names in front of what keeps them from starting the command.
LONGEST_HOSTS = 120
# The leader binds these before it hears from the others, so it has to know them.
_LEADERS = ("MASTER_ADDR", "MASTER_PORT")


class Entry:
    """A member that is in, and which of the leader's addresses it has reached, from which of its own."""

    __slots__ = ("address", "addresses", "arrived", "clock", "fingerprint", "join_request", "reached")

    def __init__(self, join_request: JoinRequest, address: str) -> None:
        self.join_request = join_request
        self.address = address
        self.fingerprint, self.addresses = join_request.fingerprint, join_request.addresses
        self.clock: tuple[float, float] | None = None  # how far it is ahead of the leader's, in seconds: least and most
        self.arrived = 0.0  # by the leader's clock, in seconds
        self.reached: dict[int, str] = {}

    @property
    def label(self) -> str:
        """The member as messages name it."""
        return f"{self.join_request.host} ({self.address})" if self.address else self.join_request.host


class Roster:
    """The members that have checked in with one leader, itself included."""

    def __init__(self, me: JoinRequest, hosts: Sequence[str] = (), *, by_switch: bool = False) -> None:
        self._me = me
        self.by_switch = by_switch
        self._hosts = tuple(hosts)  # in rank order, where the scheduler names them
        self._entries: dict[bytes, Entry] = {}
        self._ranks: dict[int, Entry] = {}
        self._first: dict[str, tuple[str, Entry]] = {}  # "nodes" or a given name -> value, who said it first
        self._reached: dict[int, int] = {}  # offer -> members that reached it
        self._machines: dict[str, int] = {}
        self.add(me, "")

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nodes(self) -> int | None:
        """N, as soon as any member has said it."""
        said = self._first.get("nodes")
        return int(said[0]) if said else None

    @property
    def complete(self) -> bool:
        """Whether all N are in."""
        return len(self._entries) == self.nodes

    @property
    def one_machine(self) -> bool:
        """Whether all members that are in share one network stack."""
        return len(self._machines) == 1

    def entries(self) -> list[Entry]:
        """Return all that are in, in the order in which they came."""
        return list(self._entries.values())

    def entry(self, member: bytes) -> Entry:
        """Return the entry of a member that is in."""
        return self._entries[member]

    def pinned(self, name: str) -> str | None:
        """Return the value that members exported for name, None where nobody did."""
        said = self._first.get(name)
        return said[0] if said else None

    def add(self, join_request: JoinRequest, address: str) -> Failure | None:
        """Take a member in, or return why no world can hold it beside the others. Once more changes nothing."""
        if join_request.member in self._entries:
            return None
        entry = Entry(join_request, address)
        if (failure := self._contradiction(entry)) is not None:
            return failure
        self._entries[join_request.member] = entry
        self._machines[join_request.machine] = self._machines.get(join_request.machine, 0) + 1
        if join_request.rank is not None:
            self._ranks[join_request.rank] = entry
        for name, value in _said(join_request).items():
            self._first.setdefault(name, (value, entry))
        return None

    def obstacle(self) -> Failure | None:
        """Return what keeps members from starting the command, once all are in: the first rank's, with all it is on."""
        if not self.complete:
            return None
        requests = [entry.join_request for entry in self.in_usual_order()]
        unable = [(its.host, its.obstacle) for its in requests if its.obstacle is not None]
        certain = [(host, its) for host, its in unable if its.is_certain]
        if certain or len(unable) == len(requests):
            unable = certain
        if not unable:
            return None
        first = unable[0][1]
        seen = first.parts[1]
        hosts = [host for host, its in unable if its == (first.kind, (host, seen))]
        return Failure(first.kind, (printable(fold(hosts), LONGEST_HOSTS), seen))

    def remove(self, member: bytes) -> None:
        """Forget a member that left before the world was formed."""
        entry = self._entries.pop(member)
        machine = entry.join_request.machine
        self._machines[machine] -= 1
        if not self._machines[machine]:
            del self._machines[machine]
        if entry.join_request.rank is not None:
            del self._ranks[entry.join_request.rank]
        for offer in entry.reached:
            self._reached[offer] -= 1
        if any(said[1] is entry for said in self._first.values()):
            self._first = {}
            for other in self._entries.values():
                for name, value in _said(other.join_request).items():
                    self._first.setdefault(name, (value, other))

    def reach(self, member: bytes, offer: int, own_address: str) -> None:
        """Note that a member has reached one of the leader's addresses."""
        entry = self._entries[member]
        if offer not in entry.reached:
            self._reached[offer] = self._reached.get(offer, 0) + 1
        entry.reached[offer] = own_address

    def reached_by_all(self, offer: int) -> bool:
        """Whether every member but the leader, who has it, has reached this address."""
        return self._reached.get(offer, 0) == len(self._entries) - 1

    def short_of(self, advertised: Sequence[str]) -> str:
        """Tell, for each offered address, who has not reached it."""
        lines = []
        for index, address in enumerate(advertised):
            if others := [entry.join_request.host for entry in self._entries.values() if index not in entry.reached]:
                lines.append(f"{address} not reached by {fold(others)}")
        return "; ".join(lines) or f"{', '.join(advertised)} reached too late"

    def missing(self) -> str:
        """Tell who is missing: hosts where the scheduler names them, else ranks, else how many."""
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
        """Give each member its rank: the usual one, or the one that it has among those below the same switch."""
        usual = self._ranked()
        entries = [entry for _, entry in usual]
        if self.by_switch:
            from mingle_hooks.rendezvous.leader import order

            entries = [entries[place] for place in order.by_switch([e.join_request.topology for e in entries])]
        ranks = (rank for rank, _ in usual)
        return [
            (entry, Member(rank, entry.join_request.host, _own_address(entry, offer), entry.join_request.slots))
            for rank, entry in zip(ranks, entries, strict=True)
        ]

    def in_usual_order(self) -> list[Entry]:
        """Return all that are in by their usual ranks."""
        return [entry for _, entry in self._ranked()]

    def _ranked(self) -> list[tuple[int, Entry]]:
        """Return each member after its usual rank: the one it claimed, else by host names, the leader's 0."""
        unranked = sorted(
            (e for e in self._entries.values() if e.join_request.rank is None),
            key=lambda e: (e.join_request is not self._me, _natural(e.join_request.host), e.join_request.member),
        )
        free = (rank for rank in range(len(self._entries)) if rank not in self._ranks)
        return sorted({**self._ranks, **dict(zip(free, unranked, strict=False))}.items())

    def _contradiction(self, entry: Entry) -> Failure | None:
        join_request = entry.join_request
        if "NODE_RANK" in join_request.pinned:
            return Failure("node_rank", (join_request.pinned["NODE_RANK"], str(join_request.rank), entry.label))
        for name, value in _said(join_request).items():
            said = self._first.get(name)
            if said is None and name in _LEADERS and entry.join_request is not self._me:
                said = ("not exported", self._entries[self._me.member])
            if said is None or said[0] == value:
                continue
            if name == "nodes":
                return Failure("nodes", (said[0], said[1].label, value, entry.label))
            return Failure("given", (name, f"{said[0]} on {said[1].label}", f"{value} on {entry.label}"))
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


def _said(join_request: JoinRequest) -> dict[str, str]:
    said = dict(join_request.pinned)
    if join_request.nodes is not None:
        said["nodes"] = str(join_request.nodes)
    return said


def _own_address(entry: Entry, offer: int | None) -> str:
    return entry.address if offer is None else entry.reached.get(offer, entry.address)


def _natural(host: str) -> list[tuple[int, int, str]]:
    """Sort key that puts node2 before node10."""
    parts = ((is_number, "".join(letters)) for is_number, letters in groupby(host, "0123456789".__contains__))
    return [(0, int(part), "") if is_number else (1, 0, part) for is_number, part in parts]
