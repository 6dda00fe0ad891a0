"""The tables of docs/benchmarks.md and docs/plots/*.svg, made from results/peers.json and nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.losses import BESIDE, KILLED, PARTS
from benchmarks.peers import HOSTS, IMPORTED, PEERS

ROOT = Path(__file__).parents[1]
RESULT, PAGE, PLOTS = ROOT / "benchmarks/results/peers.json", ROOT / "docs/benchmarks.md", ROOT / "docs/plots"
BEGIN, END = "<!--figures-->\n", "<!--end-->\n"
# Background, text, grid, and lines: ours first. Each has a contrast of 4.5 to the background, and is told from the
# others by its label, dashes and mark too.
LIGHT = "#ffffff #1f2328 #d1d9e0 #0550ae #57606a #a04100 #116329 #8250df #99286e #7d4e00 #0a6c74 #b91c1c"
DARK = "#0d1117 #e6edf3 #30363d #79c0ff #9198a1 #ffa657 #56d364 #d2a8ff #ff9bce #e3b341 #39c5cf #ff7b72"
DASHES = ("", "2 4", "8 4", "", "8 3 2 3", "4 3", "12 4", "", "2 2")
MARKS = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",  # a disc, a square, a triangle, a rhombus
    "M-4-4h8v8h-8z",
    "M0-5l5 9h-10z",
    "M0-5l5 5l-5 5l-5-5z",
)
WIDTH, LEFT, RIGHT, TOP, LOW, LINE = 760, 56, 480, 64, 300, 18  # pixels
OTHERS = len(LIGHT.split()) - 4
OURS = ("mingle", "srun mingle")

Point = tuple[float, float]
Cells = dict[str, dict[str, Any]]


class Seen(NamedTuple):
    """A median in seconds, or why there is none."""

    seconds: float | None
    why: str


def seen(cell: dict[str, Any] | None) -> Seen:
    """Return what a cell says, in short."""
    if not cell:
        return Seen(None, "")
    why = str(cell.get("failed", ""))
    short = {"has none": "none"}.get(why, f">{why.split()[2]}" if why.startswith("not within") else "failed")
    return Seen(cell.get("median_s"), short if why else "")


def said(seconds: float) -> str:
    """Return seconds with two digits."""
    return f"{seconds:.{max(0, 1 - math.floor(math.log10(seconds)))}f}"


def tables(result: dict[str, Any]) -> str:
    """Return all tables and plots as Markdown; cells without blanks, as the page's words are counted."""
    figures = result["figures"]
    start, loss, check_in, machine = (figures[name] for name in ("start", "loss", "check_in", "machine"))
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    size = f"{machine['processors']} × {machine['processor']}, {machine['memory_gib']:.0f} GiB"
    rows = [
        name for peer in PEERS for name in (peer, IMPORTED.get(peer, "")) if any(name in by for by in start.values())
    ]
    lost = list(dict.fromkeys(key.rpartition(": ")[0] for key in loss[KILLED]))
    tools = list(dict.fromkeys(name for by in check_in.values() for name in by))
    parts = [(case, part) for case in BESIDE for part in PARTS]
    blocks = [
        f"{size}, {result['when']}: {versions}.",
        "## Start",
        "![Start](plots/start-hosts.svg)\n![Start](plots/start-one.svg)",
        _table(["hosts; s", *start], rows, lambda name: [start[n].get(name) for n in start]),
        "## Loss",
        "![Loss](plots/loss.svg)",
        _table(
            ["seconds", *(f"{part}, {case}" for case, part in parts)],
            lost,
            lambda name: [loss[case].get(f"{name}: {part}") for case, part in parts],
        ),
        "## Check-in",
        "![Check-in](plots/check-in.svg)",
        _table(
            ["members; s", *(f"{int(n):,}" for n in check_in)],
            tools,
            lambda name: [check_in[n].get(name) for n in check_in],
        ),
    ]
    return "\n\n".join([*blocks, ""])


def _table(columns: list[str], names: list[str], row: Any) -> str:
    shown = [
        [said(one.seconds) if one.seconds is not None else one.why for one in map(seen, row(name))] for name in names
    ]
    return table([columns, ["-"] * len(columns), *([name, *cells] for name, cells in zip(names, shown, strict=True))])


def table(rows: Iterable[Iterable[str]]) -> str:
    """Return rows of cells as a table in Markdown; the second one aligns the columns."""
    return "\n".join(f"|{'|'.join(row)}|" for row in rows)


def between(text: str, figures: str) -> str:
    """Return a page with these figures between its marks."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + figures + END + rest.partition(END)[2]


def plots(result: dict[str, Any]) -> dict[str, str]:
    """Return file name -> SVG."""
    figures = result["figures"]
    start = figures["start"]
    by_hosts = {IMPORTED.get(name) for name in PEERS} | {name for name, peer in PEERS.items() if peer.starts == HOSTS}
    each = {n: {name: cell for name, cell in by.items() if name in by_hosts} for n, by in start.items()}
    one = {n: {name: cell for name, cell in by.items() if name not in by_hosts} for n, by in start.items()}
    begins = "Seconds until COMMAND runs on all hosts"
    answers = "Seconds from the last member's arrival to the last answer"
    return {
        "start-hosts.svg": lines(f"{begins}: every host starts it", "hosts", each),
        "start-one.svg": lines(f"{begins}: one host starts all", "hosts", one),
        "check-in.svg": lines(answers, "members", figures["check_in"]),
        "loss.svg": losses(figures["loss"]),
    }


def lines(title: str, unit: str, table: dict[str, Cells]) -> str:
    """Return a chart of seconds by number, both logarithmic, a line for each tool with its name and last value."""
    series: dict[str, list[Point]] = {}
    for number, cells in table.items():
        for name, cell in cells.items():
            if (seconds := seen(cell).seconds) is not None:
                series.setdefault(name, []).append((float(number), seconds))
    numbers = [float(number) for number in table]
    values = [y for points in series.values() for _, y in points]
    x, y = _scale(min(numbers), max(numbers), LEFT + 14, RIGHT), _scale(*_decades(values), LOW, TOP)
    body = [_text(LEFT - 8, y(tick) + 4, f"{tick:g}", "end") for tick in _ticks(values)]
    body += [f'<path class="grid" d="M{LEFT} {y(tick):.1f}H{RIGHT}"/>' for tick in _ticks(values)]
    body += [_text(x(number), LOW + 20, f"{number:,.0f}", "middle") for number in numbers]
    body += [_text((LEFT + RIGHT) / 2, LOW + 40, unit, "middle")]
    order = sorted(series, key=lambda name: -series[name][-1][1])
    places = _apart([y(series[name][-1][1]) + 4 for name in order])
    colours, told = _colours(list(series)), []
    for name, place in zip(order, places, strict=True):
        points = [(x(at), y(value)) for at, value in series[name]]
        colour, (end_x, end_y) = colours[name], points[-1]
        path = "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in points)
        body.append(f'<path class="thin c{colour}" d="M{end_x:.1f} {end_y:.1f}L{RIGHT + 24} {place - 4:.1f}"/>')
        body.append(f'<path class="line c{colour}" stroke-dasharray="{DASHES[colour]}" d="{path}"/>')
        body += [_mark(px, py, colour) for px, py in points]
        last = series[name][-1]
        fewer = "" if last[0] == numbers[-1] else f" at {last[0]:,.0f}"
        told.append(f"{name}, {said(last[1])} s{fewer}")
        body.append(_text(RIGHT + 28, place, told[-1], "start", f"f{colour}"))
    return _svg(title, int(max(LOW + 56, max(places) + 16)), told, body)


def losses(table: dict[str, Cells]) -> str:
    """Return a row for each tool, with a disc for the end elsewhere and a rhombus for the restart on all hosts."""
    x = _scale(0.01, 100.0, 190, RIGHT)
    body, told, at = list[str](), list[str](), TOP
    for case, cells in table.items():
        names = list(dict.fromkeys(key.rpartition(": ")[0] for key in cells))
        body.append(_text(16, at, f"{case}, on one of four hosts", "start", "bold"))
        for name in names:
            at += LINE + 2
            colour = 0 if name.startswith(OURS) else 1
            end, again = (seen(cells.get(f"{name}: {part}")) for part in PARTS)
            shapes = ((end, MARKS[0]), (again, MARKS[3]))
            body.append(f'<path class="grid" d="M190 {at - 4}H{RIGHT}"/>')
            body += [_mark(x(one.seconds), at - 4, colour, shape) for one, shape in shapes if one.seconds]
            words = f"end {_short(end)}, restart {_short(again)}"
            told.append(f"{name}, {case}: {words}")
            body.append(_text(182, at, name, "end", f"f{colour}"))
            body.append(_text(RIGHT + 12, at, words, "start", f"f{colour}"))
        at += 2 * LINE
    body += [_text(x(tick), at, f"{tick:g} s", "middle") for tick in (0.01, 0.1, 1.0, 10.0, 100.0)]
    title = "Seconds to the end on the other hosts (disc) and the restart on all (rhombus)"
    return _svg(title, at + 16, told, body)


def _short(one: Seen) -> str:
    return f"{said(one.seconds)} s" if one.seconds else one.why + " s" * one.why.startswith(">")


def _colours(names: list[str]) -> dict[str, int]:
    others = [name for name in names if not name.startswith(OURS)]
    return {name: 0 if name not in others else 1 + others.index(name) % OTHERS for name in names}


def _scale(low: float, high: float, at_low: float, at_high: float) -> Any:
    factor = (at_high - at_low) / (math.log(high / low) or 1.0)
    return lambda value: at_low + math.log(value / low) * factor


def _decades(values: list[float]) -> tuple[float, float]:
    return 10.0 ** math.floor(math.log10(min(values))), 10.0 ** math.ceil(math.log10(max(values)))


def _ticks(values: list[float]) -> list[float]:
    low, high = (round(math.log10(value)) for value in _decades(values))
    return [10.0**power for power in range(low, high + 1)]


def _apart(places: list[float]) -> list[float]:
    """Return places in ascending order, moved up and down until they are a line apart."""
    while any(later - earlier < LINE - 0.5 for earlier, later in pairwise(places)):
        for number, (earlier, later) in enumerate(pairwise(places)):
            if (lacks := LINE - (later - earlier)) > 0:
                places[number] -= lacks / 2
                places[number + 1] += lacks / 2
    return places


def _mark(x: float, y: float, colour: int, shape: str = "") -> str:
    return f'<path class="f{colour}" transform="translate({x:.1f} {y:.1f})" d="{shape or MARKS[colour % 4]}"/>'


def _text(x: float, y: float, words: str, anchor: str, style: str = "text") -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _style(palette: str) -> str:
    back, text, grid, *colours = palette.split()
    rules = [f".back{{fill:{back}}}.text,.bold{{fill:{text}}}.grid{{stroke:{grid}}}"]
    rules += [f".c{number}{{stroke:{colour}}}.f{number}{{fill:{colour}}}" for number, colour in enumerate(colours)]
    return "".join(rules)


def _svg(title: str, height: int, told: list[str], body: list[str]) -> str:
    style = (
        "text{font:13px system-ui,sans-serif}.bold,.f0{font-weight:600}.line{fill:none;stroke-width:2}.thin{fill:none}"
    )
    style += f".line.c0{{stroke-width:3.5}}{_style(LIGHT)}@media(prefers-color-scheme:dark){{{_style(DARK)}}}"
    drawn, text = "\n".join(body), escape("; ".join(told))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="t d">\n'
        f'<title id="t">{escape(title)}</title>\n<desc id="d">{text}</desc>\n<style>{style}</style>\n'
        f'<rect class="back" width="{WIDTH}" height="{height}"/>\n'
        f"{_text(16, 28, title, 'start', 'bold')}\n{drawn}\n</svg>\n"
    )


def write() -> None:
    """Write the page and the plots."""
    result = json.loads(RESULT.read_text())
    PAGE.write_text(between(PAGE.read_text(), tables(result)))
    PLOTS.mkdir(exist_ok=True)
    for name, svg in plots(result).items():
        (PLOTS / name).write_text(svg)


if __name__ == "__main__":
    write()
