"""How a world formed, for --explain: which address and why, which were not reached and by whom, who came last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.fabric.interfaces import interfaces
from mingle_hooks.schedulers.hostlist import fold

if TYPE_CHECKING:
    from mingle_hooks.fabric.interfaces import Interface
    from mingle_hooks.rendezvous.leader.leader import Leader
    from mingle_hooks.rendezvous.leader.roster import Entry
    from mingle_hooks.rendezvous.leader.terms import AdvertisedAddress
    from mingle_hooks.rendezvous.member.membership import Membership


def of_leader(leader: Leader, chosen: str) -> list[str]:
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
    from mingle_hooks.rendezvous.leader import timeline

    told = [(e.join_request.host, e.arrived, e.join_request.spent) for e in leader.roster.in_usual_order()]
    return [*lines, *_order(leader), *_last(entries), *timeline.lines(timeline.phases(told), leader.formed_at)]


def _order(leader: Leader) -> list[str]:
    """Return both orders of the members, and what the new one saves, where they are not the usual one."""
    if not leader.roster.by_switch:
        return []
    from mingle_hooks.rendezvous.leader.order import crossings

    usual, taken = leader.roster.in_usual_order(), [entry for entry, _ in leader.roster.members(None)]
    was, now = (crossings([entry.join_request.topology for entry in order]) for order in (usual, taken))
    lines = [f"ranks by switch: {_hosts(taken)}", f"ranks in the usual order: {_hosts(usual)}"]
    return [*lines, f"neighbours in rank below different switches: {now}, in the usual order {was}"]


def without_switch(leader: Leader) -> list[str]:
    """Return what a person should know of an order by switches that are not known."""
    lacking = [e.join_request.host for e in leader.roster.in_usual_order() if not e.join_request.topology]
    if not lacking or not leader.roster.by_switch:
        return []
    return [f"the switches of {fold(lacking)} are unknown: these nodes get neighbouring ranks, in the usual order"]


def _hosts(entries: list[Entry]) -> str:
    return ",".join(entry.join_request.host for entry in entries)


def of_member(membership: Membership | None) -> list[str]:
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
