"""How a world formed, for --explain: which address and why, which were not reached and by whom, who came last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mingle_hooks.net.addresses import Interface, interfaces
from mingle_hooks.rendezvous.compare import EXCLUDE, Compared, Finding, compare_members, exclude_line, finding_lines
from mingle_hooks.rendezvous.leader import Leader
from mingle_hooks.rendezvous.member import Membership
from mingle_hooks.rendezvous.messages import Durations, Failure
from mingle_hooks.rendezvous.request import Observer, Request
from mingle_hooks.rendezvous.roster import AdvertisedAddress, Entry, Roster, Terms, crossings
from mingle_hooks.schedulers.hostlist import fold

# When each member's task began, when it came, and who kept the others waiting: by rank 0's clock, in seconds.

# Members that are listed one by one; of more, the last is named.
MOST_LISTED = 16
# What is less late than this is not late: a tick of the kernel, and what a busy host needs to wake up.
PUNCTUAL_S = 0.05

_CAUSES = {
    "began_s": "a late start by the scheduler",
    "start_s": "mingle's start (Python, imports, settings)",
    "names_s": "name look-ups",
    "network_s": "the network",
}


class Phases(NamedTuple):
    """One member: when its task began, began to look for the others and was in, and what kept it meanwhile."""

    host: str
    began: float
    searching: float
    arrived: float
    names_s: float
    network_s: float  # without the time in which there was no rank 0 yet

    @property
    def ready(self) -> float:
        """When it would have been in, had rank 0 been there."""
        return self.searching + self.names_s + self.network_s


def phases(members: Sequence[tuple[str, float, Durations | None]]) -> list[Phases]:
    """Return the members, rank 0 first, of each of whom host, arrival and what it spent are told."""
    found: list[Phases] = []
    leader_at = members[0][1] if members else 0.0
    for host, arrived, spent in members:
        if spent is None:  # of a mingle that does not tell it
            continue
        began = arrived - spent.in_ms / 1000
        searching = began + spent.asked_ms / 1000
        free = max(searching, min(leader_at, arrived))
        names_s = min(spent.names_ms / 1000, arrived - free)
        found.append(Phases(host, began, searching, arrived, names_s, arrived - free - names_s))
    return found


def timeline_lines(members: Sequence[Phases], formed: float) -> list[str]:
    """Return the times since the first task began, and who was last to be ready, by how much, and why."""
    if len(members) <= 1:
        return []
    zero = min(member.began for member in members)
    listed = [
        f"{member.host} started at {member.began - zero:.2f} s, searched from {member.searching - zero:.2f} s,"
        f" checked in at {member.arrived - zero:.2f} s"
        for member in (members if len(members) <= MOST_LISTED else ())
    ]
    return [*listed, f"the world formed at {formed - zero:.2f} s", _why(members)]


def last_to_arrive(members: Sequence[Phases]) -> dict[str, Any] | None:
    """Return who was last to be ready, how many seconds after the first, and on what it spent them.

    None where nobody was late.
    """
    first, late = min(members, key=_ready, default=None), max(members, key=_ready, default=None)
    if first is None or late is None or late.ready - first.ready < PUNCTUAL_S:
        return None
    zero = min(member.began for member in members)
    phases = {
        "late_s": late.ready - first.ready,
        "began_s": late.began - zero,
        "start_s": late.searching - late.began,
        "names_s": late.names_s,
        "network_s": late.network_s,
    }
    return {"host": late.host, "after": first.host, **{name: round(seconds, 3) for name, seconds in phases.items()}}


def _why(members: Sequence[Phases]) -> str:
    found = last_to_arrive(members)
    if found is None:
        return f"all were ready within {PUNCTUAL_S:g} s"
    parts = ", ".join(f"{found[name]:.2f} s for {what}" for name, what in _CAUSES.items())
    return f"last to be ready: {found['host']}, {found['late_s']:.2f} s after {found['after']}: {parts}"


def _ready(member: Phases) -> float:
    return member.ready


# What rank 0, and any other member, tells of a world that has formed.


def leader_report(leader: Leader, chosen: str) -> list[str]:
    """Return what rank 0 alone knows; `chosen` is the address that the world uses."""
    entries = leader.roster.entries()
    carriers = {str(address.ip): interface for interface in interfaces() for address in interface.addresses}
    lines = []
    is_after = False
    for index, offer in enumerate(leader.terms.advertised):
        if offer.loopback and not leader.roster.one_machine:
            continue
        short = [entry.join_request.host for entry in entries if index not in entry.reached]
        if offer.address == chosen:
            why, is_after = "chosen: the best that all members reached", True
        elif is_after:  # not tried by those who reached a better one
            why = "not needed: slower, or later in order"
        elif short:
            why = f"not reached by {fold(short)}"
        else:
            why = "reached too late"
        lines.append(f"address {_named(offer, carriers)}: {why}")

    checked_in = [(e.join_request.host, e.arrived, e.join_request.spent) for e in leader.roster.in_usual_order()]
    return [*lines, *_order(leader), *_last(entries), *timeline_lines(phases(checked_in), leader.formed_at)]


def _order(leader: Leader) -> list[str]:
    """Return both orders of the members, and what the new one saves, where they are not the usual one."""
    if not leader.roster.by_switch:
        return []

    usual, taken = leader.roster.in_usual_order(), [entry for entry, _ in leader.roster.members(None)]
    was, now = (crossings([entry.join_request.topology for entry in order]) for order in (usual, taken))
    lines = [f"ranks by switch: {_hosts(taken)}", f"ranks in the usual order: {_hosts(usual)}"]
    return [*lines, f"neighbours in rank below different switches: {now}, in the usual order {was}"]


def members_without_switch(leader: Leader) -> list[str]:
    """Return what a person should know of an order by switches that are not known."""
    lacking = [e.join_request.host for e in leader.roster.in_usual_order() if not e.join_request.topology]
    if not lacking or not leader.roster.by_switch:
        return []
    return [f"the switches of {fold(lacking)} are unknown: these nodes get neighbouring ranks, in the usual order"]


def _hosts(entries: list[Entry]) -> str:
    return ",".join(entry.join_request.host for entry in entries)


def member_report(membership: Membership | None) -> list[str]:
    """Return how this member came to its leader."""
    if membership is None:
        return []
    return [f"rank 0 is {membership.proven.label}, found by {membership.proven.endpoint.backend}"]


def _named(offer: AdvertisedAddress, carriers: dict[str, Interface]) -> str:
    carrier = carriers.get(offer.address)
    if carrier is None:
        return offer.address
    speed = f"{carrier.speed_mbps / 1000:g} Gb/s" if carrier.speed_mbps else ""
    known = ", ".join(filter(None, (carrier.name, carrier.kind, speed, offer.why)))
    return f"{offer.address} ({known})"


def _last(entries: list[Entry]) -> list[str]:
    first, last = min(entries, key=_time), max(entries, key=_time)
    if first is last:
        return []
    late_s = last.arrived - first.arrived
    return [f"last of {len(entries)} members to check in: {last.label}, {late_s:.2f} s after the first, {first.label}"]


def _time(entry: Entry) -> float:
    return entry.arrived


# What a person hears of a world that has formed: what is odd about it, and for --explain how it came about.


def note_by_leader(leader: Leader, request: Request, observer: Observer, chosen: str) -> None:
    """Tell what rank 0 knows of all; `chosen` is the address that the world uses."""
    if request.orders_by_switch:
        for line in members_without_switch(leader):
            observer.note(line)
    if request.tells is not None:
        for line in difference_lines(leader, chosen, asks_rdma=request.asks_rdma):
            observer.note(line)
    if observer.tell is not None:
        for line in leader_report(leader, chosen):
            observer.tell(line)


def note_by_member(membership: Membership | None, observer: Observer) -> None:
    """Tell what any other member knows."""
    if observer.tell is not None:
        for line in member_report(membership):
            observer.tell(line)


# What the leader says of nodes that are not alike: a warning once the world has formed, or why none does.

MOST_DIFFERENCES = 3  # differences in an error, which is one line
# What stands in a fingerprint or is far off in a clock that has to be told whoever else has it too.
_FULL, _CLOCK_S = "=full", 1.0


def refuse_different_nodes(leader: Leader, request: Request, offer: int) -> bool:
    """Fail where members differ in what they must not, in a world that uses this of the offered addresses."""
    found = _findings(leader.roster, leader.terms, offer, asks_rdma=request.asks_rdma)
    refused = [finding for finding in found if finding.field in request.strict]
    if refused:
        leader.fail(_failure(len(leader.roster), refused))
    return bool(refused)


def _failure(nodes: int, refused: Sequence[Finding]) -> Failure:
    """Return what all members are told: the first few differences, and who to leave out."""
    texts, others = [finding.text for finding in refused[:MOST_DIFFERENCES]], exclude_line(refused)
    rest = [f"and {len(refused) - MOST_DIFFERENCES} more"] if refused[MOST_DIFFERENCES:] else []
    instead = others[0].removeprefix(EXCLUDE) if others else "nodes that agree"
    return Failure("differs", (str(nodes), "; ".join([*texts, *rest]), f"{instead}, or --no-strict"))


def difference_lines(leader: Leader, at: str, *, asks_rdma: bool) -> list[str]:
    """Return what a person should know of the nodes of a world that uses this of the leader's addresses."""
    offer = next((place for place, offered in enumerate(leader.terms.advertised) if offered.address == at), 0)
    found = _findings(leader.roster, leader.terms, offer, asks_rdma=asks_rdma)
    return finding_lines(found) if found else []


def _findings(roster: Roster, terms: Terms, offer: int, *, asks_rdma: bool) -> list[Finding]:
    entries = [entry for entry in roster.entries() if entry.fingerprint]
    carriers = [_carrier(entry, offer) for entry in entries]
    unreached = [
        (address.address, short)
        for index, address in enumerate(terms.advertised[:offer])
        if not address.loopback and (short := [e.join_request.host for e in entries if index not in e.reached])
    ]
    if not asks_rdma and not unreached and len(set(carriers)) == 1 and _are_alike(entries):
        return []  # most worlds are
    members = [
        Compared(
            entry.join_request.host,
            f"{entry.fingerprint} network={carrier}" if carrier else entry.fingerprint,
            entry.clock,
            entry.addresses,
        )
        for entry, carrier in zip(entries, carriers, strict=True)
    ]
    return compare_members(members, asks_rdma=asks_rdma, unreached=unreached)


def _are_alike(entries: Sequence[Entry]) -> bool:
    """Tell whether nothing can be found: one text, clocks within a second, each address once."""
    if len({entry.fingerprint for entry in entries}) > 1 or _FULL in entries[0].fingerprint:
        return False
    clocks = [entry.clock for entry in entries if entry.clock is not None]
    if max((low for low, _ in clocks), default=0.0) - min((high for _, high in clocks), default=0.0) > _CLOCK_S:
        return False
    addresses = [text for entry in entries for text in entry.addresses.split()]
    return len(set(addresses)) == len(addresses)


def _carrier(entry: Entry, offer: int) -> str:
    """Return speed and MTU of the interface by which a member is in the world, "" where it did not tell."""
    own = entry.reached.get(offer, entry.address)
    _, is_there, rest = entry.addresses.partition(f"{own}=")
    return rest.partition(" ")[0] if is_there else ""
