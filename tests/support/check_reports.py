"""Reports of hosts that are not there: healthy ones, to break in one place."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

from mingle_hooks.check.report import Address, Finding, Heard, Host, Name, Pair, Report, Space
from mingle_hooks.check.rules import judge as judged
from mingle_hooks.check.session import MOST_WITH_ALL, other_hosts, probe_rounds, shared_networks as shared
from mingle_hooks.rendezvous.fingerprint import dump_fingerprint as dumps

SHM, TMP = "/dev/shm", "/tmp"
_MOST_OF_24 = 250
SLOW, FAST = "10.77.0.0/24", "10.78.0.0/24"


def fingerprint(**parts: str) -> str:
    """Return what a healthy host says of itself, but for these parts."""
    return dumps({"kernel": "6.1.0", "gpus": "8 H100", "limits.memlock": "unlimited", "shm": "ok", **parts})


def host(number: int, count: int) -> Host:
    """Return a healthy host of so many, with an Ethernet and a fast network, and docker's bridge."""
    prefix = 24 if count <= _MOST_OF_24 else 16
    names = tuple(f"node{its}" for its in range(1, min(count, MOST_WITH_ALL) + 1))
    return Host(
        name=f"node{number}",
        hostname=f"node{number}",
        identity=f"{number:016x}",
        gpus=8,
        fingerprint=fingerprint(),
        addresses=(
            Address("ib0", "infiniband", f"10.78.{number >> 8}.{number & 255}", prefix, 4092, 400_000, 20_001),
            Address("eth0", "ethernet", f"10.77.{number >> 8}.{number & 255}", prefix, 1500, 10_000, 20_001),
        ),
        guests=(("docker0", "172.17.0.1"),),
        spaces=(Space(SHM, 100_000, 100_000), Space(TMP, 50_000, 100_000)),
        own_name=(f"10.77.{number >> 8}.{number & 255}",),
        names=tuple(
            Name(name, (f"10.77.{its >> 8}.{its & 255}",))
            for its, name in enumerate(names[: other_hosts(count)], 1)
            if its != number
        ),
        multicast=tuple(Heard(iface, tuple(n for n in names if n != f"node{number}")) for iface in ("ib0", "eth0")),
        clock=(-0.01, 0.01),
    )


def report(count: int = 4, change: Callable[[Host], Host] = lambda its: its, **pairs: Callable[[Pair], Pair]) -> Report:
    """Return a report with its verdict; `change` is for each host, `pair` for each pair."""
    hosts = tuple(change(host(number, count)) for number in range(1, count + 1))
    here = tuple(its for its in hosts if its.missing is None)
    networks = shared(here)
    mtus = {its.address: its.mtu for each in here for its in each.addresses}
    made = []
    for network in networks:
        at = dict(zip(network.hosts, network.addresses, strict=True))
        some = [pair for turn in probe_rounds(len(here)) for pair in turn] if other_hosts(len(here)) else None
        for a, b in some or combinations(range(len(network.hosts)), 2):
            one, other = network.hosts[a], network.hosts[b]
            mtu = min(mtus[at[one]] or 0, mtus[at[other]] or 0)
            made.append(Pair(one, other, network.name, 10, 10, 10, 10, 100, mtu, "", "", "", ""))
    change_pair = pairs.get("pair", lambda its: its)
    pairs_made = tuple(map(change_pair, made))
    return judged(Report(hosts, networks, pairs_made, took_s=1.0, others=other_hosts(len(here))))


def only(name: str, **fields: Any) -> Callable[[Host], Host]:
    """Return what changes one host."""
    return lambda its: its._replace(**fields) if its.name == name else its


def bad(its: Report) -> list[str]:
    """Return what is to mend."""
    return [finding.text for finding in its.findings if not finding.is_note]


def notes(its: Report) -> list[Finding]:
    """Return what is good to know."""
    return [finding for finding in its.findings if finding.is_note]


def between(*hosts: str, network: str | None = None, **fields: Any) -> Callable[[Pair], Pair]:
    """Return what changes the pairs of all of these hosts, by default every pair."""
    return lambda pair: (
        pair._replace(**fields) if {*hosts} <= {pair.one, pair.other} and network in (None, pair.network) else pair
    )
