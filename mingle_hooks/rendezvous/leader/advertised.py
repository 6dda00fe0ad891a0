"""The addresses that a leader offers its members, the best first."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from mingle_hooks.errors import NetworkError
from mingle_hooks.fabric import interfaces
from mingle_hooks.rendezvous.discovery.resolver import resolve
from mingle_hooks.rendezvous.leader.terms import AdvertisedAddress
from mingle_hooks.rendezvous.protocol.wire import MOST_ADVERTISED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mingle_hooks.fabric.addresses import Address


def advertised(
    prefer: Sequence[interfaces.Preference], environ: Mapping[str, str]
) -> tuple[tuple[AdvertisedAddress, ...], NetworkError | None]:
    """Return what this host can offer, and why that is nothing for other hosts, where it is.

    Loopback comes first, for where all members are on this host it is the surest; it counts only then. Where
    networks were asked for it has to be one of them. `environ` is the user's, for what NCCL was told.
    """
    found = interfaces.interfaces()
    why: NetworkError | None = None
    usable: tuple[interfaces.UsableAddress, ...] = ()
    try:
        usable = interfaces.usable(found, prefer=prefer, environ=environ)
    except NetworkError as error:
        why = error
    own = [
        AdvertisedAddress(str(its.ip), loopback=True)
        for interface in found
        for its in interface.addresses
        if its.ip.is_loopback and interface.up and _is_wanted(interface, its, prefer)
    ]
    return (*own[:2], *(AdvertisedAddress(its.host, why=its.why) for its in usable))[:MOST_ADVERTISED], why


def _is_wanted(interface: interfaces.Interface, its: Address, prefer: Sequence[interfaces.Preference]) -> bool:
    return not prefer or any(preference.matches(interface, its) for preference in prefer)


def named(master_addr: str, timeout_s: float) -> tuple[AdvertisedAddress, ...]:
    """Return the addresses of the MASTER_ADDR that the user exported, none where it cannot be looked up."""
    addresses = resolve(master_addr, timeout_s)
    loopback = [ip_address(host.partition("%")[0]).is_loopback for host in addresses]
    return tuple(map(AdvertisedAddress, addresses, loopback))[:MOST_ADVERTISED]
