"""The report as one page that needs nothing else: no network, and what hosts say of themselves stays text."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from typing import TYPE_CHECKING

from mingle_hooks import jsontext, shipped
from mingle_hooks.check import table, verdict
from mingle_hooks.errors import printable
from mingle_hooks.schedulers.hostlist import fold

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mingle_hooks.check.report import Report

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


def html(report: Report) -> str:
    """Return the page. Raises OSError where the installation lacks a part of it."""
    style, script = (_part(name) for name in ("page.css", "page.js"))
    leave = f"<p>Leave out: <code>--exclude={escape(fold(report.exclude))}</code></p>" if report.exclude else ""
    count = len(report.hosts)
    return _PAGE.format(
        style_hash=_digest(style),
        script_hash=_digest(script),
        style=style,
        script=script,
        verdict=escape(verdict.words(report)),
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
    return shipped.text(f"check/{name}")


def _digest(text: str) -> str:
    """Return by what a browser knows the one style or script that it may use."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _found(report: Report) -> Iterable[str]:
    for its in report.findings:
        kind = ' class="note"' if its.is_note else ""
        yield f"<li{kind}>{escape(printable(its.text))}</li>"
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
    columns, named = table.columns(report), table.named(report)
    yield "<tr>" + "".join(f"<th>{name}</th>" for name in columns) + "</tr>"
    for its in sorted(report.hosts, key=lambda host: (host.missing is None, host.name not in named)):
        cells = table.cells(report, its, is_named=its.name in named)
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
    named = [numbers[name] for name in table.named(report)]
    hosts = [printable(its.name) for its in report.hosts]
    return _inert(
        {"hosts": hosts, "named": named, "networks": [*networks], "ways": ways, "some": report.others is not None}
    )


def _inert(value: object) -> str:
    """Return JSON in which nothing ends a script or begins a comment."""
    text = jsontext.dumps(value)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
