"""What probes report, and what `mingle check` found in it; as a table, a page and JSON."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from ipaddress import ip_address
from itertools import groupby
from typing import Annotated, Any, Literal, NamedTuple

from mingle_hooks import __version__, files
from mingle_hooks.errors import printable
from mingle_hooks.rendezvous.fingerprint import LONGEST
from mingle_hooks.rendezvous.wire import Body, Key, Most, WireError, address, parse, printable_text, within
from mingle_hooks.run.messages import Milliseconds
from mingle_hooks.schedulers.facts import fold

Kind = Literal["missing", "network", "node"]
# A fact, or what several others saw alike; what two saw, or may be chance; and what one saw: the other may be at fault.
Confidence = Literal["certain", "likely", "possible"]
# So many hosts that saw it: two may share a fault of their own.
_CERTAIN, _LIKELY = 3, 2

# Exit statuses, those of MissingError, NetworkError and ConflictError: the lowest that applies.
STATUSES: dict[Kind, int] = {"missing": 69, "network": 71, "node": 76}
# If more than this share of the hosts seem to be at fault, it is the network or the check: no host is left out.
MOST_EXCLUDED = 0.25

Count = Annotated[int, within(0, (1 << 63) - 1)]
IpAddress = Annotated[str, address]
Mtu = Annotated[int, within(0, 1 << 20)]
PortNumber = Annotated[int, within(0, 65535)]
Text = Annotated[str, printable_text(300)]


class Address(NamedTuple):
    """An address at which other hosts may reach a host, best first; its probe listens at `port` there."""

    iface: Text
    kind: Text
    address: IpAddress
    prefix: Annotated[int, within(0, 128)]
    mtu: Mtu | None
    speed_mbps: Count | None
    port: PortNumber  # 0: none is open
    free_port: PortNumber = 0  # one that the kernel may give to any program, as it does to NCCL and Gloo
    mac: Text = ""


class Space(NamedTuple):
    """The free space of a directory in MiB; None if the file system does not answer."""

    path: Text
    free_mb: Count | None
    total_mb: Count | None


class Amount(NamedTuple):
    """How much a host has of something, such as cores, or has counted, such as errors."""

    name: Text
    value: Count


class Name(NamedTuple):
    """The addresses that a host name has on one host; None if the name service did not answer in time."""

    name: str
    addresses: tuple[str, ...] | None


class Heard(NamedTuple):
    """Multicast on one interface: the hosts that were heard, and what went wrong."""

    iface: str
    hosts: tuple[str, ...]
    fault: str = ""


class Host(NamedTuple):
    """One host, by its name in the job or in --hosts; `missing` says why nothing else is known of it."""

    name: str
    missing: str | None = None
    is_late: bool = False  # missing because nothing arrived in time, not because of an error
    hostname: str = ""
    identity: str = ""  # the same for two names of one machine
    gpus: int | None = None
    fingerprint: str = ""  # what should be alike on all hosts
    addresses: tuple[Address, ...] = ()
    every: tuple[str, ...] = ()  # all of its addresses, also those of networks that --iface leaves out
    guests: tuple[tuple[str, str], ...] = ()  # interface and address of bridges to its own containers and guests
    spaces: tuple[Space, ...] = ()
    amounts: tuple[Amount, ...] = ()
    faults: tuple[str, ...] = ()  # of its GPUs, and of its network as it sees it
    own_name: tuple[str, ...] | None = ()  # the addresses of its own name, as in Name
    names: tuple[Name, ...] = ()  # the other hosts' names, as it resolves them
    multicast: tuple[Heard, ...] = ()
    clock: tuple[float, float] | None = None  # seconds ahead of the caller's: at least, at most
    late_s: float = 0.0  # for how long its probe did not run, if that was too long to know everything
    dropped: int = 0  # datagrams that its own kernel dropped, if these account for all that it lost
    had_no_room: bool = False  # its kernel's neighbour table was full at times
    refused: int = 0  # addresses to which its kernel sent nothing until the end

    @property
    def is_doubtful(self) -> bool:
        """Whether the check itself may be the reason that datagrams of this host were lost."""
        return self.late_s > 0.0 or self.had_no_room


class Network(NamedTuple):
    """One network with its hosts, and the address of each."""

    name: str
    hosts: tuple[str, ...]
    addresses: tuple[str, ...]


def network_ends(hosts: Iterable[Host], network: Network) -> dict[str, Address]:
    """Return host -> its address on a network, of these hosts."""
    ends = {(host.name, address.address): address for host in hosts for address in host.addresses}
    wanted = zip(network.hosts, network.addresses, strict=True)
    return {host: ends[host, address] for host, address in wanted if (host, address) in ends}


class Pair(NamedTuple):
    """What arrived between two hosts on one network.

    Of `sent` datagrams to `other`, `there` arrived; of `sent_back` to `one`, `back` arrived. `mtu` is the largest
    packet that arrived, in bytes. `open_there` and `open_back` are about TCP: "" if the port was open, else why it
    was not; None if it was not tried. `free_there` and `free_back` are about TCP and UDP to a port
    such as the kernel chooses.
    """

    one: str
    other: str
    network: str
    sent: int = 0
    there: int = 0
    sent_back: int = 0
    back: int = 0
    rtt_us: int | None = None
    mtu: int | None = None
    open_there: str | None = None
    open_back: str | None = None
    free_there: str | None = None
    free_back: str | None = None


class Flow(NamedTuple):
    """The throughput of one TCP connection in Mbit/s; None if nothing arrived."""

    sender: str
    receiver: str
    network: str
    mbits: int | None


class Finding(NamedTuple):
    """One line for a person: which hosts it is about, which to leave out, and what to do. A note needs no action.

    `text` has what was seen, and what was expected unless that is plain.
    """

    kind: Kind
    hosts: tuple[str, ...]
    text: str
    exclude: tuple[str, ...] = ()
    is_note: bool = False
    remedy: str = ""  # one line: what to do, after who can do it: "user: " or "admin: "
    confidence: Confidence = "certain"

    @property
    def who(self) -> tuple[str, ...]:
        """Return who can do something: users, admins, or both."""
        return tuple(who for who in ("user", "admin") if f"{who}: " in self.remedy)

    @property
    def line(self) -> str:
        """Return the text, and how sure it is if that is in doubt."""
        return self.text if self.confidence == "certain" else f"{self.text} ({self.confidence})"


def confidence_of(witnesses: Collection[str]) -> Confidence:
    """Return how certain it is what these hosts all saw of another one."""
    return "certain" if len(witnesses) >= _CERTAIN else "likely" if len(witnesses) >= _LIKELY else "possible"


class Report(NamedTuple):
    """The results of one check.

    `others` is how many hosts each host probed; None means all. `unknown` are the pairs with losses that prove nothing:
    one end was too busy, or its kernel had no room. `is_forced`: any number of hosts may be left out.
    """

    hosts: tuple[Host, ...]
    networks: tuple[Network, ...] = ()
    pairs: tuple[Pair, ...] = ()
    flows: tuple[Flow, ...] = ()
    findings: tuple[Finding, ...] = ()
    took_s: float = 0.0
    others: int | None = None
    unknown: tuple[Pair, ...] = ()
    is_forced: bool = False

    @property
    def here(self) -> tuple[Host, ...]:
        """The hosts that answered."""
        return tuple(host for host in self.hosts if host.missing is None)

    @property
    def suspects(self) -> tuple[str, ...]:
        """The hosts that findings would leave out, in the order of the hosts."""
        suspects = {host for finding in self.findings for host in finding.exclude}
        return tuple(host.name for host in self.hosts if host.name in suspects)

    @property
    def most_excluded(self) -> int:
        """How many hosts may be at fault by themselves: a quarter; of fewer than eight hosts, one."""
        return max(1, int(len(self.hosts) * MOST_EXCLUDED))

    @property
    def exclude(self) -> tuple[str, ...]:
        """The hosts to leave out; none if they would be too many."""
        return self.suspects if self.is_forced or len(self.suspects) <= self.most_excluded else ()

    @property
    def status(self) -> int:
        """The exit status: 0 if all is well, that of a node only if one is to be left out."""
        kinds = {finding.kind for finding in self.findings if not finding.is_note}
        if not self.exclude:
            kinds = {"network" if kind == "node" else kind for kind in kinds}
        return min((STATUSES[kind] for kind in kinds), default=0)

    def to_json(self) -> dict[str, Any]:
        """Return what --json prints."""
        findings = [{**_plain(finding), "who": [*finding.who]} for finding in self.findings]
        return {**_plain(self), "findings": findings, "exclude": [*self.exclude], "status": self.status}


def _plain(value: Any) -> Any:
    """Return records as objects, all the way down."""
    if hasattr(value, "_asdict"):
        return {name: _plain(field) for name, field in value._asdict().items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def with_findings(report: Report, more: tuple[Finding, ...]) -> Report:
    """Return the report with more findings: notes last, and before them in the order of their statuses."""
    findings = sorted((*report.findings, *more), key=lambda finding: (finding.is_note, STATUSES[finding.kind]))
    return report._replace(findings=tuple(findings))


def speed_text(mbits: float) -> str:
    """Return a speed as people write it."""
    return f"{mbits / 1000:.1f} Gbit/s" if mbits >= 1000 else f"{mbits:.0f} Mbit/s"  # noqa: PLR2004 - a unit's size


def verdict_text(report: Report) -> str:
    """Return the last line: how much was checked, in what time, and how many findings there are."""
    hosts = count_text(len(report.hosts), "host")
    if len(report.here) != len(report.hosts):
        hosts = f"{len(report.here)} of {len(report.hosts)} hosts"
    pairs = len({(pair.one, pair.other) for pair in report.pairs})
    between = f", {count_text(pairs, 'pair')} on {count_text(len(report.networks), 'network')}" if pairs else ""
    some = f" (each with {report.others} others)" if report.others is not None else ""
    bad = sum(not finding.is_note for finding in report.findings)
    well = f"all is well{', except for what is not known' if report.unknown else ''}"
    return f"{hosts}{between}{some} in {report.took_s:.1f} s: {count_text(bad, 'finding') if bad else well}"


def count_text(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count} {noun}{'s' * (count != 1)}"


# The messages between a probe and `mingle check`, on a link on which both have proved that they hold the key.
#
# ::
#
#     probe                                     mingle check
#       JOIN, WELCOME     as an agent's, and then
#       FACTS   what this host is            →
#                                            ←  ORDER   probe hosts; count what arrived; send to a host
#       ANSWER  the results                  →
#                                            ←  LEAVE
#
# All of it is parsed into bounded types: text of other hosts is shown on a terminal and on a page.

# These are distinct from the kinds of an agent's messages.
FACTS, ORDER, ANSWER = 48, 49, 50
# Variables of a probe, beside its key and the addresses of `mingle check`.
IFACE, PORTS = "MINGLE_IFACE", "MINGLE_PORT_RANGE"
PROBE, COUNT, SEND = "probe", "count", "send"
# The exit status of a probe that did not reach `mingle check`, or lost it: EX_TEMPFAIL.
GAVE_UP = 75
# A round trip that takes no more than this is never long, in microseconds.
FAR_US = 2000
# Why a port is closed: to TCP, and to UDP alone.
LATE, NO_ECHO = "no answer", "no answer to datagrams"

MOST_ADDRESSES, MOST_OF_HOST = 32, 256
MOST_HOSTS = 1 << 16

HostNumber = Annotated[int, within(0, MOST_HOSTS)]
IpAddresses = Annotated[tuple[IpAddress, ...], Most(MOST_ADDRESSES)]


class _Guest(NamedTuple):
    iface: Text
    address: IpAddress


class Peer(NamedTuple):
    """Another host on one network: its number, its turn, whether this host begins, and the addresses of both."""

    number: HostNumber
    turn: Annotated[int, within(0, MOST_HOSTS)]
    begins: bool
    network: Annotated[int, within(0, MOST_HOSTS)]
    mine: IpAddress
    theirs: IpAddress
    port: PortNumber
    mtu: Mtu  # the smaller one of the two interfaces'
    free_port: PortNumber = 0  # 0: it is not tried


class Measured(NamedTuple):
    """What a probe measured to another host on one network; `closed` is why TCP failed, "" if it did not.

    `free_closed` is the same of the other port, and of UDP; None if it was not tried.
    `had_no_room`: its kernel's neighbour table had no room for that host, at least once.
    """

    number: HostNumber
    network: Annotated[int, within(0, MOST_HOSTS)]
    sent: Annotated[int, within(0, MOST_HOSTS)]
    rtt_us: Count | None
    mtu: Mtu | None
    closed: Text
    had_no_room: bool
    free_closed: Text | None = None


class HeardRow(NamedTuple):
    """Multicast on one interface, with the numbers of the hosts that were heard."""

    iface: Text
    hosts: Annotated[tuple[HostNumber, ...], Most(MOST_HOSTS)]
    fault: Text


class NameRow(NamedTuple):
    """The addresses of host `number`'s name on the probe's host; None if the name service did not answer."""

    number: HostNumber
    addresses: IpAddresses | None


class HostName(NamedTuple):
    """A host's number, and the name to look up."""

    number: HostNumber
    name: Annotated[str, printable_text(253)]


class ProbeOrder(NamedTuple):
    """PROBE: send datagrams to each peer; a turn lasts `turn_us`, all of it `most_ms` at most."""

    peers: Annotated[tuple[Peer, ...], Most(MOST_HOSTS)]
    names: Annotated[tuple[HostName, ...], Most(MOST_HOSTS)]
    datagrams: Annotated[int, Key("count"), within(1, 1000)]
    multicast: bool
    limit_ms: Milliseconds
    most_ms: Milliseconds
    turn_us: Annotated[int, within(1, 10**8)]


class SendOrder(NamedTuple):
    """SEND: send as much as possible to one host in this time."""

    number: HostNumber
    theirs: IpAddress
    port: Annotated[int, within(1, 65535)]
    limit_ms: Annotated[int, within(0, 10**6)]


class Arrived(NamedTuple):
    """How many datagrams of a host arrived on one network."""

    sender: HostNumber
    network: Annotated[int, within(0, MOST_HOSTS)]
    datagrams: Annotated[int, within(0, 1 << 20)]


class Found(NamedTuple):
    """The answer to PROBE: addresses of others' names and its own, and for how long the probe did not run."""

    names: Annotated[tuple[NameRow, ...], Most(MOST_HOSTS)]
    own: IpAddresses | None
    late_ms: Annotated[int, within(0, 1 << 31)]


class Counted(NamedTuple):
    """The answer to COUNT; `time_ms` is the probe's own clock, since 1970."""

    time_ms: Count
    met: Annotated[tuple[Measured, ...], Most(MOST_HOSTS)]
    heard: Annotated[tuple[Arrived, ...], Most(MOST_HOSTS)]
    dropped: Annotated[int, within(0, 1 << 62)]
    multicast: Annotated[tuple[HeardRow, ...], Most(MOST_HOSTS)]


class _Facts(NamedTuple):
    """FACTS: the fields of Host, except its name."""

    hostname: Annotated[str, printable_text(253)]
    identity: Annotated[str, printable_text(253)]
    gpus: Annotated[int, within(0, 1 << 16)] | None
    fingerprint: Annotated[str, printable_text(LONGEST)]
    addresses: Annotated[tuple[Address, ...], Most(MOST_ADDRESSES)]
    every: Annotated[tuple[IpAddress, ...], Most(MOST_OF_HOST)]
    guests: Annotated[tuple[_Guest, ...], Most(MOST_ADDRESSES)]
    spaces: Annotated[tuple[Space, ...], Most(MOST_ADDRESSES)]
    faults: Annotated[tuple[Text, ...], Most(MOST_ADDRESSES)]
    amounts: Annotated[tuple[Amount, ...], Most(MOST_ADDRESSES)] = ()


def parse_report_host(name: str, body: Body) -> Host:
    """Return a host with its facts. Raises WireError."""
    facts = parse(_Facts, body)
    for end in facts.addresses:
        if end.prefix > ip_address(end.address).max_prefixlen:
            raise WireError(f"addresses: no prefix of {end.address}")
    guests = tuple((iface, address) for iface, address in facts.guests)  # plain pairs, as JSON has them
    return Host(name=name, **{**facts._asdict(), "guests": guests})


# The report as a table for people: a line for each host, then the findings and the verdict.

_COLUMNS = ("HOST", "STATE", "ADDRESS", "IFACE", "MTU", "RTT", "LOST", "GPUS", "SHM", "TMP")
_GIB = 1024
# The table of more hosts than this has only those with findings.
_MOST_ROWS = 64
# Findings beyond this number are only counted.
_MOST_LINES = 32


def table_lines(report: Report) -> list[str]:
    """Return the table, the findings and the verdict as lines."""
    named = named_hosts(report)
    shown = [host for host in report.hosts if len(report.hosts) <= _MOST_ROWS or host.name in named]
    rows = [table_columns(report), *table_rows(report, shown)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows] if shown else []
    hidden = len(report.hosts) - len(shown)
    rest = [f"and {hidden} hosts without findings"] if hidden else []
    return [*table, *rest, "", *_finding_lines(report), verdict_text(report)]


def named_hosts(report: Report) -> set[str]:
    """Return the hosts that need action."""
    return {host for finding in report.findings if not finding.is_note for host in finding.hosts}


def table_columns(report: Report) -> tuple[str, ...]:
    """Return the heading."""
    return (*_COLUMNS, "SENDS", "RECEIVES") if report.flows else _COLUMNS


def _finding_lines(report: Report) -> list[str]:
    lines = []
    for finding in report.findings[:_MOST_LINES]:
        lines.append(f"{'note' if finding.is_note else 'BAD':5}{printable(finding.line)}")
        if finding.remedy and not finding.is_note:
            lines.append(f"     {finding.remedy}")
    if len(report.findings) > _MOST_LINES:
        lines.append(f"and {len(report.findings) - _MOST_LINES} more (--json)")
    return [*lines, advice] if (advice := advice_text(report)) else lines


def advice_text(report: Report) -> str:
    """Return the option that leaves out the hosts at fault, or why there is none; "" if no host is at fault."""
    if report.exclude or not report.suspects:
        return f"--exclude={fold(report.exclude)}" if report.exclude else ""
    many = f"{len(report.suspects)} of {len(report.hosts)} hosts seem to be at fault, more than a quarter"
    return f"{many}: suspect what they share, and leave none out (--force)"


def table_rows(report: Report, hosts: Sequence[Host]) -> list[tuple[str, ...]]:
    """Return the rows of these hosts."""
    named = named_hosts(report)
    pairs = defaultdict[str, list[Pair]](list)
    for pair in report.pairs:
        pairs[pair.one].append(pair)
        pairs[pair.other].append(pair)
    speeds = host_speeds(report.flows)
    return [_table_cells(it, named, pairs[it.name], speeds[it.name] if report.flows else ()) for it in hosts]


def _table_cells(host: Host, named: set[str], pairs: list[Pair], speeds: Iterable[list[int]]) -> tuple[str, ...]:
    state = "missing" if host.missing is not None else "BAD" if host.name in named else "ok"
    best = host.addresses[0] if host.addresses else None
    rtts = [pair.rtt_us for pair in pairs if pair.rtt_us is not None]
    free = {space.path: space.free_mb for space in host.spaces}
    cells = (
        host.name,
        state,
        *((best.address, best.iface, best.mtu) if best else (None, None, None)),
        f"{sorted(rtts)[len(rtts) // 2] / 1000:.2f} ms" if rtts else None,
        _lost_text(pairs),
        host.gpus,
        *(_space_text(free.get(path)) for path in ("/dev/shm", "/tmp")),  # noqa: S108 - what is checked
    )
    known = (*cells, *(speed_text(max(mbits)) if mbits else None for mbits in speeds))
    return tuple("-" if cell is None else str(cell) for cell in known)


def host_speeds(flows: Iterable[Flow]) -> defaultdict[str, tuple[list[int], list[int]]]:
    """Return the speeds in Mbit/s at which each host sent, and at which it received."""
    speeds = defaultdict[str, tuple[list[int], list[int]]](lambda: ([], []))
    for flow in flows:
        speeds[flow.sender][0].append(flow.mbits or 0)
        speeds[flow.receiver][1].append(flow.mbits or 0)
    return speeds


def _lost_text(pairs: Sequence[Pair]) -> str | None:
    """Return the share of the datagrams that were lost, in both directions together."""
    sent = sum(pair.sent + pair.sent_back for pair in pairs)
    return f"{100 * (sent - sum(pair.there + pair.back for pair in pairs)) / sent:.0f} %" if sent else None


def _space_text(free_mb: int | None) -> str | None:
    if free_mb is None:
        return None
    return f"{free_mb / _GIB:.0f} GiB" if free_mb >= _GIB else f"{free_mb} MiB"


# The report as a page: templates/check, with all that it needs in one file.

# Of more hosts than this, those that are alike are one row of the table, which opens.
_MOST_OPEN = 32
# Two alike are not worth a row of their own.
_FEWEST_FOLDED = 3
# A longer list of hosts or addresses is shown as its ends, in characters.
_LONGEST_FOLDED = 28
# Names are taken for racks' only if a rack has this many hosts or more, on average.
_FEWEST_OF_RACK = 4
_MEASURES = {"state": "all of it", "loss": "loss", "rtt": "round trip", "size": "packets' size", "speed": "bandwidth"}


def report_page(report: Report, job_id: str | None, date: str) -> str:
    """Return the page. Raises MingleError if the installation lacks a part of it."""
    filters: dict[str, Callable[..., str]] = {"digest": _digest, "fold": fold, "printable": printable}
    environment = files.template_environment(files.template_loader("check"), filters).overlay(autoescape=True)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    racks = _racks([host.name for host in report.hosts])
    return environment.get_template("page.html.j2").render(
        report=report,
        verdict=verdict_text(report),
        advice=advice_text(report),
        job_id=job_id,
        date=date,
        version=__version__,
        style=files.shipped_text("templates/check/page.css"),
        script=files.shipped_text("templates/check/page.js"),
        networks=[(number, network.name) for number, network in enumerate(report.networks)],
        measures=[(name, text) for name, text in _MEASURES.items() if name != "speed" or report.flows],
        columns=table_columns(report),
        groups=_row_groups(report, racks),
        data=_page_data(report, racks),
    )


def _digest(text: str) -> str:
    """Return the hash by which a Content-Security-Policy allows one style or script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _racks(names: Sequence[str]) -> dict[str, str]:
    """Return host -> its rack: its name up to the first number that differs, if another one follows; else ""."""
    alike = itertools.takewhile(lambda column: len({*column}) == 1, zip(*names, strict=False))
    start = len("".join(letters[0] for letters in alike).rstrip("0123456789"))
    found = [re.match(r"\D*\d+(?=\D.*\d)", name.partition(".")[0][start:]) for name in names]
    racks = {name: name[:start] + match[0] if match else "" for name, match in zip(names, found, strict=True)}
    return racks if len({*racks.values()}) * _FEWEST_OF_RACK <= len(names) else dict.fromkeys(names, "")


def _row_groups(report: Report, racks: dict[str, str]) -> list[tuple[tuple[str, ...] | None, list[tuple[str, ...]]]]:
    """Return the rows in groups of hosts that are alike, each with a row for all of it, or None: it is not folded."""
    alike: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for row in table_rows(report, report.hosts):
        name, state, _, iface, mtu, _, _, gpus, *_ = row
        alike.setdefault((state, racks[name], iface, mtu, gpus), []).append(row)
    groups = [alike[key] for key in sorted(alike, key=lambda key: ("missing", "BAD", "ok").index(key[0]))]
    fewest = _FEWEST_FOLDED if len(report.hosts) > _MOST_OPEN else len(report.hosts) + 1
    return [(tuple(map(_in_one, zip(*rows, strict=True))) if len(rows) >= fewest else None, rows) for rows in groups]


def _in_one(cells: Sequence[str]) -> str:
    """Return the cells of one column as one: the least and the greatest amount, or all of them as short as possible."""
    known = sorted({*cells} - {"-"}, key=lambda cell: (" G" in cell, len(cell), cell))  # amounts by their sizes
    if not all(re.fullmatch(r"[\d.]+ (ms|%|[MG]iB|[MG]bit/s)", cell) for cell in known):
        return folded if len(folded := fold(tuple(cells))) <= _LONGEST_FOLDED else f"{cells[0]} … {cells[-1]}"
    return " … ".join(known[:: max(len(known) - 1, 1)]) or "-"


def _page_data(report: Report, racks: dict[str, str]) -> dict[str, Any]:
    """Return what page.js draws: hosts, networks and what pairs have in common by number, and each pair once."""
    numbers = {host.name: number for number, host in enumerate(report.hosts)}
    networks = {network.name: number for number, network in enumerate(report.networks)}
    kinds: dict[tuple[object, ...], int] = {}
    pairs: list[dict[int, list[int | None]]] = [{} for _ in networks]
    for pair in report.pairs:
        # Of its fields, the eighth and later ones are what fits and which ports are open.
        kind = kinds.setdefault((pair.sent, pair.there, pair.sent_back, pair.back, *pair[8:]), len(kinds))
        row = pairs[networks[pair.network]].setdefault(numbers[pair.one], [])
        row += [numbers[pair.other], kind, pair.rtt_us]
    ends = [network_ends(report.here, network) for network in report.networks]
    return {
        "hosts": [printable(host.name) for host in report.hosts],
        "racks": [len([*members]) for _, members in groupby(racks.values())],
        "findings": [[numbers[name] for name in finding.hosts if name in numbers] for finding in report.findings],
        "mtus": [[host.name in of and of[host.name].mtu for host in report.hosts] for of in ends],
        "kinds": [*kinds],
        "pairs": [[(one, *rest) for one, rest in rows.items()] for rows in pairs],
        "flows": [(numbers[it.sender], numbers[it.receiver], networks[it.network], it.mbits) for it in report.flows],
        "some": report.others is not None,
    }
