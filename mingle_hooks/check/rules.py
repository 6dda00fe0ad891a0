"""The rules of `mingle check`: each makes findings from a report."""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from statistics import fmean, median, median_low
from typing import TypeVar

from mingle_hooks.check import facts, report as reports
from mingle_hooks.check.causes import LEAST_SHARE_OF_ALL, Cause, Counts, Way, find_causes, find_lossy, is_lossy, loss
from mingle_hooks.check.report import Finding, Flow, Host, Network, Pair, Report, Space
from mingle_hooks.rendezvous.fingerprint import load_fingerprint
from mingle_hooks.rendezvous.report import KINDS, MAJORITY, Compared, compare_members, odd_values
from mingle_hooks.schedulers.facts import fold

T = TypeVar("T", bound=Hashable)


def _by_value(values: Iterable[tuple[T, str]]) -> dict[T, tuple[str, ...]]:
    """Return each value with the hosts that have it, both in the given order."""
    hosts: dict[T, dict[str, None]] = {}
    for value, host in values:
        hosts.setdefault(value, {})[host] = None
    return {value: tuple(names) for value, names in hosts.items()}


# The networks that hosts share.

# The best address of each host, if the hosts share no network: routers may be between them.
ROUTED = "routed"
# Networks that are probed; a node with more has rails that are alike.
MOST_NETWORKS = 8
# An address that more hosts than this have is no mistake of two: it is a bridge for each host's own guests.
_MOST_CLASHING = 2


def bridge_addresses(hosts: Sequence[Host]) -> dict[str, tuple[str, ...]]:
    """Return each address that is a bridge for guests, with its hosts: no host has another address on its network."""
    of_networks = [set(known.values()) for known in _networks(hosts).values()]
    alone = {address for its in of_networks if len(its) == 1 for address in its}
    bridges = {address.address for host in hosts for address in host.addresses if address.kind == "bridge"}
    return {
        address: owners
        for address, owners in _owners(hosts).items()
        if address in alone and len(owners) > 1 and (len(owners) > _MOST_CLASHING or address in bridges)
    }


def shared_networks(hosts: Sequence[Host]) -> tuple[Network, ...]:
    """Return the networks of two or more hosts, the best first by the mean place in their lists of addresses.

    IPv6 counts only on interfaces that share no IPv4 network, so that no wire is probed twice.
    """
    guests = bridge_addresses(hosts)
    found = {
        name: known
        for name, known in _networks(hosts).items()
        if len(known) > 1 and not set(known.values()) <= guests.keys()
    }
    ifaces = {(host.name, address.address): address.iface for host in hosts for address in host.addresses}
    wires = {name: {(host, ifaces[host, address]) for host, address in known.items()} for name, known in found.items()}
    four = {wire for name, ends in wires.items() if ":" not in name for wire in ends}
    used = {name: known for name, known in found.items() if ":" not in name or not wires[name] <= four}
    if len(hosts) > 1 and not any(len(known) == len(hosts) for known in used.values()):
        used |= _routed(hosts)
    places = {(host.name, address.address): place for host in hosts for place, address in enumerate(host.addresses)}
    order = sorted(used, key=lambda name: (fmean(places[end] for end in used[name].items()), -len(used[name])))
    return tuple(Network(name, tuple(used[name]), tuple(used[name].values())) for name in order[:MOST_NETWORKS])


def _owners(hosts: Iterable[Host]) -> dict[str, tuple[str, ...]]:
    return _by_value((address.address, host.name) for host in hosts for address in host.addresses)


def _networks(hosts: Iterable[Host]) -> dict[str, dict[str, str]]:
    """Return network -> host -> its first address there."""
    found: dict[str, dict[str, str]] = {}
    for host in hosts:
        for address in host.addresses:
            network = ipaddress.ip_interface(f"{address.address}/{address.prefix}").network
            found.setdefault(str(network), {}).setdefault(host.name, address.address)
    return found


def _routed(hosts: Sequence[Host]) -> dict[str, dict[str, str]]:
    """Return the best address of each host, of a family that all hosts have; nothing if there is none."""
    for is_six in (False, True):
        best = {
            host.name: next((end.address for end in host.addresses if (":" in end.address) == is_six), "")
            for host in hosts
        }
        if all(best.values()):
            return {ROUTED: best}
    return {}


# Rules about what should be alike: the odd host in each thing.

# Fields of a fingerprint for which the check has more exact rules.
_OWN = ("shm", "tmp")


def odd_hosts(report: Report) -> Iterator[Finding]:
    """Find hosts that differ from three quarters of those of their kind; without such a majority, all are named."""
    members = [Compared(host.name, host.fingerprint) for host in report.here]
    for found in compare_members(members):
        if found.field not in _OWN:
            hosts = found.hosts or tuple(host.name for host in report.here)
            yield Finding(
                "node", hosts, found.text, found.hosts, found.field == KINDS, _FIELD_REMEDIES.get(found.field, "")
            )


# A host with less than this share of the usual amount has too little.
_SHARES = {facts.CORES: 1.0, facts.MEMORY: 0.95}
_SHARE = 0.5
# A count is too high from this value on, if it is also this many times the usual one.
_LEASTS = {facts.SYMBOL_ERRORS: 1000, facts.LINK_DOWNS: 10, facts.WRITE_MS: 250}
_TIMES = 10


def _kind(host: Host) -> str:
    """Return what hosts have in common that should have the same amounts, and equally fast interfaces."""
    return load_fingerprint(host.fingerprint).get("gpus", "")


def odd_amounts(report: Report) -> Iterator[Finding]:
    """Find hosts that have less than others with the same GPUs, or have counted more; a slow disk is a note."""
    amounts: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for host in report.here:
        kind = _kind(host)
        sizes = ((f"MiB in {space.path}", space.total_mb or 0) for space in host.spaces if not _fault(space, host))
        for name, value in (*host.amounts, *sizes):
            amounts[kind, name][host.name] = value
    for (_, name), values in amounts.items():
        usual, least, share = median_low(values.values()), _LEASTS.get(name), _SHARES.get(name, _SHARE)
        odd = {
            one: value
            for one, value in values.items()
            if (value < usual * share if least is None else value >= max(least, usual * _TIMES))
        }
        is_note = name == facts.WRITE_MS  # other programs may have used it, too
        for one, value in odd.items() if len(odd) <= len(values) * (1 - MAJORITY) else ():
            text, exclude = f"{one}: {value} {name}, {usual} is usual", () if is_note else (one,)
            yield Finding("node", (one,), text, exclude, is_note, confidence="possible" if is_note else "certain")


# Rules about addresses: two hosts with one, bridges for guests, and hosts that are not on a network.


def address_clashes(report: Report) -> Iterator[Finding]:
    """Find hosts that have the same address, except for that of a bridge for guests, or two with the same MAC."""
    guests = bridge_addresses(report.here)
    for address, hosts in _owners(report.here).items():
        if len(hosts) > 1 and address not in guests:
            yield Finding("network", hosts, f"{fold(hosts)}: the same address, {address}", hosts[1:])
    macs = _by_value((end.mac, host.name) for host in report.here for end in host.addresses if end.mac)
    for mac, hosts in macs.items():
        if len(hosts) == _MOST_CLASHING:
            yield Finding("network", hosts, f"{fold(hosts)}: the same MAC, {mac}", hosts[1:])


def guest_bridges(report: Report) -> Iterator[Finding]:
    """Note addresses that several hosts have for guests of their own."""
    bridges = [(address, host) for address, hosts in bridge_addresses(report.here).items() for host in hosts]
    guests = [(address, host.name) for host in report.here for _, address in host.guests]
    for address, hosts in _by_value([*bridges, *guests]).items():
        if len(hosts) > 1:
            text = f"{fold(hosts)}: {address} is on each node, for local guests only; not used between nodes"
            yield Finding("network", hosts, text, is_note=True)


def absent_from_network(report: Report) -> Iterator[Finding]:
    """Find hosts without an address on a network of three quarters of them, and that no network has all hosts.

    A host with a network of its own instead is noted: each rack may have one, with routers between them.
    """
    names = tuple(host.name for host in report.here)
    usual = [its for its in report.networks if its.name != ROUTED and len(its.hosts) >= len(names) * MAJORITY]
    known = {address for network in usual for address in network.addresses}
    for network in usual:
        kinds = {end.kind for end in reports.network_ends(report.here, network).values()}
        absent = [host for host in report.here if host.name not in network.hosts]
        others = {host.name: [end for end in host.addresses if end.kind in kinds] for host in absent}
        is_elsewhere = {
            name: any(_is_outside(end.address, network) for end in ends if end.address not in known)
            for name, ends in others.items()
        }
        for is_note, hosts in _by_value((is_note, name) for name, is_note in is_elsewhere.items()).items():
            text = f"{fold(hosts)}: no address on {network.name}, where {len(network.hosts)} others are"
            text += ", but on another network" if is_note else ""
            yield Finding("network", hosts, text, () if is_note else hosts, is_note)
    if len(names) > 1 and not any(len(network.hosts) == len(names) for network in report.networks):
        yield Finding("network", names, "no network that all hosts share")


def _is_outside(address: str, network: Network) -> bool:
    """Return whether an address is not on a network of its family, whatever prefix its host has."""
    subnet, its = ipaddress.ip_network(network.name), ipaddress.ip_address(address)
    return its.version == subnet.version and its not in subnet


def different_interfaces(report: Report, *, field: str, label: str, of_kind: bool = False) -> Iterator[Finding]:
    """Find hosts whose interface on a network differs from the others', or those `of_kind`, in a field of Address."""
    kinds = {host.name: _kind(host) if of_kind else "" for host in report.here}
    for network in report.networks:
        ends = reports.network_ends(report.here, network) if network.name != ROUTED else {}
        values: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for host, end in ends.items():
            if (value := getattr(end, field)) is not None:
                values[kinds[host]][host] = str(value)
        for alike in values.values():
            known = _by_value((value, host) for host, value in alike.items())
            for found in odd_values("", f"{label} on {network.name}", known):
                yield Finding("network", found.hosts or (*alike,), found.text, found.hosts)


_different_mtus = partial(different_interfaces, field="mtu", label="MTU")
_different_speeds = partial(different_interfaces, field="speed_mbps", label="Mbit/s", of_kind=True)


# The rule about bandwidth: hosts below a third of the usual, with every other host.

# Throughputs of single connections differ from try to try; on healthy networks by less than this factor.
SLOW = 1 / 3


def slow_hosts(report: Report) -> Iterator[Finding]:
    """Find hosts that send or receive slowly with every other host; else the two between which it is slow."""
    if not report.flows:
        return
    usual = median(flow.mbits or 0 for flow in report.flows)
    usual_text = reports.speed_text(usual)
    slow: dict[str, str] = {}
    of_host = reports.host_speeds(report.flows)
    for host in report.here:
        parts = [
            f"{verb} {reports.speed_text(max(speeds))}"
            for verb, speeds in zip(("sends", "receives"), of_host[host.name], strict=True)
            if len(speeds) > 1 and max(speeds) < usual * SLOW
        ]
        if parts:
            slow[host.name] = " and ".join(parts)
    if len(slow) > report.most_excluded:
        text = f"{fold(tuple(slow))}: slow together, less than a third of {usual_text}, which is usual"
        yield Finding("network", tuple(slow), text, confidence="likely")
    else:
        for name, speeds_text in slow.items():
            text = f"{name}: {speeds_text}, {usual_text} is usual"
            yield Finding("network", (name,), text, (name,), confidence="likely")
    for flow in slow_flows(report.flows):
        if slow.keys().isdisjoint((flow.sender, flow.receiver)):
            speed = reports.speed_text(flow.mbits or 0)
            text = f"{flow.sender}: sends {speed} to {flow.receiver}, {usual_text} is usual"
            yield Finding("network", (flow.sender, flow.receiver), text, confidence="possible")


def slow_flows(flows: tuple[Flow, ...]) -> tuple[Flow, ...]:
    """Return the flows that are slow, and deserve another measurement."""
    usual = median(flow.mbits or 0 for flow in flows) if flows else 0
    return tuple(flow for flow in flows if (flow.mbits or 0) < usual * SLOW)


# Rules about one host by itself: whether it is there, its clock, its directories, its GPUs.

# A clock is wrong if its whole interval is farther off than this, in seconds.
_CLOCK_S = 1.0
# A directory is full if less than this is free, and not most of it.
_FULL_MB = 64
# The /dev/shm of hosts with several GPUs is at least this large; Docker gives a container 64 MiB.
_LEAST_SHM_MB = 512
_FULL_TABLE = "a kernel's neighbour table was full at times (net.ipv4.neigh.default.gc_thresh3)"
_ONLY, _SHM = "has only", "user: start the container with --ipc=host or --shm-size; admin: mount it larger"


def missing_hosts(report: Report) -> Iterator[Finding]:
    """Find hosts that did not report. If many are late, starting is slow, and none of them is to be left out."""
    late = [host for host in report.hosts if host.is_late]
    is_slow = len(late) > report.most_excluded
    if is_slow:
        names = tuple(host.name for host in late)
        text = f"starting is slow: {len(late)} of {len(report.hosts)} hosts are late, {fold(names)}: {late[0].missing}"
        yield Finding("missing", names, text, remedy="user: check again with a longer --start", confidence="likely")
    for host in report.hosts:
        if host.missing is not None and not (is_slow and host.is_late):
            found = Finding("missing", (host.name,), f"{host.name}: {host.missing}", (host.name,))
            yield found._replace(confidence="likely" if host.is_late else "certain")


def same_machine_twice(report: Report) -> Iterator[Finding]:
    """Find hosts that are one machine under several names, and machines with one name."""
    machines = _by_value((host.identity, host.name) for host in report.here)
    for names in machines.values():
        if len(names) > 1:
            yield Finding("node", names, f"{fold(names)}: one machine under {len(names)} names", names[1:])
    first = {names[0] for names in machines.values()}
    own = _by_value((host.hostname, host.name) for host in report.here if host.name in first)
    for hostname, names in own.items():
        if len(names) > 1:
            odd = tuple(name for name in names if name.partition(".")[0] != hostname.partition(".")[0])
            text = f"{fold(names)}: {len(names)} machines with one host name, {hostname}"
            yield Finding("node", names, text, odd if 0 < len(odd) < len(names) else names[1:], remedy=_HOST_NAME)


def wrong_clocks(report: Report) -> Iterator[Finding]:
    """Find hosts whose clock differs from the others'."""
    known = {host.name: host.clock for host in report.here if host.clock is not None}
    if not known:
        return
    # Intervals that all hold the same time overlap, however long that of a busy host is.
    least, most = (median(ends) for ends in zip(*known.values(), strict=True))
    usual = (least + most) / 2
    for name, (low, high) in known.items():
        if low - most > _CLOCK_S or high - least < -_CLOCK_S:
            off_s = (low + high) / 2 - usual
            text = f"{name}: its clock is {abs(off_s):.1f} s {'ahead' if off_s > 0 else 'behind'}"
            yield Finding("node", (name,), text, (name,))


def full_directories(report: Report) -> Iterator[Finding]:
    """Find directories that are full or do not answer; one that is so on all hosts excludes none."""
    faults = [((space.path, _fault(space, host)), host.name) for host in report.here for space in host.spaces]
    for (path, fault), names in _by_value(its for its in faults if its[0][1]).items():
        suspects = names if len(names) < len(report.here) or len(names) == 1 else ()
        remedy = _SHM if fault.startswith(_ONLY) else ""
        yield Finding("node", names, f"{fold(names)}: {path} {fault}", suspects, remedy=remedy)


def _fault(space: Space, host: Host) -> str:
    """Return what is wrong with a directory, "" for nothing."""
    if space.free_mb is None or space.total_mb is None:
        return "does not answer"
    if space.path == facts.SHM and space.total_mb < _LEAST_SHM_MB and (host.gpus or 0) > 1:
        return f"{_ONLY} {space.total_mb} MiB, which NCCL and data loaders fill"
    if space.free_mb >= _FULL_MB or (space.total_mb and space.free_mb > space.total_mb / 2):
        return ""
    return f"is full: {space.free_mb} of {space.total_mb} MiB are free"


def full_neighbour_tables(report: Report) -> Iterator[Finding]:
    """Find hosts whose kernel has no room for so many neighbours; if most have none, none is to be left out."""
    full = tuple(host.name for host in report.here if host.refused)
    if full:
        most = max(host.refused for host in report.here)
        text = f"{fold(full)}: the kernel's neighbour table is full; up to {most} hosts are out of reach"
        suspects = full if len(full) * 2 < len(report.here) else ()
        yield Finding("node", suspects, f"{text} (net.ipv4.neigh.default.gc_thresh3)", suspects)


def own_faults(report: Report) -> Iterator[Finding]:
    """Find what hosts report of their own GPUs and networks."""
    for host in report.here:
        for fault in host.faults:
            yield Finding("node", (host.name,), f"{host.name}: {fault}", (host.name,))


# Rules about paths between hosts: reachable or not, ports, loss, packet sizes, round-trip times.

# A host is far off if three quarters of its round trips take this many times as long as the others', and FAR_US more.
_FAR = 20


def unreachable(report: Report) -> Iterator[Finding]:
    """Find hosts that do not reach each other, neither by datagrams nor by TCP."""
    for network, pairs in _by_network(report).items():
        tested = [way for pair in pairs for way in _ways(pair)]
        bad = [way for pair in pairs if is_cut(pair) for way in _ways(pair)]
        for cause in find_causes(bad, tested):
            yield _finding(cause, _CUT, network, f"{len(cause.ways) // 2}")


def is_cut(pair: Pair) -> bool:
    """Return whether nothing at all arrived between two hosts."""
    return not pair.there and not pair.back and "" not in (pair.open_there, pair.open_back)


def closed_ports(report: Report, *, is_free: bool = False) -> Iterator[Finding]:
    """Find ports that cannot be reached by TCP, between hosts that datagrams reach.

    If it `is_free`, ports that the kernel chose, by TCP and UDP: that UDP alone does not pass is a note. So is one way
    without an answer on a network that loses packets.
    """
    for network, pairs in _by_network(report).items():
        has_loss = any(loss(counts)[1] for pair in pairs if not is_cut(pair) for counts in [_datagrams(pair).values()])
        tried: dict[Way, str] = {}
        for pair in pairs:
            reasons = (pair.open_there, pair.open_back)
            if is_free:
                reasons = (pair.free_there, pair.free_back) if reasons == ("", "") and pair.there else (None, None)
            if not is_cut(pair) and bool(pair.there) == bool(pair.back):  # else it is a loss in one direction
                tried |= {way: why for way, why in zip(_ways(pair), reasons, strict=True) if why is not None}
        for cause in find_causes([way for way, reason in tried.items() if reason], tried):
            why = tried[min(cause.ways)]
            found = _finding(cause, _CLOSED, network, f"{why}, of those that NCCL and Gloo use" if is_free else why)
            is_chance = has_loss and why == reports.LATE and cause.direction in ("way", "pair")
            is_note = is_chance or why == reports.NO_ECHO
            yield found._replace(is_note=is_note, exclude=() if is_note else found.exclude)


def lost_datagrams(report: Report) -> Iterator[Finding]:
    """Find hosts that lose more datagrams than the others, and in which direction; what all lose is the network's.

    If none at all arrive while TCP passes, that is a rule of a firewall: a note.
    """
    for network, pairs in _by_network(report).items():
        counted: dict[Way, Counts] = {}
        for pair in pairs:
            if pair.sent and pair.sent_back and not is_cut(pair):
                counted |= _datagrams(pair)
        left = dict(counted)
        for cause in find_lossy(counted):
            sent, lost = loss(counted[way] for way in cause.ways)
            yield _finding(cause, _LOST, network, f"{100 * lost / sent:.0f} %")
            for way in cause.ways:
                del left[way]
        if any(is_lossy(*counts) for counts in left.values()):
            sent, lost = loss(left.values())
            share = lost / sent
            is_rule = share == 1
            text = "datagrams do not pass, TCP does" if is_rule else f"{100 * share:.0f} % of all datagrams are lost"
            yield Finding("network", (), f"{network.name}: {text}", is_note=is_rule or share < LEAST_SHARE_OF_ALL)


def unsound(report: Report, network: str) -> set[Way]:
    """Return the ways on a network that lose datagrams, or are not known: losses there say nothing of multicast."""
    unknown = {way for pair in report.unknown if pair.network == network for way in _ways(pair)}
    pairs = [pair for pair in report.pairs if pair.network == network]
    return unknown | {
        way for pair in pairs for way, counts in _datagrams(pair).items() if is_cut(pair) or is_lossy(*counts)
    }


def _datagrams(pair: Pair) -> dict[Way, Counts]:
    """Return how many datagrams were sent in each direction, and how many of them arrived."""
    there, back = _ways(pair)
    return {there: (pair.sent, pair.there), back: (pair.sent_back, pair.back)}


def unknown_pairs(report: Report) -> Iterator[Finding]:
    """Note how many pairs are not known, and why."""
    busy = {host.name: host.late_s for host in report.here if host.late_s or host.dropped}
    late_s = max(busy.values(), default=0.0)
    why = f"nothing ran for {late_s:.1f} s (--timeout)" if late_s else "not all packets were read in time"
    of_busy = sum(not busy.keys().isdisjoint((pair.one, pair.other)) for pair in report.unknown)
    for hosts, text, count in (
        (tuple(busy), f"{fold(tuple(busy))}: too busy to measure, {why}", of_busy),
        ((), _FULL_TABLE, len(report.unknown) - of_busy),
    ):
        if count:
            are = "is" if count == 1 else "are"
            yield Finding(
                "network", hosts, f"{text}; {reports.count_text(count, 'pair')} {are} not known", is_note=True
            )


def small_packets(report: Report) -> Iterator[Finding]:
    """Find paths on which no packets pass that both interfaces take. Paths that lose datagrams prove nothing."""
    for network, pairs in _by_network(report).items():
        mtus = {host: end.mtu for host, end in reports.network_ends(report.here, network).items()}
        known: list[Way] = []
        bad: dict[Way, int] = {}
        for pair in pairs:
            if pair.mtu is None or any(is_lossy(*counts) for counts in _datagrams(pair).values()):
                continue
            known += _ways(pair)
            one, other = mtus.get(pair.one), mtus.get(pair.other)
            if one is not None and other is not None and pair.mtu < min(one, other):
                bad |= dict.fromkeys(_ways(pair), pair.mtu)
        for cause in find_causes(bad, known):
            yield _finding(cause, _SMALL, network, str(min(bad[way] for way in cause.ways)))


def slow_round_trips(report: Report) -> Iterator[Finding]:
    """Find hosts that are much farther off than the others; where all are, the hosts that measure are too busy."""
    for network, pairs in _by_network(report).items():
        rtts: dict[str, list[int]] = {}
        for pair in pairs:
            if pair.rtt_us is not None:
                rtts.setdefault(pair.one, []).append(pair.rtt_us)
                rtts.setdefault(pair.other, []).append(pair.rtt_us)
        if len(rtts) <= 2:  # noqa: PLR2004 - of two, neither is the slow one
            continue
        own = {host: sorted(values)[len(values) // 4] for host, values in rtts.items()}
        usual = median_low(own.values())
        if usual > reports.FAR_US:
            continue
        for host, rtt_us in own.items():
            if rtt_us > max(usual * _FAR, usual + reports.FAR_US):
                text = (
                    f"{host}: round trips of {rtt_us / 1000:.1f} ms on {network.name}, {usual / 1000:.1f} ms is usual"
                )
                yield Finding("network", (host,), text, (host,), confidence=reports.confidence_of(rtts.keys() - {host}))


def _by_network(report: Report) -> dict[Network, list[Pair]]:
    return {network: [pair for pair in report.pairs if pair.network == network.name] for network in report.networks}


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
    "both": "{a}: no packet larger than {d} bytes passes on {n}, though the interfaces' MTU is larger",
    "pair": "{a} and {b}: no packet larger than {d} bytes passes between them on {n}, though their MTU is larger",
    "all": "{n}: no packet larger than {d} bytes passes, though the interfaces' MTU is larger",
}


def _finding(cause: Cause, texts: dict[str, str], network: Network, detail: str) -> Finding:
    """Return the finding of a cause. Of a pair, leaving out one host is enough."""
    text = cause.text(texts, network.name, detail)
    return Finding("network", cause.hosts, text, cause.hosts[-1:], confidence=cause.confidence)


# The rule about multicast: hosts that receive none, and hosts that are not heard. A network without any is no fault.

_MULTICAST = {
    "in": "{a}: receives no multicast on {n}",
    "out": "{a}: others do not receive its multicast on {n}",
    "both": "{a}: no multicast between it and the others on {n}",
    "pair": "{a} and {b}: no multicast between them on {n}",
    "way": "{b}: does not receive multicast from {a} on {n}",
    "all": "{n}: no multicast; members without a scheduler need --master or --directory",
}


def multicast_trouble(report: Report) -> Iterator[Finding]:
    """Find hosts that do not receive others' multicast, or are not heard."""
    # Of many hosts only some send: those that any host heard.
    heard_hosts = {sender for host in report.here for heard in host.multicast for sender in heard.hosts}
    senders = {host.name for host in report.here} if report.others is None else heard_hosts
    sound = [host for host in report.here if not host.is_doubtful]
    multicast = {(host.name, heard.iface): heard for host in sound for heard in host.multicast}
    for network in report.networks:
        ends = reports.network_ends(sound, network).items()
        heard_at = {host: multicast[host, end.iface] for host, end in ends if (host, end.iface) in multicast}
        ways = product((host for host in heard_at if host in senders), heard_at)
        excused = unsound(report, network.name)
        tested = [(sender, host) for sender, host in ways if sender != host and (sender, host) not in excused]
        for cause in find_causes([way for way in tested if way[0] not in heard_at[way[1]].hosts], tested):
            fault = next((f" ({heard_at[host].fault})" for host in cause.hosts if heard_at[host].fault), "")
            is_note = cause.direction == "all" or len(heard_at) == 2  # noqa: PLR2004 - of two, neither is the odd one
            text = cause.text(_MULTICAST, network.name) + fault
            yield Finding("network", cause.hosts, text, is_note=is_note, confidence=cause.confidence)


# Rules about names: what each host's name is on that host, and on the others.

_LOOPBACK = ("127.", "::1")
# Direction of a cause -> its text, with what is wrong with one name, or several.
_NAMES = {
    "in": "{a}: its name {d[0]} others",
    "out": "{a}: others' names {d[1]} it",
    "both": "{a}: its name and others' names {d[1]} each other",
    "pair": "{a} and {b}: their names {d[1]} each other",
    "way": "{b}: its name {d[0]} {a}",
    "all": "the hosts' names {d[1]} each other",
}
_SILENT = "no answer in time from the name service of"
_BAD_NAMES = {(): ("is not known to", "are not known to"), None: (f"gets {_SILENT}", f"get {_SILENT}")}


def own_name(report: Report) -> Iterator[Finding]:
    """Find hosts whose own name resolves to loopback, where other hosts reach no server of theirs, or not at all."""
    hosts = report.here if len(report.hosts) > 1 else ()
    for text, names in _by_value((fault, host.name) for host in hosts if (fault := _own_name_fault(host))).items():
        suspects = names if len(names) * 2 < len(report.here) else ()
        yield Finding("node", names, f"{fold(names)}: {text}", suspects)


def _own_name_fault(host: Host) -> str:
    """Return what is wrong with a host's own name, "" for nothing."""
    loop = next((address for address in host.own_name or () if address.startswith(_LOOPBACK)), None)
    if loop is not None:
        return f"its own name is {loop}: other nodes cannot reach servers that listen on it (/etc/hosts)"
    if host.own_name is None and not host.late_s:
        return "the name service does not answer in time for its own name"
    if host.own_name and host.every and set(host.every).isdisjoint(host.own_name):
        return f"its own name is {host.own_name[0]}, an address that it does not have (/etc/hosts)"
    return "its own name is not known there" if host.own_name == () else ""


def others_names(report: Report) -> Iterator[Finding]:
    """Find hosts that others cannot resolve, that can resolve no others, or that resolve to another's address."""
    known = {host.name for host in report.here}
    tested: dict[Way, tuple[str, ...] | None] = {
        (host.name, name.name): name.addresses
        for host in report.here
        for name in host.names
        if name.name in known and not (host.late_s and name.addresses is None)
    }
    for answer, verbs in _BAD_NAMES.items():
        for cause in find_causes([way for way, addresses in tested.items() if addresses == answer], tested):
            text = cause.text(_NAMES, "", verbs)
            suspects = cause.hosts if cause.direction == "out" else ()
            yield Finding("node", cause.hosts, text, suspects, confidence=cause.confidence)
    answers: defaultdict[str, list[tuple[tuple[str, ...], str]]] = defaultdict(list)
    for (resolver, name), addresses in tested.items():
        if addresses:
            answers[name].append((addresses, resolver))
    for host in report.here:
        own = {*host.every, *(address.address for address in host.addresses)}
        known_as = answers[host.name] if own else []
        wrong = [(addresses[0], resolver) for addresses, resolver in known_as if own.isdisjoint(addresses)]
        for address, resolvers in _by_value(wrong).items():
            text = f"{fold(resolvers)}: {host.name} is {address} there, an address that it does not have"
            suspects = resolvers if len(wrong) * 2 < len(known_as) else ()
            yield Finding("node", (*resolvers, host.name), text, suspects)


# All rules.

_HOST_NAME = "admin: give it its own name (hostnamectl set-hostname)"
_FREE_PORTS = "admin: open the ports of net.ipv4.ip_local_port_range between the hosts of a job"
_SWITCH = "admin: look at its cable, its interface's counters (ethtool -S, ibqueryerrors) and the switch's port"
_AMOUNTS = "admin: look for what is off (dmidecode, lscpu), mounted otherwise, or badly plugged (ibqueryerrors)"
_ADDRESSES = "admin: give every host its own address on each network, with one prefix"
_NAME_SERVICE = "admin: have the name service, or /etc/hosts, give one address of each host on all hosts"
# Each rule with the remedy for its findings; a finding may have a remedy of its own.
RULES: tuple[tuple[Callable[[Report], Iterator[Finding]], str], ...] = (
    (missing_hosts, "user: start something there by the same way (ssh HOST true, srun -w HOST true); leave it out"),
    (same_machine_twice, "user: name each machine once in --hosts"),
    (address_clashes, _ADDRESSES),
    (absent_from_network, "admin: bring its interface up with an address there; user: choose another by --iface"),
    (unreachable, _SWITCH),
    (closed_ports, "admin: open the ports of --port-range between the hosts; user: choose open ones by --port-range"),
    (partial(closed_ports, is_free=True), _FREE_PORTS),
    (lost_datagrams, _SWITCH),
    (_different_mtus, "admin: set one MTU on all hosts (ip link set dev IFACE mtu N) and on the switch"),
    (small_packets, "admin: raise the MTU of the switch's ports, or lower that of the interfaces"),
    (_different_speeds, "admin: look at cable and transceiver, and at the speed that was negotiated (ethtool IFACE)"),
    (slow_hosts, _SWITCH),
    (own_name, "admin: map the host's name to its address on the network in /etc/hosts, not to 127.0.1.1"),
    (others_names, _NAME_SERVICE),
    (multicast_trouble, "user: meet by --master or --directory; admin: look at IGMP snooping and the firewall"),
    (own_faults, "user: end the process that is named, if it is yours; admin: reset or drain the node"),
    (full_directories, "user: remove your files there; admin: mount it again, or clean it after each job"),
    (wrong_clocks, "admin: start chronyd there, and step its clock (chronyc makestep)"),
    (full_neighbour_tables, "admin: raise net.ipv4.neigh.default.gc_thresh3 (and net.ipv6) above the number of hosts"),
    (odd_hosts, "admin: bring the node to the state of the others"),
    (odd_amounts, _AMOUNTS),
    (guest_bridges, "user: nothing; or name the networks to use by --iface"),
    (slow_round_trips, "admin: look at its route and switch; user: ask for hosts of one rack or switch (--switches)"),
    (unknown_pairs, "user: check again when the hosts are idle, or with a longer --timeout"),
)
# Fields of a fingerprint that have remedies of their own.
_USERS_FIELDS = ("environment", "program", "git", "torch", "nccl", "cuda", "jax", "python", "mingle", "image")
_FIELD_REMEDIES = dict.fromkeys(_USERS_FIELDS, "user: run the same program in the same environment on all hosts") | {
    "limits": "admin: set one limit for all hosts (limits.conf, LimitMEMLOCK of slurmd and sshd)",
    "gpus": "admin: compare nvidia-smi -q there and on another node; set the limit (-pl), reset, reseat or drain it",
}


def judge(report: Report) -> Report:
    """Return the report with the findings of all rules."""
    clashing = {host for finding in address_clashes(report) for host in finding.hosts}
    # What reaches two hosts with one address proves nothing.
    sound = report._replace(pairs=tuple(pair for pair in report.pairs if clashing.isdisjoint((pair.one, pair.other))))
    found = (f._replace(remedy=f.remedy or remedy) for rule, remedy in RULES for f in rule(sound))
    return reports.with_findings(report, tuple(found))
