"""Rules about addresses: two hosts with one, bridges for guests, and who is off a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.check import networks
from mingle_hooks.check.report import Finding
from mingle_hooks.check.rules.odd import differences
from mingle_hooks.lint.majority import MAJORITY
from mingle_hooks.schedulers.hostlist import fold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mingle_hooks.check.report import Report


def clashes(report: Report) -> Iterator[Finding]:
    """Name hosts that have one address."""
    for address, hosts in networks.clashes(report.here).items():
        yield Finding("network", hosts, f"{fold(hosts)}: the same address, {address}", hosts[1:])


def bridges(report: Report) -> Iterator[Finding]:
    """Note addresses that several hosts have for guests of their own."""
    found = networks.bridges(report.here)
    for host in report.here:
        for _, address in host.guests:
            found[address] = tuple(dict.fromkeys((*found.get(address, ()), host.name)))
    for address, hosts in found.items():
        if len(hosts) > 1:
            text = f"{fold(hosts)}: {address} is on each node, for local guests only; not used between nodes"
            yield Finding("network", hosts, text, is_note=True)


def absent(report: Report) -> Iterator[Finding]:
    """Name hosts without an address where three quarters of them have one; and say where none is for all."""
    names = tuple(host.name for host in report.here)
    for network in report.networks:
        off = tuple(name for name in names if name not in network.hosts)
        if off and len(network.hosts) >= len(names) * MAJORITY:
            text = f"{fold(off)}: no address on {network.name}, where {len(network.hosts)} others are"
            yield Finding("network", off, text, off)
    if len(names) > 1 and not any(len(network.hosts) == len(names) for network in report.networks):
        yield Finding("network", names, "no network that all hosts share")


def mtus(report: Report) -> Iterator[Finding]:
    """Name whose interface takes other packets than those of the others on its network."""
    yield from _alike(report, "MTU", "mtu")


def speeds(report: Report) -> Iterator[Finding]:
    """Name whose interface has another speed."""
    yield from _alike(report, "Mbit/s", "speed_mbps")


def _alike(report: Report, what: str, field: str) -> Iterator[Finding]:
    hosts = {host.name: {its.address: its for its in host.addresses} for host in report.here}
    for network in report.networks:
        if network.name == networks.ROUTED:
            continue
        ways = zip(network.hosts, network.addresses, strict=True)
        said = {host: getattr(hosts[host][address], field) for host, address in ways}
        known = {host: str(value) for host, value in said.items() if value is not None}
        yield from differences(f"{what} on {network.name}", known, "network")
