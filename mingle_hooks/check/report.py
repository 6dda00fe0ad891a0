"""What `mingle check` found: hosts, the ways between them, and findings, as a table, a page and JSON."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from statistics import median
from typing import Annotated, Any, Literal, NamedTuple

from mingle_hooks import files, values
from mingle_hooks.errors import printable
from mingle_hooks.rendezvous.wire import address, printable_text, within
from mingle_hooks.schedulers.hostlist import fold

Kind = Literal["missing", "network", "node"]

# Exit statuses: as of MissingError, NetworkError and ConflictError, the first that applies.
STATUSES: dict[Kind, int] = {"missing": 69, "network": 71, "node": 76}
# Where more than this share of the hosts seem to be at fault, it is the network or the check: nobody is left out.
MOST_EXCLUDED = 0.25


Count = Annotated[int, within(0, (1 << 63) - 1)]
IpAddress = Annotated[str, address]
Mtu = Annotated[int, within(0, 1 << 20)]
PortNumber = Annotated[int, within(0, 65535)]
Text = Annotated[str, printable_text(300)]


class Address(NamedTuple):
    """An address by which others may reach a host, best first; a probe answers at `port` there."""

    iface: Text
    kind: Text
    address: IpAddress
    prefix: Annotated[int, within(0, 128)]
    mtu: Mtu | None
    speed_mbps: Count | None
    port: PortNumber  # 0: none is open


class Space(NamedTuple):
    """A directory's free space in MiB; None where the file system does not answer."""

    path: Text
    free_mb: Count | None
    total_mb: Count | None


class Name(NamedTuple):
    """What a name is on a host: its addresses, None where the name service did not answer in time."""

    name: str
    addresses: tuple[str, ...] | None


class Heard(NamedTuple):
    """Multicast on one interface: from which hosts something came, and what went wrong."""

    iface: str
    hosts: tuple[str, ...]
    fault: str = ""


class Host(NamedTuple):
    """One host by the name that the scheduler or --hosts has for it; `missing` is why there is no more of it."""

    name: str
    missing: str | None = None
    is_late: bool = False  # it is missing as nothing came in time, and not for an error
    hostname: str = ""
    identity: str = ""  # the same for two names of one machine
    gpus: int | None = None
    fingerprint: str = ""  # what should be alike on all hosts, as of lint.text
    addresses: tuple[Address, ...] = ()
    every: tuple[str, ...] = ()  # all of its addresses, those that are not asked for among them
    guests: tuple[tuple[str, str], ...] = ()  # interface and address of what only reaches this host's own guests
    spaces: tuple[Space, ...] = ()
    faults: tuple[str, ...] = ()  # of its GPUs, and of what else it noticed itself
    own_name: tuple[str, ...] | None = ()  # what its own name is there, as of Name
    names: tuple[Name, ...] = ()  # what others' names are there
    multicast: tuple[Heard, ...] = ()
    clock: tuple[float, float] | None = None  # how far ahead of the caller's, in seconds: at least, at most
    late_s: float = 0.0  # for how long its probe stood still, where that was too long to know all
    dropped: int = 0  # datagrams that came and that its kernel did not keep, where that is all that was lost
    had_no_room: bool = False  # its kernel took nothing at times, for want of room for one neighbour more
    refused: int = 0  # others' addresses to which it took nothing until the end

    @property
    def is_doubtful(self) -> bool:
        """Whether it may be the check's own fault that this host's words did not get through."""
        return self.late_s > 0.0 or self.had_no_room


class Network(NamedTuple):
    """One network with its hosts, and the address of each."""

    name: str
    hosts: tuple[str, ...]
    addresses: tuple[str, ...]


class Pair(NamedTuple):
    """What went between two hosts on one network.

    `sent` datagrams went to the other, where `there` arrived, and `sent_back` to `one`, where `back` arrived. `mtu`
    is the largest packet that got there, None where it is not known. `open_there` and `open_back` tell of TCP to the
    other's port: None where it was not tried, "" where it was open, else why it was not.
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


class Flow(NamedTuple):
    """How fast one TCP connection was from a host to another, in Mbit/s; None where nothing arrived."""

    sender: str
    receiver: str
    network: str
    mbits: int | None


class Finding(NamedTuple):
    """One line for a person: whom it is about, whom to leave out, and what to do. A note is nothing to mend."""

    kind: Kind
    hosts: tuple[str, ...]
    text: str
    exclude: tuple[str, ...] = ()
    is_note: bool = False
    remedy: str = ""  # what to do about it, in one line that begins with who can do it: "user: " or "admin: "


class Report(NamedTuple):
    """All of one check. `others` is how many others each host probed, where these were not all.

    `unknown` are pairs of which something did not arrive, and that says nothing: an end was too busy, or its kernel
    had no room. `is_forced`: as many hosts may be left out as are blamed.
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
    def blamed(self) -> tuple[str, ...]:
        """The hosts that findings blame, in their order."""
        blamed = {host for finding in self.findings for host in finding.exclude}
        return tuple(host.name for host in self.hosts if host.name in blamed)

    @property
    def most_excluded(self) -> int:
        """How many hosts may be at fault by themselves: a quarter, and of fewer than eight hosts one."""
        return max(1, int(len(self.hosts) * MOST_EXCLUDED))

    @property
    def exclude(self) -> tuple[str, ...]:
        """The hosts to leave out: those that are blamed, nobody where these are too many."""
        return self.blamed if self.is_forced or len(self.blamed) <= self.most_excluded else ()

    @property
    def status(self) -> int:
        """The exit status: 0 where nothing is to mend, that of a node only where one is to be left out."""
        kinds = {finding.kind for finding in self.findings if not finding.is_note}
        if not self.exclude:
            kinds = {"network" if kind == "node" else kind for kind in kinds}
        return next((status for kind, status in STATUSES.items() if kind in kinds), 0)

    def to_json(self) -> dict[str, Any]:
        """Return what --json prints."""
        found: dict[str, Any] = _plain(self)
        return {**found, "exclude": [*self.exclude], "status": self.status}


def _plain(value: Any) -> Any:
    """Return records as objects, all the way down."""
    if hasattr(value, "_asdict"):
        return {name: _plain(its) for name, its in value._asdict().items()}
    return [_plain(its) for its in value] if isinstance(value, tuple) else value


def with_finding(report: Report, more: tuple[Finding, ...]) -> Report:
    """Return the report with more findings."""
    order = [*STATUSES]
    found = sorted((*report.findings, *more), key=lambda its: (its.is_note, order.index(its.kind)))
    return report._replace(findings=tuple(found))


def speed_text(mbits: float) -> str:
    """Return a speed as people write it."""
    return f"{mbits / 1000:.1f} Gbit/s" if mbits >= 1000 else f"{mbits:.0f} Mbit/s"  # noqa: PLR2004 - a unit's size


def verdict_text(report: Report) -> str:
    """Return the last line."""
    count, here = len(report.hosts), len(report.here)
    pairs = len({(pair.one, pair.other) for pair in report.pairs})
    among = f"{count} host{'s' * (count != 1)}" if here == count else f"{here} of {count} hosts"
    ways = f", {pairs} pair{'s' * (pairs != 1)} on {len(report.networks)} network{'s' * (len(report.networks) != 1)}"
    some = f" (each with {report.others} others)" if report.others is not None else ""
    what = f"{among}{ways if pairs else ''}{some} in {report.took_s:.1f} s"
    bad = sum(not finding.is_note for finding in report.findings)
    but = ", except for what is not known" if report.unknown else ""
    return f"{what}: " + (f"all is well{but}" if not bad else f"{bad} finding{'s' * (bad != 1)}")


# The report as a table for people: a line for each host, then the findings and the verdict.

_COLUMNS = ("HOST", "STATE", "ADDRESS", "IFACE", "MTU", "RTT", "LOST", "GPUS", "SHM", "TMP")
_GIB = 1024
# Beyond so many lines only hosts that something was found about are in the table.
_MOST_ROWS = 64
# Findings beyond so many are counted.
_MOST_LINES = 32


def table_lines(report: Report) -> list[str]:
    """Return the whole of it."""
    about = named_hosts(report)
    shown = [host for host in report.hosts if len(report.hosts) <= _MOST_ROWS or host.name in about]
    rows = [table_cells(report, host, is_named=host.name in about) for host in shown]
    table = _aligned([table_columns(report), *rows]) if rows else []
    hidden = len(report.hosts) - len(shown)
    rest = [f"and {hidden} hosts without findings"] if hidden else []
    return [*table, *rest, *_told(report)]


def named_hosts(report: Report) -> set[str]:
    """Return the hosts about which something is to mend."""
    return {host for finding in report.findings if not finding.is_note for host in finding.hosts}


def table_columns(report: Report) -> tuple[str, ...]:
    """Return the heading."""
    return (*_COLUMNS, "SENDS", "RECEIVES") if report.flows else _COLUMNS


def _told(report: Report) -> list[str]:
    found = []
    for finding in report.findings[:_MOST_LINES]:
        found.append(f"{'note' if finding.is_note else 'BAD':5}{printable(finding.text)}")
        if finding.remedy and not finding.is_note:
            found.append(f"     {finding.remedy}")
    if len(report.findings) > _MOST_LINES:
        found.append(f"and {len(report.findings) - _MOST_LINES} more (--json)")
    leave = [f"--exclude={fold(report.exclude)}"] if report.exclude else []
    if report.blamed and not report.exclude:
        many = f"{len(report.blamed)} of {len(report.hosts)} hosts seem to be at fault, more than a quarter"
        leave = [f"{many}: suspect what they share, and leave none out (--force)"]
    return ["", *found, *leave, verdict_text(report)]


def table_cells(report: Report, host: Host, *, is_named: bool) -> tuple[str, ...]:
    """Return one host's line."""
    state = "missing" if host.missing is not None else "BAD" if is_named else "ok"
    best = host.addresses[0] if host.addresses else None
    rtts = [pair.rtt_us for pair in report.pairs if host.name in (pair.one, pair.other) and pair.rtt_us is not None]
    spaces = {its.path: its.free_mb for its in host.spaces}
    found = (
        host.name,
        state,
        best.address if best else "-",
        best.iface if best else "-",
        _or_dash(best.mtu if best else None),
        f"{median(rtts) / 1000:.2f} ms" if rtts else "-",
        lost_text(report, host.name),
        _or_dash(host.gpus),
        *(_space(spaces.get(path)) for path in ("/dev/shm", "/tmp")),  # noqa: S108 - what is looked at
    )
    if not report.flows:
        return found
    sent = [flow.mbits or 0 for flow in report.flows if flow.sender == host.name]
    came = [flow.mbits or 0 for flow in report.flows if flow.receiver == host.name]
    return (*found, *(speed_text(max(its)) if its else "-" for its in (sent, came)))


def lost_text(report: Report, host: str) -> str:
    """Return which part of a host's datagrams was lost, both ways."""
    mine = [pair for pair in report.pairs if host in (pair.one, pair.other)]
    sent = sum(pair.sent + pair.sent_back for pair in mine)
    return f"{100 * (sent - sum(pair.there + pair.back for pair in mine)) / sent:.0f} %" if sent else "-"


def _space(free_mb: int | None) -> str:
    if free_mb is None:
        return "-"
    return f"{free_mb / _GIB:.0f} GiB" if free_mb >= _GIB else f"{free_mb} MiB"


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


# More hosts than this are folded away: what was found about them stands above.
_MOST_OPEN = 32
_MEASURES = {
    "state": "all of it",
    "loss": "loss",
    "rtt": "round trip",
    "size": "packets' size",
    "speed": "bandwidth",
}
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src '{style_hash}'; script-src '{script_hash}';
 base-uri 'none'; form-action 'none'">
<title>mingle check: {verdict}</title>
<style>{style}</style>
</head>
<body>
<h1>mingle check</h1>
<p class="verdict{is_bad}">{verdict}</p>
{leave}
<h2>Findings</h2>
<ul class="found">
{found}
</ul>
{matrix}
<h2>Hosts</h2>
<details{is_open}><summary>{count}</summary>
<div class="scroll"><table>
{rows}
</table></div>
</details>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""
_TILES = """\
<p class="soft">Each host was probed with some others only; its colour is that of most of its paths.</p>
<div id="tiles"></div>"""
_MATRIX = """\
<h2>Between hosts</h2>
<form>
<fieldset><legend>Network</legend>{networks}</fieldset>
<fieldset><legend>Shown</legend>{measures}</fieldset>
</form>
<p class="key"><span><i class="good"></i>good</span><span><i class="some"></i>degraded</span>
<span><i class="bad"></i>bad</span><span><i class="none"></i>not known</span></p>
{tiles}
<div class="matrix">
<div class="scroll"><canvas id="matrix" tabindex="0" role="img"
 aria-label="Each row is a host that sends, each column one that receives; the list above has the findings">
</canvas></div>
<div class="side">
<p class="soft">Rows send, columns receive. Point at a square, or use the arrow keys.</p>
<dl id="way"></dl>
</div>
</div>"""


def report_page(report: Report) -> str:
    """Return the page. Raises OSError where the installation lacks a part of it."""
    style, script = (_part(name) for name in ("page.css", "page.js"))
    leave = f"<p>Leave out: <code>--exclude={escape(fold(report.exclude))}</code></p>" if report.exclude else ""
    count = len(report.hosts)
    return _PAGE.format(
        style_hash=_digest(style),
        script_hash=_digest(script),
        style=style,
        script=script,
        verdict=escape(verdict_text(report)),
        is_bad=" bad" if report.status else "",
        leave=leave,
        found="\n".join(_found(report)),
        matrix=_matrix(report) if report.networks else "",
        is_open=" open" if count <= _MOST_OPEN else "",
        count=f"{count} host{'s' * (count != 1)}",
        rows="\n".join(_rows(report)),
        data=_data(report),
    )


def _part(name: str) -> str:
    return files.shipped_text(f"check/{name}")


def _digest(text: str) -> str:
    """Return by what a browser knows the one style or script that it may use."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _found(report: Report) -> Iterable[str]:
    for its in report.findings:
        kind = ' class="note"' if its.is_note else ""
        yield f"<li{kind}>{escape(printable(its.text))}<br>{escape(its.remedy)}</li>"
    if not report.findings:
        yield '<li class="note">nothing</li>'


def _matrix(report: Report) -> str:
    measures = {name: words for name, words in _MEASURES.items() if name != "speed" or report.flows}
    networks = {str(number): its.name for number, its in enumerate(report.networks)}
    return _MATRIX.format(
        networks=_choices("network", networks),
        measures=_choices("measure", measures),
        tiles=_TILES if report.others else "",
    )


def _choices(name: str, values: dict[str, str]) -> str:
    found = []
    for number, (value, words) in enumerate(values.items()):
        checked = "" if number else " checked"
        found.append(f'<label><input type="radio" name="{name}" value="{value}"{checked}> {escape(words)}</label>')
    return "".join(found)


def _rows(report: Report) -> Iterable[str]:
    """Yield the table of hosts: those that something was found about come first."""
    columns, named = table_columns(report), named_hosts(report)
    yield "<tr>" + "".join(f"<th>{name}</th>" for name in columns) + "</tr>"
    for its in sorted(report.hosts, key=lambda host: (host.missing is None, host.name not in named)):
        cells = table_cells(report, its, is_named=its.name in named)
        state = "missing" if its.missing is not None else "bad" if its.name in named else "ok"
        yield f'<tr class="{state}">' + "".join(f"<td>{escape(printable(cell))}</td>" for cell in cells) + "</tr>"


def _data(report: Report) -> str:
    """Return what the script draws: hosts by number, and each way once, as page.js has it."""
    numbers = {its.name: number for number, its in enumerate(report.hosts)}
    networks = {its.name: number for number, its in enumerate(report.networks)}
    mtus = {its.address: its.mtu for host in report.hosts for its in host.addresses}
    smallest = {
        (its.name, host): mtus.get(address)
        for its in report.networks
        for host, address in zip(its.hosts, its.addresses, strict=True)
    }
    speeds = {(flow.sender, flow.receiver, flow.network): flow.mbits or 0 for flow in report.flows}
    ways = []
    for pair in report.pairs:
        ends = [smallest.get((pair.network, host)) for host in (pair.one, pair.other)]
        want = min((mtu for mtu in ends if mtu is not None), default=None)
        for one, other, sent, came, is_open in (
            (pair.one, pair.other, pair.sent, pair.there, pair.open_there),
            (pair.other, pair.one, pair.sent_back, pair.back, pair.open_back),
        ):
            speed = speeds.get((one, other, pair.network))
            row = (numbers[one], numbers[other], networks[pair.network], sent, came, pair.rtt_us, pair.mtu, want)
            ways.append([*row, is_open, speed])
    named = [numbers[name] for name in named_hosts(report)]
    hosts = [printable(its.name) for its in report.hosts]
    return _inert(
        {"hosts": hosts, "named": named, "networks": [*networks], "ways": ways, "some": report.others is not None}
    )


def _inert(value: object) -> str:
    """Return JSON in which nothing ends a script or begins a comment."""
    text = values.to_json(value)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
