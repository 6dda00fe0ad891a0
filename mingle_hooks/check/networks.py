"""Which networks hosts share, by the addresses that they tell."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from mingle_hooks.check.report import Network

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mingle_hooks.check.report import Address, Host

# Each host's best address, where they share no network but routers lie between them, or each has a network of its own.
ROUTED = "routed"
# Networks that are probed; a node with more has rails that are alike.
MOST_NETWORKS = 8
# So many hosts with one address are no mistake of two: it is a bridge for each one's own guests.
_MOST_CLASHING = 2


def cidr(its: Address) -> str:
    """Return the network of an address."""
    return str(ipaddress.ip_interface(f"{its.address}/{its.prefix}").network)


def clashes(hosts: Sequence[Host]) -> dict[str, tuple[str, ...]]:
    """Return each address that two hosts or more have, with these hosts; no bridges of guests."""
    guests = bridges(hosts)
    return {address: its for address, its in _owners(hosts).items() if len(its) > 1 and address not in guests}


def bridges(hosts: Sequence[Host]) -> dict[str, tuple[str, ...]]:
    """Return each address that is a bridge for guests on the hosts that have it: nobody has another one there."""
    networks = _networks(hosts)
    is_bridge = {its.address for host in hosts for its in host.addresses if its.kind == "bridge"}
    found = {}
    for address, owners in _owners(hosts).items():
        alone = any(set(known.values()) == {address} for known in networks.values() if address in known.values())
        if alone and len(owners) > 1 and (len(owners) > _MOST_CLASHING or address in is_bridge):
            found[address] = owners
    return found


def shared(hosts: Sequence[Host]) -> tuple[Network, ...]:
    """Return the networks of two hosts or more, the best first.

    IPv6 counts where an interface has no IPv4 that is shared, so that no wire is probed twice.
    """
    guests = bridges(hosts)
    found = {
        name: known
        for name, known in _networks(hosts).items()
        if len(known) > 1 and not set(known.values()) <= guests.keys()
    }
    ifaces = {(host.name, its.address): its.iface for host in hosts for its in host.addresses}
    wires = {name: {(host, ifaces[host, its]) for host, its in known.items()} for name, known in found.items()}
    four = {wire for name, its in wires.items() if ":" not in name for wire in its}
    kept = {name: known for name, known in found.items() if ":" not in name or not wires[name] <= four}
    if len(hosts) > 1 and not any(len(known) == len(hosts) for known in kept.values()):
        kept |= _routed(hosts)
    order = sorted(kept, key=lambda name: (_place(hosts, kept[name]), -len(kept[name])))
    return tuple(Network(name, tuple(kept[name]), tuple(kept[name].values())) for name in order[:MOST_NETWORKS])


def _owners(hosts: Iterable[Host]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for host in hosts:
        for its in host.addresses:
            found[its.address] = (*found.get(its.address, ()), host.name)
    return found


def _networks(hosts: Iterable[Host]) -> dict[str, dict[str, str]]:
    """Return network -> host -> its first address there."""
    found: dict[str, dict[str, str]] = {}
    for host in hosts:
        for its in host.addresses:
            found.setdefault(cidr(its), {}).setdefault(host.name, its.address)
    return found


def _routed(hosts: Sequence[Host]) -> dict[str, dict[str, str]]:
    """Return each host's best address of a family that all have; nothing where there is none."""
    for is_six in (False, True):
        best = {
            host.name: next((its.address for its in host.addresses if (":" in its.address) == is_six), "")
            for host in hosts
        }
        if all(best.values()):
            return {ROUTED: best}
    return {}


def _place(hosts: Sequence[Host], known: dict[str, str]) -> float:
    """Return how far in front a network's addresses stand on its hosts."""
    places = [[its.address for its in host.addresses].index(known[host.name]) for host in hosts if host.name in known]
    return sum(places) / len(places)
