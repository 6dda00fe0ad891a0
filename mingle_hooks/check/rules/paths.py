"""Rules about the ways between hosts: reachable or not, ports, loss, packets' sizes, round-trip times."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from mingle_hooks.check.blame import causes
from mingle_hooks.check.report import Finding
from mingle_hooks.schedulers.hostlist import fold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mingle_hooks.check.blame import Cause, Way
    from mingle_hooks.check.report import Pair, Report

# One datagram may always be lost.
_LEAST_LOST, _LEAST_SHARE = 2, 0.1
# A host is far off where its round trips take so many times, and so many microseconds, more than those of the others.
_FAR, _FAR_US = 10, 2000


def reach(report: Report) -> Iterator[Finding]:
    """Name who does not reach whom, neither by datagrams nor by TCP."""
    for name, pairs in _by_network(report).items():
        tested = [way for pair in pairs for way in _ways(pair)]
        bad = [way for pair in pairs if is_cut(pair) for way in _ways(pair)]
        for cause in causes(bad, tested):
            yield _told(cause, _CUT, name, f"{len(cause.ways) // 2}")


def is_cut(pair: Pair) -> bool:
    """Tell whether nothing at all went between two hosts."""
    return not pair.there and not pair.back and "" not in (pair.open_there, pair.open_back)


def ports(report: Report) -> Iterator[Finding]:
    """Name whose ports cannot be reached, where datagrams can."""
    for name, pairs in _by_network(report).items():
        tried: dict[Way, str] = {}
        for pair in pairs:
            if not is_cut(pair) and bool(pair.there) == bool(pair.back):  # else loss() tells it
                said = zip(_ways(pair), (pair.open_there, pair.open_back), strict=True)
                tried |= {way: why for way, why in said if why is not None}
        for cause in causes([way for way, why in tried.items() if why], tried):
            yield _told(cause, _CLOSED, name, tried[min(cause.ways)])


def loss(report: Report) -> Iterator[Finding]:
    """Name who loses datagrams, and which way. None at all while TCP passes is a firewall's rule: a note."""
    for name, pairs in _by_network(report).items():
        counted: dict[Way, tuple[int, int]] = {}
        for pair in pairs:
            if pair.sent and pair.sent_back and not is_cut(pair):
                counted |= zip(_ways(pair), ((pair.sent, pair.there), (pair.sent_back, pair.back)), strict=True)
        bad = [way for way, its in counted.items() if _is_lossy(*its)]
        for cause in causes(bad, counted):
            sent, came = (sum(counted[way][part] for way in cause.ways) for part in (0, 1))
            made = _told(cause, _LOST, name, f"{round(100 * (sent - came) / sent)} %")
            is_rule = cause.direction == "all" and not came
            yield made._replace(is_note=True, text=f"{name}: datagrams do not pass, TCP does") if is_rule else made


def unsound(report: Report, network: str) -> set[Way]:
    """Return the ways on a network where datagrams are lost, or nobody knows: what else is lost there is not new."""
    unknown = {way for pair in report.unknown if pair.network == network for way in _ways(pair)}
    pairs = [pair for pair in report.pairs if pair.network == network]
    there = {(pair.one, pair.other) for pair in pairs if is_cut(pair) or _is_lossy(pair.sent, pair.there)}
    return (
        unknown
        | there
        | {(pair.other, pair.one) for pair in pairs if is_cut(pair) or _is_lossy(pair.sent_back, pair.back)}
    )


def _loses(pair: Pair) -> bool:
    return _is_lossy(pair.sent, pair.there) or _is_lossy(pair.sent_back, pair.back)


def _is_lossy(sent: int, came: int) -> bool:
    return sent - came >= max(_LEAST_LOST, sent * _LEAST_SHARE)


def unknown(report: Report) -> Iterator[Finding]:
    """Note how many pairs nothing is known of, and why."""
    busy = {host.name: host.late_s for host in report.here if host.late_s or host.dropped}
    for_busy = sum(not busy.keys().isdisjoint((pair.one, pair.other)) for pair in report.unknown)
    if for_busy:
        late_s = max(busy.values())
        why = f"nothing ran for {late_s:.1f} s (--timeout)" if late_s else "not all packets were read in time"
        text = f"{fold(tuple(busy))}: too busy to measure, {why}; {_pairs(for_busy)} not known"
        yield Finding("network", tuple(busy), text, is_note=True)
    if for_room := len(report.unknown) - for_busy:
        text = f"a kernel's neighbour table was full at times (net.ipv4.neigh.default.gc_thresh3); {_pairs(for_room)}"
        yield Finding("network", (), f"{text} not known", is_note=True)


def _pairs(count: int) -> str:
    return f"{count} pair{'s are' if count != 1 else ' is'}"


def sizes(report: Report) -> Iterator[Finding]:
    """Name between whom packets do not pass that both interfaces take; where any may be lost, that tells nothing."""
    mtus = {its.address: its.mtu for host in report.here for its in host.addresses}
    at = {
        (its.name, host): address
        for its in report.networks
        for host, address in zip(its.hosts, its.addresses, strict=True)
    }
    for name, pairs in _by_network(report).items():
        known = [pair for pair in pairs if pair.mtu is not None and not _loses(pair)]
        bad: dict[Way, int] = {}
        for pair in known:
            ends = [mtus.get(at.get((name, host), "")) for host in (pair.one, pair.other)]
            both = [mtu for mtu in ends if mtu is not None]
            if len(both) == len(ends) and pair.mtu is not None and pair.mtu < min(both):
                bad |= dict.fromkeys(_ways(pair), pair.mtu)
        for cause in causes(bad, [way for pair in known for way in _ways(pair)]):
            yield _told(cause, _SMALL, name, str(min(bad[way] for way in cause.ways)))


def times(report: Report) -> Iterator[Finding]:
    """Note hosts that are much farther off than the others."""
    for name, pairs in _by_network(report).items():
        rtts: dict[str, list[int]] = {}
        for pair in pairs:
            for host in (pair.one, pair.other):
                if pair.rtt_us is not None:
                    rtts.setdefault(host, []).append(pair.rtt_us)
        if len(rtts) > 2:  # noqa: PLR2004 - of two nobody is the slow one
            usual = median(median(its) for its in rtts.values())
            for host, its in rtts.items():
                mine = median(its)
                if mine > usual * _FAR and mine > usual + _FAR_US:
                    text = f"{host}: round trips of {mine / 1000:.1f} ms on {name}, {usual / 1000:.1f} ms is usual"
                    yield Finding("network", (host,), text, is_note=True)


def _by_network(report: Report) -> dict[str, list[Pair]]:
    found: dict[str, list[Pair]] = {}
    for pair in report.pairs:
        found.setdefault(pair.network, []).append(pair)
    return found


def _ways(pair: Pair) -> tuple[Way, Way]:
    return (pair.one, pair.other), (pair.other, pair.one)


# Direction of a cause -> what is said, of host a (and b), network n and a detail d.
_CUT = {
    "both": "{a}: does not reach {d} of the others on {n}",
    "pair": "{a} and {b}: do not reach each other on {n}",
    "all": "{n}: hosts do not reach each other",
}
_CLOSED = {
    "in": "{a}: others do not reach its port on {n} ({d}); a firewall, or another --port-range",
    "out": "{a}: reaches no port of the others on {n} ({d})",
    "both": "{a}: no TCP between it and the others on {n} ({d})",
    "pair": "{a} and {b}: no TCP between them on {n} ({d})",
    "way": "{a}: does not reach the port of {b} on {n} ({d})",
    "all": "{n}: ports cannot be reached ({d}); a firewall, or another --port-range",
}
_LOST = {
    "in": "{a}: {d} of the packets to it on {n} are lost",
    "out": "{a}: {d} of the packets from it on {n} are lost",
    "both": "{a}: {d} of the packets from and to it on {n} are lost",
    "pair": "{a} and {b}: {d} of the packets between them on {n} are lost",
    "way": "{a}: {d} of the packets from it to {b} on {n} are lost",
    "all": "{n}: {d} of all datagrams are lost",
}
_SMALL = {
    "both": "{a}: no packet larger than {d} octets passes on {n}, though the interfaces' MTU is larger",
    "pair": "{a} and {b}: no packet larger than {d} octets passes between them on {n}, though their MTU is larger",
    "all": "{n}: no packet larger than {d} octets passes, though the interfaces' MTU is larger",
}


def _told(cause: Cause, texts: dict[str, str], network: str, detail: str) -> Finding:
    """Make the finding of a cause; of a pair one has to go."""
    hosts = () if cause.direction == "all" else cause.hosts
    names = dict(zip("ab", hosts, strict=False))
    return Finding("network", hosts, texts[cause.direction].format(**names, n=network, d=detail), hosts[-1:])
