"""The report on a world for the user: how it formed, and which of its nodes differ from the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter, eq
from typing import TYPE_CHECKING, Any, NamedTuple

from mingle_hooks.errors import printable
from mingle_hooks.net.addresses import Interface, interfaces
from mingle_hooks.rendezvous import fingerprint
from mingle_hooks.rendezvous.fingerprint import DOWN, FULL, MORE, NO_DEVICE, NOTHING, SILENT, is_variable
from mingle_hooks.rendezvous.messages import Durations, Failure
from mingle_hooks.rendezvous.roster import AdvertisedAddress, Entry, crossings
from mingle_hooks.schedulers.facts import fold
from mingle_hooks.values import FIELDS

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.leader import Leader
    from mingle_hooks.rendezvous.member import Observer, Request
    from mingle_hooks.settings import Settings

# The comparison of the members' nodes: no files, no clock, no network.

KINDS = "kinds"  # the finding about kinds of node, which is not a field: a job may be heterogeneous


class Compared(NamedTuple):
    """One member: its host, its fingerprint, how far its clock is ahead of the leader's, and its own addresses."""

    host: str
    fingerprint: str
    clock: tuple[float, float] | None = None  # at least, at most; in seconds
    addresses: str = ""  # separated by blanks


class Group(NamedTuple):
    """Members with the same fingerprint."""

    parts: Mapping[str, str]
    hosts: list[str]  # one for each member
    lack: str = ""  # why they cannot use RDMA, where others can


class Finding(NamedTuple):
    """One difference. `hosts` deviate; none do if there is no majority."""

    field: str
    hosts: tuple[str, ...]
    text: str


# Kinds of node: a job may have several by intent, and only nodes of one kind are compared with each other.

Key = tuple[str, ...]

# The parts that define a kind, and the fewest members, and share of all members, that form one: fewer are nodes of
# another kind with a defect.
PARTS = ("gpus", "rdma.link", "kernel.machine")
FEWEST, FEWEST_SHARE = 2, 0.05


def split_kinds(groups: Sequence[Group]) -> dict[Key, list[Group]]:
    """Return kind -> its groups, the largest kind first; a group of no kind joins the most similar one."""
    keys = _keys(groups)
    counts: Counter[Key] = Counter()
    for key, group in zip(keys, groups, strict=True):
        counts[key] += len(group.hosts)
    least = max(FEWEST, FEWEST_SHARE * sum(counts.values()))
    known = sorted((key for key, count in counts.items() if count >= least), key=lambda key: (-counts[key], key))
    if len(known) < 2:  # noqa: PLR2004 - one kind, or so few members that none is
        return {known[0] if known else (): list(groups)}
    kinds: dict[Key, list[Group]] = {key: [] for key in known}
    for key, group in zip(keys, groups, strict=True):
        if key not in kinds:
            key = max(known, key=lambda other: sum(map(eq, key, other)))  # noqa: PLW2901 - called at once
        kinds[key].append(group)
    return kinds


def kinds_finding(kinds: dict[Key, list[Group]]) -> list[Finding]:
    """Return one finding, which counts the nodes of each kind, where there are several."""
    if len(kinds) == 1:
        return []
    names = [_name(key, list(kinds)) for key in kinds]
    counts = [sum(len(group.hosts) for group in groups) for groups in kinds.values()]
    text = "; ".join(f"{count} × {name}" for count, name in zip(counts, names, strict=True))
    return [Finding(KINDS, (), f"{len(kinds)} kinds of node: {text}")]


def _keys(groups: Sequence[Group]) -> list[Key]:
    """Return each group's kind; a node without an RDMA device has that of most nodes with its GPUs and machine."""
    keys = [tuple(group.parts.get(part, NOTHING) for part in PARTS) for group in groups]
    links: dict[Key, Counter[str]] = {}  # GPUs and machine -> RDMA link -> number of members with it
    for (gpus, link, machine), group in zip(keys, groups, strict=True):
        links.setdefault((gpus, machine), Counter())[link] += len(group.hosts)
    most = {key: max((count, link) for link, count in counts.items())[1] for key, counts in links.items()}
    return [(gpus, most[gpus, machine] if link == NOTHING else link, machine) for gpus, link, machine in keys]


def _name(key: Key, kinds: Sequence[Key]) -> str:
    """Return a kind's GPUs, and what distinguishes it from other kinds with the same ones."""
    gpus = "no GPUs" if key[0] == NOTHING else key[0]
    same = [other for other in kinds if other[0] == key[0]]
    differs = [key[place] for place in (1, 2) if len({other[place] for other in same}) > 1]
    return " ".join([gpus, *("no RDMA" if part == NOTHING else part for part in differs)])


# The text of findings: folded lists of hosts, and the usual names of fields and values.

# Characters of a folded list, of which a line has up to four, and of the list to exclude, which has to be whole.
LONGEST_LIST, LONGEST_EXCLUDE = 80, 300
FEW = 4  # hosts that are shown of a longer list
MOST_LINES = 10
UNSET = "not set"
_LABELS = {
    "shm": "/dev/shm",  # noqa: S108 - its name
    "tmp": "/tmp",  # noqa: S108
    "gpus": "GPUs",
    "rdma": "RDMA",
    "rdma.firmware": "RDMA firmware",
    "kernel.machine": "machine",
    MORE: "other variables",
}
_VALUES = {NOTHING: "none", "ok": "in order", "silent": "that does not answer"}


def field_label(key: str) -> str:
    """Return the usual name of a part."""
    return _LABELS.get(key, key.rpartition(".")[2])


def some_of(hosts: Sequence[str]) -> str:
    """Return the folded list of the hosts, or of the first few and the number of the others."""
    text = fold(list(hosts))
    if len(text) <= LONGEST_LIST:
        return text
    names = list(dict.fromkeys(hosts))
    return f"{fold(names[:FEW])} and {len(names) - FEW} more"


def others_text(count: int) -> str:
    """Return `1 other`, `2 others` and so on."""
    return "1 other" if count == 1 else f"{count} others"


def finding_lines(findings: Iterable[Finding]) -> list[str]:
    """Return at most ten lines: one for each difference, and the option that excludes the deviating nodes."""
    order = {name: place for place, name in enumerate(FIELDS)}
    ordered = sorted(findings, key=lambda finding: order.get(finding.field, -1))
    last = [f"to leave out: {option}" for option in exclude_option(ordered)]
    room = MOST_LINES - len(last)
    if len(ordered) > room:
        last = [f"and {len(ordered) - room + 1} more differences", *last]
        ordered = ordered[: room - 1]
    return [*(printable(finding.text) for finding in ordered), *last]  # values come from other hosts


def exclude_option(findings: Iterable[Finding]) -> list[str]:
    """Return sbatch's option that excludes the deviating nodes, nothing if there are none or too many."""
    hosts = fold([host for finding in findings if finding.field != "environment" for host in finding.hosts])
    return [f"--exclude={hosts}"] if 0 < len(hosts) <= LONGEST_EXCLUDE else []


def field_name(key: str) -> str:
    """Return the field that a part belongs to."""
    return "environment" if is_variable(key) or key == MORE else key.partition(".")[0]


# Deviations from the majority: three of four that agree name the fourth; below that no host is named.

MAJORITY = 0.75
MOST_VALUES = 4  # in a line without a majority
# Variables that differ on the same hosts; more of them share one line.
MOST_VARIABLES = 2
MOST_NAMES = 3  # of these in that line
# A variable with at least this many values, and half as many as members, is meant to differ.
FEWEST_BY_DESIGN = 3
# The ports' findings cover it.
_NOT_COMPARED = "rdma.link"


def majority_differences(groups: Sequence[Group]) -> list[Finding]:
    """Return the differences between members of one kind, in the order of their parts."""
    keys = sorted({key for group in groups for key in group.parts} - {_NOT_COMPARED, MORE})
    fields = [finding for key in keys if not is_variable(key) for finding in _of(key, groups)]
    variables = [finding for key in keys if is_variable(key) for finding in _of(key, groups)]
    return [*fields, *_together(variables or _of(MORE, groups))]


def _of(key: str, groups: Sequence[Group]) -> list[Finding]:
    values: dict[str, list[str]] = {}
    for group in groups:
        value = _value(key, group)
        if value is not None:
            values.setdefault(value, []).extend(group.hosts)
    total = sum(len(hosts) for hosts in values.values())
    if is_variable(key) and FEWEST_BY_DESIGN <= len(values) >= total / 2:
        return []
    return odd_values(field_name(key), field_label(key), values)


def odd_values(field: str, label: str, values: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Return the differences from the majority's value, given the hosts of each value."""
    if len(values) < 2:  # noqa: PLR2004 - all agree
        return []
    total = sum(len(hosts) for hosts in values.values())
    ordered = sorted(values, key=lambda value: (-len(values[value]), value))
    most = len(values[ordered[0]])
    if most < MAJORITY * total:
        texts = [f"{some_of(values[value])} {_VALUES.get(value, value)}" for value in ordered[:MOST_VALUES]]
        texts += [f"{len(ordered) - MOST_VALUES} more values"] if ordered[MOST_VALUES:] else []
        return [Finding(field, (), f"no majority for {label}: {'; '.join(texts)}")]
    usual, *odd = ((_VALUES.get(value, value), values[value]) for value in ordered)
    expected = f"{others_text(most)} {usual[0]}"
    return [Finding(field, tuple(hosts), f"{some_of(hosts)}: {label} {text}, {expected}") for text, hosts in odd]


def _value(key: str, group: Group) -> str | None:
    """Return a group's value, None if it has none, or another finding covers it."""
    if is_variable(key):
        is_known = MORE not in group.parts or key < max(filter(is_variable, group.parts), default="")
        return group.parts.get(key, UNSET if is_known else None)
    value = group.parts.get(key)
    is_cause = field_name(key) == "rdma" or (key == "limits.memlock" and MEMLOCK in group.lack)
    return None if value == FULL or (group.lack and is_cause) else value


def _together(findings: Iterable[Finding]) -> list[Finding]:
    """Return one finding for many variables that differ on the same hosts, where a profile may not have been read."""
    by_hosts: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        by_hosts.setdefault(finding.hosts, []).append(finding)
    found = []
    for hosts, same in by_hosts.items():
        if len(same) <= MOST_VARIABLES or not hosts:
            found += same
            continue
        names = [finding.text.partition(": ")[2].partition(" ")[0] for finding in same]
        rest = f" and {len(same) - MOST_NAMES} more" if same[MOST_NAMES:] else ""
        found.append(Finding("environment", hosts, f"{some_of(hosts)}: other {', '.join(names[:MOST_NAMES])}{rest}"))
    return found


# Members that cannot use RDMA though most others can: NCCL would silently fall back to TCP, for all.

_WHY = {
    NOTHING: "no RDMA device",
    DOWN: "no active RDMA port",
    NO_DEVICE: "RDMA ports, but no /dev/infiniband",
    SILENT: "an RDMA device that does not answer",
}
MEMLOCK = "memlock"
# With such a limit NCCL cannot register its buffers, some ten megabytes for each peer; sites set it to unlimited.
_LOW = {f"{size}M" for size in (1, 2, 4, 8, 16, 32)}  # or less than one M


def marked_without_rdma(groups: Sequence[Group], *, required: bool) -> list[Group]:
    """Return the groups, with `lack` set where they cannot use RDMA though it is required or most similar nodes can."""
    excess: Counter[tuple[str, ...]] = Counter()  # members with RDMA minus those without, among those that should agree
    for group in groups:
        excess[_base(group.parts)] += -len(group.hosts) if _lack(group.parts) else len(group.hosts)
    return [g._replace(lack=_lack(g.parts) if required or excess[_base(g.parts)] > 0 else "") for g in groups]


def rdma_findings(groups: Sequence[Group]) -> list[Finding]:
    """Return the groups that lack RDMA, one finding for each reason."""
    able = sum(len(group.hosts) for group in groups if not _lack(group.parts))
    hosts: dict[str, list[str]] = {}
    for group in groups:
        if group.lack:
            hosts.setdefault(group.lack, []).extend(group.hosts)
    expected = f"RDMA on {others_text(able)}" if able else "RDMA is asked for (rdma = true)"
    return [
        Finding("rdma", tuple(names), f"{some_of(names)}: {why}; {expected}") for why, names in sorted(hosts.items())
    ]


def _lack(parts: Mapping[str, str]) -> str:
    """Return why a member cannot use RDMA, "" if it can."""
    ports = parts.get("rdma", NOTHING)
    if ports in _WHY:
        return _WHY[ports]
    memlock = parts.get("limits.memlock", "")
    return f"{MEMLOCK} {memlock}, too low for RDMA" if memlock in _LOW or memlock.endswith("K") else ""


def _base(parts: Mapping[str, str]) -> tuple[str, ...]:
    """Return what nodes have in common that should all have RDMA: data loaders without GPUs need none."""
    return parts.get("gpus", NOTHING).partition(" ")[2], parts.get("kernel.machine", NOTHING)


# Comparisons without a majority of values: space, clocks, addresses.

CLOCK_S = 1.0  # a clock deviates only if its whole interval is further off
SPACES = ("shm", "tmp")
# An address of more than this share of the members, and of more than two, is internal to each host, as docker's is.
MOST_SHARE = 0.25


def space_findings(groups: Iterable[Group]) -> list[Finding]:
    """Return the members with a full memory file system or /tmp."""
    full = {name: [h for g in groups if g.parts.get(name) == FULL for h in g.hosts] for name in SPACES}
    return [Finding(name, tuple(h), f"{some_of(h)}: {field_label(name)} is full") for name, h in full.items() if h]


def clock_findings(members: Sequence[Compared]) -> list[Finding]:
    """Return the members whose clocks are more than a second off those of nearly all."""
    clocks = [(member.host, *member.clock) for member in members if member.clock is not None]
    if not clocks or max(low for _, low, _ in clocks) - min(high for _, _, high in clocks) <= CLOCK_S:
        return []
    middles = sorted((low + high) / 2 for _, low, high in clocks)
    middle = middles[len(middles) // 2]
    ahead = {host: low - middle for host, low, _ in clocks if low - middle > CLOCK_S}
    behind = {host: middle - high for host, _, high in clocks if middle - high > CLOCK_S}
    rest = len(clocks) - len(ahead) - len(behind)
    if rest < MAJORITY * len(clocks):
        first, last = min(clocks, key=lambda clock: clock[1]), max(clocks, key=lambda clock: clock[1])
        text = f"no majority for clock: {last[0]} is {last[1] - first[2]:.1f} s ahead of {first[0]}"
        return [Finding("clock", (), text)]
    return [
        Finding("clock", tuple(off), f"{some_of([*off])}: clock {_amount(off.values())} {way} {others_text(rest)}")
        for off, way in ((ahead, "ahead of"), (behind, "behind"))
        if off
    ]


def address_findings(members: Sequence[Compared]) -> list[Finding]:
    """Return the hosts that share an address; one that many share is internal to each."""
    owners: dict[str, list[str]] = {}
    for member in members:
        for text in member.addresses.split():
            owners.setdefault(text.partition("=")[0], []).append(member.host)
    return [
        Finding("address", tuple(dict.fromkeys(hosts)), f"{some_of(hosts)}: {address} on each of them")
        for address, hosts in owners.items()
        if len(hosts) <= max(2, MOST_SHARE * len(members)) and 1 < len(set(hosts)) < len(members)
    ]


def reach_findings(unreached: Iterable[tuple[str, Sequence[str]]], count: int) -> list[Finding]:
    """Return the few hosts that do not reach a better address of rank 0, which a world of `count` members could use."""
    best = {tuple(hosts): address for address, hosts in reversed([*unreached])}
    what = "does not reach rank 0 at"
    return [
        Finding("network", hosts, f"{some_of(hosts)}: {what} {address}, {others_text(count - len(hosts))} do")
        for hosts, address in best.items()
        if count - len(hosts) >= MAJORITY * count
    ]


def _amount(seconds: Iterable[float]) -> str:
    """Return `5.0 s` or `2.0 to 5.0 s`."""
    low, high = min(seconds), max(seconds)
    return f"{low:.1f} s" if high - low < 0.1 else f"{low:.1f} to {high:.1f} s"  # noqa: PLR2004 - what is shown


def compare_members(
    members: Sequence[Compared], *, asks_rdma: bool = False, unreached: Iterable[tuple[str, Sequence[str]]] = ()
) -> list[Finding]:
    """Return the differences; members without a fingerprint are left out.

    `asks_rdma`: all members must have RDMA. `unreached`: better addresses of rank 0 than the world's, with the hosts
    that did not reach them.
    """
    members = [member for member in members if member.fingerprint]
    found = [*clock_findings(members), *address_findings(members), *reach_findings(unreached, len(members))]
    groups = marked_without_rdma(_groups(members), required=asks_rdma)
    by_kind = split_kinds(groups)
    return [
        *kinds_finding(by_kind),
        *rdma_findings(groups),
        *found,
        *space_findings(groups),
        *(finding for kind in by_kind.values() for finding in majority_differences(kind)),
    ]


def _groups(members: Sequence[Compared]) -> list[Group]:
    """Group members by fingerprint, and parse each one once: of thousands, few are different."""
    hosts: dict[str, list[str]] = {}
    for member in members:
        hosts.setdefault(member.fingerprint, []).append(member.host)
    return [Group(fingerprint.load_fingerprint(text), names) for text, names in hosts.items()]


# The timeline of a start, by rank 0's clock, in seconds.

# Members that are listed one by one; of more, only the last is named.
MOST_LISTED = 16
# Members within so many seconds are punctual: a tick of the kernel, and the wake-up of a busy host.
PUNCTUAL_S = 0.05

_CAUSES = {
    "began_s": "a late start by the scheduler",
    "start_s": "mingle's start (Python, imports, settings)",
    "names_s": "name look-ups",
    "network_s": "the network",
}


class Phases(NamedTuple):
    """One member: when its task began, searched for the others and checked in, and what took the time."""

    host: str
    began: float
    searching: float
    arrived: float
    names_s: float
    network_s: float  # without the time before rank 0 was there

    @property
    def ready(self) -> float:
        """When it would have checked in if rank 0 had been there."""
        return self.searching + self.names_s + self.network_s


def phases(members: Sequence[tuple[str, float, Durations | None]]) -> list[Phases]:
    """Return the phases of members, of which host, check-in and durations are given, rank 0 first."""
    found: list[Phases] = []
    leader_at = members[0][1] if members else 0.0
    for host, arrived, spent in members:
        if spent is None:  # an earlier version of mingle does not report them
            continue
        began = arrived - spent.in_ms / 1000
        searching = began + spent.asked_ms / 1000
        free = max(searching, min(leader_at, arrived))
        names_s = min(spent.names_ms / 1000, arrived - free)
        found.append(Phases(host, began, searching, arrived, names_s, arrived - free - names_s))
    return found


def timeline_lines(members: Sequence[Phases], formed: float) -> list[str]:
    """Return the times since the first task began, and which member was last to be ready, by how much, and why."""
    if len(members) <= 1:
        return []
    zero = min(member.began for member in members)
    listed = [
        f"{member.host} started at {member.began - zero:.2f} s, searched from {member.searching - zero:.2f} s,"
        f" checked in at {member.arrived - zero:.2f} s"
        for member in (members if len(members) <= MOST_LISTED else ())
    ]
    return [*listed, f"the world formed at {formed - zero:.2f} s", _why(members)]


def last_to_arrive(members: Sequence[Phases]) -> dict[str, Any] | None:
    """Return which member was last to be ready, how many seconds after the first, and why, if any was late."""
    if not members:
        return None
    first, late = (pick(members, key=attrgetter("ready")) for pick in (min, max))
    if late.ready - first.ready < PUNCTUAL_S:
        return None
    began_s = late.began - min(member.began for member in members)
    spans_s = (late.ready - first.ready, began_s, late.searching - late.began, late.names_s, late.network_s)
    durations = {name: round(span_s, 3) for name, span_s in zip(("late_s", *_CAUSES), spans_s, strict=True)}
    return {"host": late.host, "after": first.host, **durations}


def _why(members: Sequence[Phases]) -> str:
    found = last_to_arrive(members)
    if found is None:
        return f"all were ready within {PUNCTUAL_S:g} s"
    parts = ", ".join(f"{found[name]:.2f} s for {what}" for name, what in _CAUSES.items())
    return f"last to be ready: {found['host']}, {found['late_s']:.2f} s after {found['after']}: {parts}"


def leader_report(leader: Leader, chosen: str) -> list[str]:
    """Return the lines of rank 0's --explain; `chosen` is the address that the world uses."""
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
        elif is_after:  # members that reached a better one do not probe it
            why = "not needed: slower, or later in order"
        elif short:
            why = f"not reached by {fold(short)}"
        else:
            why = "reached too late"
        lines.append(f"address {_named(offer, carriers)}: {why}")

    lines += _order(leader)
    first, last = (pick(entries, key=attrgetter("arrived")) for pick in (min, max))
    if first is not last:
        after = f"{last.arrived - first.arrived:.2f} s after the first, {first.label}"
        lines.append(f"last of {len(entries)} members to check in: {last.label}, {after}")
    checked_in = [(e.join_request.host, e.arrived, e.join_request.spent) for e in leader.roster.in_usual_order()]
    return [*lines, *timeline_lines(phases(checked_in), leader.formed_at)]


def _order(leader: Leader) -> list[str]:
    """Return both orders of the members, and what the one by switch saves, if it is used."""
    if not leader.roster.by_switch:
        return []
    usual, taken = leader.roster.in_usual_order(), [entry for entry, _ in leader.roster.members(None)]
    orders = [[entry.join_request for entry in entries] for entries in (taken, usual)]
    by_switch, as_usual = (",".join(request.host for request in order) for order in orders)
    now, was = (crossings([request.topology for request in order]) for order in orders)
    lines = [f"ranks by switch: {by_switch}", f"ranks in the usual order: {as_usual}"]
    return [*lines, f"neighbours in rank below different switches: {now}, in the usual order {was}"]


def _named(offer: AdvertisedAddress, carriers: dict[str, Interface]) -> str:
    carrier = carriers.get(offer.address)
    if carrier is None:
        return offer.address
    speed = f"{carrier.speed_mbps / 1000:g} Gb/s" if carrier.speed_mbps else ""
    known = ", ".join(filter(None, (carrier.name, carrier.kind, speed, offer.why)))
    return f"{offer.address} ({known})"


def note_by_leader(leader: Leader, request: Request, observer: Observer, chosen: str) -> None:
    """Report what rank 0 knows of all members; `chosen` is the address that the world uses."""
    entries = leader.roster.in_usual_order() if leader.roster.by_switch else []
    if lacking := [entry.join_request.host for entry in entries if not entry.join_request.topology]:
        which = f"the switches of {fold(lacking)} are unknown"
        observer.note(f"{which}: these nodes get neighbouring ranks, in the usual order")
    if request.node_facts is not None:
        for line in difference_lines(leader, chosen, asks_rdma=request.spec.settings.rdma):
            observer.note(line)
    if observer.explain is not None:
        for line in leader_report(leader, chosen):
            observer.explain(line)


# Differences between nodes: a warning once the world has formed, or with --strict the reason why it does not.

MOST_DIFFERENCES = 3  # differences in an error, which is one line


def refuse_different_nodes(leader: Leader, settings: Settings, offer: int) -> bool:
    """Fail the leader if members differ in a field of --strict, and return whether they do; `offer` is the address."""
    found = _findings(leader, offer, asks_rdma=settings.rdma)
    refused = [finding for finding in found if finding.field in settings.strict]
    if refused:
        texts = [finding.text for finding in refused[:MOST_DIFFERENCES]]
        texts += [f"and {len(refused) - MOST_DIFFERENCES} more"] if refused[MOST_DIFFERENCES:] else []
        remedy = ", or ".join([*(exclude_option(refused) or ["nodes that agree"]), "--no-strict"])
        leader.fail(Failure("differs", (str(len(leader.roster)), "; ".join(texts), remedy)))
    return bool(refused)


def difference_lines(leader: Leader, at: str, *, asks_rdma: bool) -> list[str]:
    """Return the lines about differing nodes of a world that uses this address of the leader."""
    offer = next((place for place, offered in enumerate(leader.terms.advertised) if offered.address == at), 0)
    return finding_lines(_findings(leader, offer, asks_rdma=asks_rdma))


def _findings(leader: Leader, offer: int, *, asks_rdma: bool) -> list[Finding]:
    entries = [entry for entry in leader.roster.entries() if entry.fingerprint]
    unreached = [
        (address.address, short)
        for index, address in enumerate(leader.terms.advertised[:offer])
        if not address.loopback and (short := [e.join_request.host for e in entries if index not in e.reached])
    ]
    members = [Compared(e.join_request.host, e.fingerprint + _carrier(e, offer), e.clock, e.addresses) for e in entries]
    return compare_members(members, asks_rdma=asks_rdma, unreached=unreached)


def _carrier(entry: Entry, offer: int) -> str:
    """Return, as a part, speed and MTU of the interface that a member uses in the world; "" without them."""
    _, is_there, rest = entry.addresses.partition(f"{entry.own_address(offer)}=")
    return f" network={rest.partition(' ')[0]}" if is_there else ""
