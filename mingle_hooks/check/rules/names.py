"""Rules about names: what each host's name is to itself, and to the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.check.blame import causes
from mingle_hooks.check.report import Finding
from mingle_hooks.schedulers.hostlist import fold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mingle_hooks.check.blame import Way
    from mingle_hooks.check.report import Host, Report

_LOOPBACK = ("127.", "::1")
_TEXTS = {
    "in": "{a}: its name {d} others",
    "out": "{a}: others' names {d} it",
    "both": "{a}: its name and others' names {d} each other",
    "pair": "{a} and {b}: their names {d} each other",
    "way": "{b}: its name {d} {a}",
    "all": "the hosts' names {d} each other",
}
_UNKNOWN, _SILENT = "are not known to", "get no answer in time from the name service of"


def own(report: Report) -> Iterator[Finding]:
    """Name hosts whose own name leads to loopback, where nobody else can reach what listens there, or nowhere."""
    seen: dict[str, list[str]] = {}
    for host in report.here if len(report.hosts) > 1 else ():
        loops = [its for its in host.own_name or () if its.startswith(_LOOPBACK)]
        if loops:
            text = f"its own name is {loops[0]}: other nodes cannot reach servers that listen on it (/etc/hosts)"
            seen.setdefault(text, []).append(host.name)
        elif host.own_name is None and not host.late_s:
            seen.setdefault("the name service does not answer in time for its own name", []).append(host.name)
        elif host.own_name == ():
            seen.setdefault("its own name is not known there", []).append(host.name)
    for text, hosts in seen.items():
        blamed = tuple(hosts) if len(hosts) * 2 < len(report.here) else ()
        yield Finding("node", tuple(hosts), f"{fold(hosts)}: {text}", blamed)


def others(report: Report) -> Iterator[Finding]:
    """Name whose name others do not know, or who knows none."""
    known = {its.name: its for its in report.here}
    tested: dict[Way, tuple[str, ...] | None] = {}
    for host in report.here:
        tested |= {
            (host.name, its.name): its.addresses
            for its in host.names
            if its.name in known and not (host.late_s and its.addresses is None)
        }
    for is_silent in (False, True):
        bad = [way for way, its in tested.items() if (its is None if is_silent else its == ())]
        for cause in causes(bad, tested):
            hosts = () if cause.direction == "all" else cause.hosts
            names = dict(zip("ab", hosts, strict=False))
            text = _TEXTS[cause.direction].format(**names, d=_SILENT if is_silent else _UNKNOWN)
            if cause.direction in ("in", "way"):
                text = text.replace("its name are", "its name is").replace("its name get", "its name gets")
            yield Finding("node", hosts, text)
    for host in report.here:
        yield from _elsewhere(host, {way[0]: its for way, its in tested.items() if way[1] == host.name and its})


def _elsewhere(host: Host, said: dict[str, tuple[str, ...] | None]) -> Iterator[Finding]:
    """Name who takes a host's name for an address that it does not have."""
    mine = {*host.every, *(its.address for its in host.addresses)}
    wrong: dict[str, list[str]] = {}
    for asked, addresses in said.items():
        if addresses and mine.isdisjoint(addresses):
            wrong.setdefault(addresses[0], []).append(asked)
    for address, hosts in wrong.items():
        text = f"{fold(hosts)}: {host.name} is {address} there, an address that it does not have"
        yield Finding("node", (*hosts, host.name), text)
