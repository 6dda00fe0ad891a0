"""The rule about multicast: who hears nothing, and who is not heard. A network without any is no fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.check.blame import causes
from mingle_hooks.check.report import Finding
from mingle_hooks.check.rules.paths import unsound

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from mingle_hooks.check.blame import Way
    from mingle_hooks.check.report import Heard, Report

_TEXTS = {
    "in": "{a}: receives no multicast on {n}",
    "out": "{a}: others do not receive its multicast on {n}",
    "both": "{a}: no multicast between it and the others on {n}",
    "pair": "{a} and {b}: no multicast between them on {n}",
    "way": "{b}: does not receive multicast from {a} on {n}",
    "all": "{n}: no multicast; members without a scheduler need --master or --directory",
}


def multicast(report: Report) -> Iterator[Finding]:
    """Make findings of who heard whom."""
    # Of many only some say a word: those that anybody heard.
    said = {sender for host in report.here for its in host.multicast for sender in its.hosts}
    senders = {host.name for host in report.here} if report.others is None else said
    doubtful = {host.name for host in report.here if host.is_doubtful}
    ifaces = {(host.name, its.address): its.iface for host in report.here for its in host.addresses}
    heard = {(host.name, its.iface): its for host in report.here for its in host.multicast}
    for network in report.networks:
        at = {
            host: heard[host, ifaces[host, address]]
            for host, address in zip(network.hosts, network.addresses, strict=True)
            if (host, ifaces[host, address]) in heard
        }
        ways = [(sender, host) for sender in at if sender in senders for host in at if host != sender]
        lost = unsound(report, network.name)
        yield from _on(network.name, at, [way for way in ways if way not in lost and doubtful.isdisjoint(way)])


def _on(name: str, heard: dict[str, Heard], tested: Collection[Way]) -> Iterator[Finding]:
    bad: list[Way] = [(sender, host) for sender, host in tested if sender not in heard[host].hosts]
    for cause in causes(bad, tested):
        hosts = () if cause.direction == "all" else cause.hosts
        fault = next((f" ({heard[host].fault})" for host in hosts if heard[host].fault), "")
        text = _TEXTS[cause.direction].format(**dict(zip("ab", hosts, strict=False)), n=name) + fault
        yield Finding("network", hosts, text, is_note=cause.direction == "all" or len(heard) == 2)  # noqa: PLR2004
