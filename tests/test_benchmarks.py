"""The benchmarks load, and the one that is made of our own parts runs: what is renamed elsewhere is renamed there."""

import json
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest

# At the end: the package is the installed one.
sys.path.append(str(Path(__file__).parents[1]))

from benchmarks import plots

ROOT = Path(__file__).parents[1]
SVG = "{http://www.w3.org/2000/svg}"
RESULT = json.loads(plots.RESULT.read_text())
# The widest fonts that browsers take for system-ui, in pixels a letter at 13: a bold one is wider.
LETTER, BOLD, LINE = 7.6, 8.4, 13.0
LOADS = """
from importlib import import_module
from benchmarks.__main__ import NAMES
for name in NAMES:
    assert callable(import_module(f"benchmarks.{name}").figures)
print(*NAMES)
"""
FORMS = """
import sys
from benchmarks import scale
if __name__ == "__main__":
    run = scale.once(8, 1, sys.argv[1])
    assert 0 < run.seconds < scale.TIMEOUT_S and run.cpu_s > 0, run
    print("formed")
"""


def python(program: str, *words: str) -> str:
    """Run a program in the repository, as `make bench` does, and return what it printed."""
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_benchmark_is_on_the_list_and_loads() -> None:
    """`make bench` runs those of the list; `make mutants` measures the tests."""
    parts = {"__init__", "__main__", "checkin", "crowd", "losses", "mutants", "plots"}
    assert {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - parts == set(python(LOADS).split())


def test_simulated_members_form_a_world() -> None:
    """Eight of them."""
    assert python(FORMS, "last, with the roster") == "formed\n"


SAVED = """
import json, math
from benchmarks import rooms
saved = json.loads((rooms.RESULTS / "rooms.json").read_text())["figures"]
rows = json.loads((rooms.RESULTS / "scale.json").read_text())["figures"]
lines = rooms.costs(rows)
assert lines.keys() == saved["lines"].keys()
for name, line in lines.items():  # sum() rounds less from Python 3.12 on
    for field, value in line._asdict().items():
        assert math.isclose(value, saved["lines"][name][field], abs_tol=1e-9), "rooms.json is older than scale.json"
assert rooms.packed_roster(1000) < 10_000
print(rooms.tables(saved), end="")
"""


def test_the_tables_of_scale_are_the_saved_figures() -> None:
    """`python -m benchmarks rooms` writes them."""
    text = (ROOT / "docs" / "scale.md").read_text()
    assert text == plots.between(text, python(SAVED))


FITS = """
from benchmarks.rooms import line
straight = line([(1, 5), (2, 7), (4, 11)])
assert abs(straight.at(100) - 203) < 1e-6 and straight.error < 1e-9 > abs(straight.held_out), straight
bent = line([(1, 1), (2, 2), (4, 16)])
assert bent.error > 0.2 and bent.held_out == 4 / 16 - 1, bent
"""


def test_the_line_through_figures_says_how_far_it_is_from_them() -> None:
    """One that is straight is found, and one that is not is known by its error."""
    python(FITS)


def test_the_page_and_the_plots_are_those_of_the_figures() -> None:
    """`make bench` makes them: `python -m benchmarks plots` does so without measuring anew."""
    text = plots.PAGE.read_text()
    assert text == plots.between(text, plots.tables(RESULT))
    assert {path.name: path.read_text() for path in plots.PLOTS.iterdir()} == plots.plots(RESULT)
    assert [name for name in plots.plots(RESULT) if f"(plots/{name})" not in text] == []


def test_a_table_shows_why_a_cell_has_no_figure() -> None:
    """It lacks the tool, or the tool has no restart, was too late, or failed; a figure has two digits."""
    cells = {
        "a": {"median_s": 12.34},
        "b": {"failed": "has none"},
        "c": {"failed": "not within 20 s"},
        "d": {"failed": "x"},
    }
    shown = [plots.seen(cells.get(name)) for name in "abcde"]
    assert [one.why for one in shown] == ["", "none", ">20", "failed", ""]
    assert [plots.said(seconds) for seconds in (12.34, 1.234, 0.01234, 123.4)] == ["12", "1.2", "0.012", "123"]


class Box(NamedTuple):
    """Where a text of a plot stands, about."""

    words: str
    left: float
    right: float
    base: float


def boxes(svg: str) -> list[Box]:
    """Return the texts of a plot."""
    found = []
    for text in ET.fromstring(svg).iter(f"{SVG}text"):  # noqa: S314 - our own
        words, x, style = text.text or "", float(text.attrib["x"]), text.attrib["class"]
        width = len(words) * (BOLD if style in ("bold", "f0") else LETTER)
        left = x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[text.attrib["text-anchor"]]
        found.append(Box(words, left, left + width, float(text.attrib["y"])))
    return found


@pytest.mark.parametrize("name", plots.plots(RESULT))
def test_a_plot_can_be_read(name: str) -> None:
    """It has a title and a description, and no text lies on another one or outside."""
    svg = plots.plots(RESULT)[name]
    root = ET.fromstring(svg)  # noqa: S314 - our own
    assert [len(root.findtext(f"{SVG}{part}", "")) > 20 for part in ("title", "desc")] == [True, True]
    *_, width, height = map(float, root.attrib["viewBox"].split())
    texts = boxes(svg)
    assert len(texts) > 8
    assert [one for one in texts if one.left < 0 or one.right > width or not LINE <= one.base <= height] == []
    over = [
        (one.words, other.words)
        for one, other in combinations(texts, 2)
        if abs(one.base - other.base) < LINE and one.left < other.right and other.left < one.right
    ]
    assert over == []
