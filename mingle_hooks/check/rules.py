"""Rules of `mingle check`: each makes findings out of a report."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import exp, lgamma
from statistics import median
from typing import Literal, NamedTuple

from mingle_hooks.check.report import (
    Address,
    Finding,
    Flow,
    Heard,
    Host,
    Network,
    Pair,
    Report,
    Space,
    speed_text,
    with_findings,
)
from mingle_hooks.rendezvous.compare import KINDS, MAJORITY, Compared, compare_members
from mingle_hooks.schedulers.hostlist import fold

# Which networks hosts share.

# Each host's best address, where they share no network but routers lie between them, or each has a network of its own.
ROUTED = "routed"
# Networks that are probed; a node with more has rails that are alike.
MOST_NETWORKS = 8
# So many hosts with one address are no mistake of two: it is a bridge for each one's own guests.
_MOST_CLASHING = 2


def cidr(its: Address) -> str:
    """Return the network of an address."""
    return str(ipaddress.ip_interface(f"{its.address}/{its.prefix}").network)


def clashing_addresses(hosts: Sequence[Host]) -> dict[str, tuple[str, ...]]:
    """Return each address that two hosts or more have, with these hosts; no bridges of guests."""
    guests = bridge_addresses(hosts)
    return {address: its for address, its in _owners(hosts).items() if len(its) > 1 and address not in guests}


def bridge_addresses(hosts: Sequence[Host]) -> dict[str, tuple[str, ...]]:
    """Return each address that is a bridge for guests on the hosts that have it: nobody has another one there."""
    networks = _networks(hosts)
    is_bridge = {its.address for host in hosts for its in host.addresses if its.kind == "bridge"}
    found = {}
    for shared, owners in _owners(hosts).items():
        alone = any(set(known.values()) == {shared} for known in networks.values() if shared in known.values())
        if alone and len(owners) > 1 and (len(owners) > _MOST_CLASHING or shared in is_bridge):
            found[shared] = owners
    return found


def shared_networks(hosts: Sequence[Host]) -> tuple[Network, ...]:
    """Return the networks of two hosts or more, the best first.

    IPv6 counts where an interface has no IPv4 that is shared, so that no wire is probed twice.
    """
    guests = bridge_addresses(hosts)
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


# Rules about what should be alike: the odd host in each thing.

# Of these the check knows more than a fingerprint tells, and has rules of their own.
_OWN = ("shm", "tmp")


def odd_hosts(report: Report) -> Iterator[Finding]:
    """Name who differs from three quarters of those of its kind; nobody is blamed where there is no such majority."""
    members = [Compared(host.name, host.fingerprint) for host in report.here]
    for found in compare_members(members):
        if found.field not in _OWN:
            hosts = found.hosts or tuple(host.name for host in report.here)
            remedy = _USERS_REMEDY if found.field in _USERS_FIELDS else ""
            remedy = _LIMITS_REMEDY if found.field == "limits" else remedy
            yield Finding("node", hosts, found.text, found.hosts, found.field == KINDS, remedy)


def different_nodes(what: str, values: Mapping[str, str]) -> Iterator[Finding]:
    """Name the hosts that differ in one thing from three quarters of the others; all, where there is no majority."""
    groups: dict[str, list[str]] = {}
    for host, value in values.items():
        groups.setdefault(value, []).append(host)
    if len(groups) <= 1:
        return
    usual = max(groups, key=lambda value: len(groups[value]))
    agreed = len(groups[usual])
    if agreed < len(values) * MAJORITY:
        parts = "; ".join(f"{fold(hosts)} {value}" for value, hosts in groups.items())
        yield Finding("network", tuple(values), f"no majority for {what}: {parts}")
        return
    rest = "the other" if agreed == 1 else f"{agreed} others"
    for value, hosts in groups.items():
        if value != usual:
            text = f"{fold(hosts)}: {what} {value}, {rest} {usual}"
            yield Finding("network", tuple(hosts), text, tuple(hosts))


# Rules about addresses: two hosts with one, bridges for guests, and who is off a network.


def address_clashes(report: Report) -> Iterator[Finding]:
    """Name hosts that have one address."""
    for address, hosts in clashing_addresses(report.here).items():
        yield Finding("network", hosts, f"{fold(hosts)}: the same address, {address}", hosts[1:])


def guest_bridges(report: Report) -> Iterator[Finding]:
    """Note addresses that several hosts have for guests of their own."""
    found = bridge_addresses(report.here)
    for host in report.here:
        for _, address in host.guests:
            found[address] = tuple(dict.fromkeys((*found.get(address, ()), host.name)))
    for address, hosts in found.items():
        if len(hosts) > 1:
            text = f"{fold(hosts)}: {address} is on each node, for local guests only; not used between nodes"
            yield Finding("network", hosts, text, is_note=True)


def absent_from_network(report: Report) -> Iterator[Finding]:
    """Name hosts without an address where three quarters of them have one; and say where none is for all."""
    names = tuple(host.name for host in report.here)
    for network in report.networks:
        off = tuple(name for name in names if name not in network.hosts)
        if off and len(network.hosts) >= len(names) * MAJORITY:
            text = f"{fold(off)}: no address on {network.name}, where {len(network.hosts)} others are"
            yield Finding("network", off, text, off)
    if len(names) > 1 and not any(len(network.hosts) == len(names) for network in report.networks):
        yield Finding("network", names, "no network that all hosts share")


def different_mtus(report: Report) -> Iterator[Finding]:
    """Name whose interface takes other packets than those of the others on its network."""
    yield from _alike(report, "MTU", "mtu")


def different_speeds(report: Report) -> Iterator[Finding]:
    """Name whose interface has another speed."""
    yield from _alike(report, "Mbit/s", "speed_mbps")


def _alike(report: Report, what: str, field: str) -> Iterator[Finding]:
    hosts = {host.name: {end.address: end for end in host.addresses} for host in report.here}
    for network in report.networks:
        if network.name == ROUTED:
            continue
        ends = zip(network.hosts, network.addresses, strict=True)
        values = {host: getattr(hosts[host][address], field) for host, address in ends}
        known = {host: str(value) for host, value in values.items() if value is not None}
        yield from different_nodes(f"{what} on {network.name}", known)


# The rule about bandwidth: who is slower than a third of what is usual, with all that it was tried with.

# What one connection carries differs from try to try, on healthy networks by less than this.
SLOW = 1 / 3


def slow_hosts(report: Report) -> Iterator[Finding]:
    """Name hosts that send or receive slowly, whoever is at the other end; else the two between whom it is slow."""
    if not report.flows:
        return
    usual = median(flow.mbits or 0 for flow in report.flows)
    slow: dict[str, str] = {}
    for host in report.here:
        sent = [flow.mbits or 0 for flow in report.flows if flow.sender == host.name]
        came = [flow.mbits or 0 for flow in report.flows if flow.receiver == host.name]
        parts = [
            f"{verb} {speed_text(max(speeds))}"
            for verb, speeds in (("sends", sent), ("receives", came))
            if len(speeds) > 1 and max(speeds) < usual * SLOW
        ]
        if parts:
            slow[host.name] = " and ".join(parts)
    if len(slow) > report.most_excluded:
        text = f"{fold(tuple(slow))}: slow together, less than a third of {speed_text(usual)}, which is usual"
        yield Finding("network", tuple(slow), text)
    else:
        for name, what in slow.items():
            yield Finding("network", (name,), f"{name}: {what}, {speed_text(usual)} is usual", (name,))
    for flow in slow_suspects(report.flows):
        if slow.keys().isdisjoint((flow.sender, flow.receiver)):
            text = (
                f"{flow.sender}: sends {speed_text(flow.mbits or 0)} to {flow.receiver}, {speed_text(usual)} is usual"
            )
            yield Finding("network", (flow.sender, flow.receiver), text)


def slow_suspects(flows: tuple[Flow, ...]) -> tuple[Flow, ...]:
    """Return the flows that are slow, and deserve a second look by themselves."""
    usual = median(flow.mbits or 0 for flow in flows) if flows else 0
    return tuple(flow for flow in flows if (flow.mbits or 0) < usual * SLOW)


# Rules about one host by itself: whether it is there, its clock, its directories, its GPUs.

# A clock is off where its whole interval is beyond this, in seconds.
_CLOCK_S = 1.0
# A directory is full where less is free than both, or than the least.
_FULL_MB, _FULL_SHARE = 64, 0.02


def missing_hosts(report: Report) -> Iterator[Finding]:
    """Name the hosts of which nothing was heard; where many are late, starting is slow, and nobody is blamed."""
    late = [host for host in report.hosts if host.is_late]
    is_slow = len(late) > report.most_excluded
    if is_slow:
        names = tuple(host.name for host in late)
        text = f"starting is slow: {len(late)} of {len(report.hosts)} hosts are late, {fold(names)}: {late[0].missing}"
        yield Finding("missing", names, text, remedy="user: check again with a longer --start")
    for host in report.hosts:
        if host.missing is not None and not (is_slow and host.is_late):
            yield Finding("missing", (host.name,), f"{host.name}: {host.missing}", (host.name,))


def same_machine_twice(report: Report) -> Iterator[Finding]:
    """Name hosts that are one machine under two names."""
    machines: dict[str, tuple[str, ...]] = {}
    for host in report.here:
        machines[host.identity] = (*machines.get(host.identity, ()), host.name)
    for names in machines.values():
        if len(names) > 1:
            yield Finding("node", names, f"{fold(names)}: one machine under {len(names)} names", names[1:])


def wrong_clocks(report: Report) -> Iterator[Finding]:
    """Name hosts whose clock differs from the others'."""
    known = {host.name: host.clock for host in report.here if host.clock is not None}
    if not known:
        return
    # Of intervals that all hold the same time no one begins after others end, however long a busy host's is.
    least, most = (median(ends) for ends in zip(*known.values(), strict=True))
    usual = (least + most) / 2
    for name, (low, high) in known.items():
        if low - most > _CLOCK_S or high - least < -_CLOCK_S:
            off_s = (low + high) / 2 - usual
            text = f"{name}: its clock is {abs(off_s):.1f} s {'ahead' if off_s > 0 else 'behind'}"
            yield Finding("node", (name,), text, (name,))


def space_trouble(report: Report) -> Iterator[Finding]:
    """Name directories that are full, or do not answer; one that all hosts share is nobody's own."""
    seen: dict[tuple[str, str], list[str]] = {}
    for host in report.here:
        for its in host.spaces:
            if (trouble := _trouble(its)) is not None:
                seen.setdefault((its.path, trouble), []).append(host.name)
    for (path, trouble), names in seen.items():
        blamed = tuple(names) if len(names) < len(report.here) or len(names) == 1 else ()
        yield Finding("node", tuple(names), f"{fold(names)}: {path} {trouble}", blamed)


def _trouble(its: Space) -> str | None:
    if its.free_mb is None or its.total_mb is None:
        return "does not answer"
    if its.free_mb >= _FULL_MB or (its.total_mb and its.free_mb > its.total_mb / 2):
        return None
    return f"is full: {its.free_mb} of {its.total_mb} MiB are free"


def kernel_trouble(report: Report) -> Iterator[Finding]:
    """Name hosts whose kernel has no room for so many neighbours; where most have none, none is the odd one."""
    full = tuple(host.name for host in report.here if host.refused)
    if full:
        most = max(host.refused for host in report.here)
        text = f"{fold(full)}: the kernel's neighbour table is full; up to {most} hosts are out of reach"
        blamed = full if len(full) * 2 < len(report.here) else ()
        yield Finding("node", blamed, f"{text} (net.ipv4.neigh.default.gc_thresh3)", blamed)


def gpu_trouble(report: Report) -> Iterator[Finding]:
    """Name what hosts say of their own GPUs."""
    for host in report.here:
        for fault in host.faults:
            yield Finding("node", (host.name,), f"{host.name}: {fault}", (host.name,))


# Whom to name where ways between hosts are bad: a host for all that is its own, else a pair, else the network.

Way = tuple[str, str]  # from a host to another
Direction = Literal["in", "out", "both", "pair", "way", "all"]

# Of a host's ways in one direction so many, and at least half of them, are bad where it is the host.
_LEAST_OF_A_HOST = 2
# Where more than two thirds of all ways are bad it is nobody's own.
_MOST_OF_HOSTS = 2 / 3


class Cause(NamedTuple):
    """What is wrong: with what comes to a host, or goes out, or both; with a pair, or one way of it; or with all."""

    direction: Direction
    hosts: tuple[str, ...]
    ways: frozenset[Way]  # those that it explains

    @property
    def named(self) -> tuple[str, ...]:
        """The hosts to name: none, where it is all of them."""
        return () if self.direction == "all" else self.hosts

    def text(self, texts: Mapping[str, str], network: str, detail: str = "") -> str:
        """Return the text of its direction, of hosts a and b, network n and a detail d."""
        return texts[self.direction].format(**dict(zip("ab", self.named, strict=False)), n=network, d=detail)


def find_causes(bad: Iterable[Way], tested: Collection[Way]) -> tuple[Cause, ...]:
    """Return the fewest causes that explain all ways that are bad, those that explain most first."""
    left, hosts = set(bad), list(dict.fromkeys(host for way in tested for host in way))
    if len(hosts) > 2 and len(left) > len(set(tested)) * _MOST_OF_HOSTS:  # noqa: PLR2004 - more than one pair
        return (Cause("all", tuple(hosts), frozenset(left)),)
    out, into = Counter(one for one, _ in tested), Counter(other for _, other in tested)
    found = []
    while left:
        most = max((_of_host(host, left, out[host], into[host]) for host in hosts), key=lambda cause: len(cause.ways))
        if not most.ways:
            break
        found.append(most)
        left -= most.ways
    return (*found, *_of_pairs(left))


def _of_host(host: str, bad: set[Way], count_out: int, count_in: int) -> Cause:
    """Return what a host itself explains, nothing where too few of its ways are bad."""
    out = frozenset(way for way in bad if way[0] == host)
    into = frozenset(way for way in bad if way[1] == host)
    is_out = len(out) >= max(_LEAST_OF_A_HOST, count_out / 2)
    is_in = len(into) >= max(_LEAST_OF_A_HOST, count_in / 2)
    direction: Direction = "both" if is_out and is_in else "out" if is_out else "in"
    return Cause(direction, (host,), (out if is_out else frozenset()) | (into if is_in else frozenset()))


def _of_pairs(bad: set[Way]) -> list[Cause]:
    found = []
    for one, other in sorted(bad):
        if (other, one) not in bad:
            found.append(Cause("way", (one, other), frozenset({(one, other)})))
        elif one < other:
            found.append(Cause("pair", (one, other), frozenset({(one, other), (other, one)})))
    return found


# Rules about the ways between hosts: reachable or not, ports, loss, packets' sizes, round-trip times.

# One datagram may always be lost.
_LEAST_LOST, _LEAST_SHARE = 2, 0.1
# Of what a network loses between all hosts, less than this share is a note.
_LEAST_SHARE_OF_ALL = 0.02
# A host or a pair is blamed for a loss only where chance would pick any one so seldom: once in 10,000 checks.
_LEAST_CHANCE = 1e-4
# A host is far off where its round trips take so many times, and so many microseconds, more than those of the others.
_FAR, _FAR_US = 10, 2000


def unreachable(report: Report) -> Iterator[Finding]:
    """Name who does not reach whom, neither by datagrams nor by TCP."""
    for name, pairs in _by_network(report).items():
        tested = [way for pair in pairs for way in _ways(pair)]
        bad = [way for pair in pairs if is_cut(pair) for way in _ways(pair)]
        for cause in find_causes(bad, tested):
            yield _finding(cause, _CUT, name, f"{len(cause.ways) // 2}")


def is_cut(pair: Pair) -> bool:
    """Tell whether nothing at all went between two hosts."""
    return not pair.there and not pair.back and "" not in (pair.open_there, pair.open_back)


def closed_ports(report: Report) -> Iterator[Finding]:
    """Name whose ports cannot be reached, where datagrams can."""
    for name, pairs in _by_network(report).items():
        tried: dict[Way, str] = {}
        for pair in pairs:
            if not is_cut(pair) and bool(pair.there) == bool(pair.back):  # else loss() tells it
                said = zip(_ways(pair), (pair.open_there, pair.open_back), strict=True)
                tried |= {way: why for way, why in said if why is not None}
        for cause in find_causes([way for way, why in tried.items() if why], tried):
            yield _finding(cause, _CLOSED, name, tried[min(cause.ways)])


def lost_datagrams(report: Report) -> Iterator[Finding]:
    """Name who loses more datagrams than the others do, and which way; what all lose is the network's.

    None at all while TCP passes is a firewall's rule: a note.
    """
    for name, pairs in _by_network(report).items():
        counted: dict[Way, tuple[int, int]] = {}
        for pair in pairs:
            if pair.sent and pair.sent_back and not is_cut(pair):
                counted |= _datagrams(pair)
        left, everything = dict(counted), _Loss.of(counted.values())
        for cause in find_causes([way for way, its in counted.items() if _is_lossy(*its)], counted):
            loss = _Loss.of(counted[way] for way in cause.ways)
            if cause.direction != "all" and loss.chance(everything) < _LEAST_CHANCE / len(counted):
                yield _finding(cause, _LOST, name, f"{100 * loss.share:.0f} %")
                left = {way: its for way, its in left.items() if way not in cause.ways}
        if any(_is_lossy(*its) for its in left.values()):
            share = _Loss.of(left.values()).share
            is_rule = share == 1
            text = "datagrams do not pass, TCP does" if is_rule else f"{100 * share:.0f} % of all datagrams are lost"
            yield Finding("network", (), f"{name}: {text}", is_note=is_rule or share < _LEAST_SHARE_OF_ALL)


class _Loss(NamedTuple):
    """Datagrams that were sent, and how many of them were lost."""

    sent: int
    lost: int

    @classmethod
    def of(cls, ways: Iterable[tuple[int, int]]) -> _Loss:
        """Return the sum of ways, of each what was sent and what came."""
        counts = list(ways)
        return cls(sum(sent for sent, _ in counts), sum(sent - came for sent, came in counts))

    @property
    def share(self) -> float:
        """The part that was lost."""
        return self.lost / self.sent

    def chance(self, everything: _Loss) -> float:
        """Return how likely this part would lose as many of what is lost altogether if that fell on all alike.

        The upper tail of the hypergeometric distribution, as in Fisher's exact test.
        """
        rest, whole = everything.sent - self.sent, _log_comb(everything.sent, everything.lost)
        return sum(
            exp(_log_comb(self.sent, k) + _log_comb(rest, everything.lost - k) - whole)
            for k in range(self.lost, min(self.sent, everything.lost) + 1)
            if everything.lost - k <= rest
        )


def _log_comb(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def unsound(report: Report, network: str) -> set[Way]:
    """Return the ways on a network where datagrams are lost, or nobody knows: what else is lost there is not new."""
    unknown = {way for pair in report.unknown if pair.network == network for way in _ways(pair)}
    pairs = [pair for pair in report.pairs if pair.network == network]
    return unknown | {
        way for pair in pairs for way, counts in _datagrams(pair).items() if is_cut(pair) or _is_lossy(*counts)
    }


def _datagrams(pair: Pair) -> dict[Way, tuple[int, int]]:
    """Return how many datagrams were sent each way, and how many of them arrived."""
    there, back = _ways(pair)
    return {there: (pair.sent, pair.there), back: (pair.sent_back, pair.back)}


def _is_lossy(sent: int, came: int) -> bool:
    return sent - came >= max(_LEAST_LOST, sent * _LEAST_SHARE)


def unknown_pairs(report: Report) -> Iterator[Finding]:
    """Note how many pairs nothing is known of, and why."""
    busy = {host.name: host.late_s for host in report.here if host.late_s or host.dropped}
    for_busy = sum(not busy.keys().isdisjoint((pair.one, pair.other)) for pair in report.unknown)
    if for_busy:
        late_s = max(busy.values())
        why = f"nothing ran for {late_s:.1f} s (--timeout)" if late_s else "not all packets were read in time"
        text = f"{fold(tuple(busy))}: too busy to measure, {why}; {_pairs_paths(for_busy)} not known"
        yield Finding("network", tuple(busy), text, is_note=True)
    if for_room := len(report.unknown) - for_busy:
        full = "a kernel's neighbour table was full at times (net.ipv4.neigh.default.gc_thresh3)"
        text = f"{full}; {_pairs_paths(for_room)}"
        yield Finding("network", (), f"{text} not known", is_note=True)


def _pairs_paths(count: int) -> str:
    return f"{count} pair{'s are' if count != 1 else ' is'}"


def small_packets(report: Report) -> Iterator[Finding]:
    """Name between whom packets do not pass that both interfaces take; where any may be lost, that tells nothing."""
    mtus = {its.address: its.mtu for host in report.here for its in host.addresses}
    at = {
        (its.name, host): address
        for its in report.networks
        for host, address in zip(its.hosts, its.addresses, strict=True)
    }
    for name, pairs in _by_network(report).items():
        known = [
            pair
            for pair in pairs
            if pair.mtu is not None and not any(_is_lossy(*counts) for counts in _datagrams(pair).values())
        ]
        bad: dict[Way, int] = {}
        for pair in known:
            one, other = (mtus.get(at.get((name, host), "")) for host in (pair.one, pair.other))
            if one is not None and other is not None and pair.mtu is not None and pair.mtu < min(one, other):
                bad |= dict.fromkeys(_ways(pair), pair.mtu)
        for cause in find_causes(bad, [way for pair in known for way in _ways(pair)]):
            yield _finding(cause, _SMALL, name, str(min(bad[way] for way in cause.ways)))


def slow_round_trips(report: Report) -> Iterator[Finding]:
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


# Direction of a cause -> its text.
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


def _finding(cause: Cause, texts: dict[str, str], network: str, detail: str) -> Finding:
    """Return the finding of a cause; of a pair one has to go."""
    return Finding("network", cause.named, cause.text(texts, network, detail), cause.named[-1:])


# The rule about multicast: who hears nothing, and who is not heard. A network without any is no fault.

_MULTICAST = {
    "in": "{a}: receives no multicast on {n}",
    "out": "{a}: others do not receive its multicast on {n}",
    "both": "{a}: no multicast between it and the others on {n}",
    "pair": "{a} and {b}: no multicast between them on {n}",
    "way": "{b}: does not receive multicast from {a} on {n}",
    "all": "{n}: no multicast; members without a scheduler need --master or --directory",
}


def deaf_to_multicast(report: Report) -> Iterator[Finding]:
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
    for cause in find_causes(bad, tested):
        fault = next((f" ({heard[host].fault})" for host in cause.named if heard[host].fault), "")
        is_note = cause.direction == "all" or len(heard) == 2  # noqa: PLR2004 - of two nobody is the odd one
        yield Finding("network", cause.named, cause.text(_MULTICAST, name) + fault, is_note=is_note)


# Rules about names: what each host's name is to itself, and to the others.

_LOOPBACK = ("127.", "::1")
_NAMES = {
    "in": "{a}: its name {d} others",
    "out": "{a}: others' names {d} it",
    "both": "{a}: its name and others' names {d} each other",
    "pair": "{a} and {b}: their names {d} each other",
    "way": "{b}: its name {d} {a}",
    "all": "the hosts' names {d} each other",
}
_UNKNOWN, _SILENT = "are not known to", "get no answer in time from the name service of"


def own_name(report: Report) -> Iterator[Finding]:
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


def others_names(report: Report) -> Iterator[Finding]:
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
        for cause in find_causes(bad, tested):
            text = cause.text(_NAMES, "", _SILENT if is_silent else _UNKNOWN)
            if cause.direction in ("in", "way"):
                text = text.replace("its name are", "its name is").replace("its name get", "its name gets")
            yield Finding("node", cause.named, text)
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


# The verdict: what every rule finds, what is worst first.

_SWITCH = "admin: look at its cable, its interface's counters (ethtool -S, ibqueryerrors) and the switch's port"
_ADDRESSES = "admin: give every host its own address on each network, with one prefix"
_NAME_SERVICE = "admin: have the name service, or /etc/hosts, give one address of each host on all hosts"
# Each rule with what to do about what it finds; a finding may have a remedy of its own.
RULES: tuple[tuple[Callable[[Report], Iterator[Finding]], str], ...] = (
    (missing_hosts, "user: start something there by the same way (ssh HOST true, srun -w HOST true); leave it out"),
    (same_machine_twice, "user: name each machine once in --hosts"),
    (address_clashes, _ADDRESSES),
    (absent_from_network, "admin: bring its interface up with an address there; user: choose another by --iface"),
    (unreachable, _SWITCH),
    (closed_ports, "admin: open the ports of --port-range between the hosts; user: choose open ones by --port-range"),
    (lost_datagrams, _SWITCH),
    (different_mtus, "admin: set one MTU on all hosts (ip link set dev IFACE mtu N) and on the switch"),
    (small_packets, "admin: raise the MTU of the switch's ports, or lower that of the interfaces"),
    (different_speeds, "admin: look at cable and transceiver, and at the speed that was negotiated (ethtool IFACE)"),
    (slow_hosts, _SWITCH),
    (own_name, "admin: map the host's name to its address on the network in /etc/hosts, not to 127.0.1.1"),
    (others_names, _NAME_SERVICE),
    (deaf_to_multicast, "user: meet by --master or --directory; admin: look at IGMP snooping and the firewall"),
    (gpu_trouble, "user: end the process that is named, if it is yours; admin: reset or drain the node"),
    (space_trouble, "user: remove your files there; admin: mount it again, or clean it after each job"),
    (wrong_clocks, "admin: start chronyd there, and step its clock (chronyc makestep)"),
    (kernel_trouble, "admin: raise net.ipv4.neigh.default.gc_thresh3 (and net.ipv6) above the number of hosts"),
    (odd_hosts, "admin: bring the node to the state of the others"),
    (guest_bridges, "user: nothing; or name the networks to use by --iface"),
    (slow_round_trips, "admin: look at its route and switch; user: ask for hosts of one rack or switch (--switches)"),
    (unknown_pairs, "user: check again when the hosts are idle, or with a longer --timeout"),
)
# Of the fields that a user sets, what to do where hosts differ in one.
_USERS_FIELDS = ("environment", "program", "git", "torch", "nccl", "cuda", "jax", "python", "mingle", "image")
_USERS_REMEDY = "user: run the same program in the same environment on all hosts"
_LIMITS_REMEDY = "admin: set one limit for all hosts (limits.conf, LimitMEMLOCK of slurmd and sshd)"


def judge(report: Report) -> Report:
    """Return the report with its findings: notes last, and before them in the order of their statuses."""
    found = [(finding, remedy) for rule, remedy in RULES for finding in rule(report)]
    return with_findings(report, tuple(its._replace(remedy=its.remedy or remedy) for its, remedy in found))
