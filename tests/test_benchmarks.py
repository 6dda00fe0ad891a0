"""The benchmarks load, and the one that is made of our own parts runs: what is renamed elsewhere is renamed there."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
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
    parts = {"__init__", "__main__", "crowd", "mutants", "peers"}
    assert {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - parts == set(python(LOADS).split())


@pytest.mark.parametrize("how", ["last, with the roster", "at once"])
def test_simulated_members_form_a_world(how: str) -> None:
    """Eight of them."""
    assert python(FORMS, how) == "formed\n"


SAVED = """
import json
from benchmarks import rooms
saved = json.loads((rooms.RESULTS / "rooms.json").read_text())["figures"]
rows = json.loads((rooms.RESULTS / "scale.json").read_text())["figures"]
lines = rooms.costs(rows)
assert {name: line._asdict() for name, line in lines.items()} == saved["lines"], "rooms.json is older than scale.json"
assert rooms.packed_roster(1000) < 10_000
print(rooms.tables(saved))
"""


def test_the_tables_of_scale_are_the_saved_figures() -> None:
    """`python -m benchmarks rooms`, then `python -m benchmarks.rooms page`, writes them."""
    page = (ROOT / "docs" / "scale.md").read_text()
    between = page.partition("<!-- python -m benchmarks rooms -->")[2].partition("<!-- end -->")[0]
    assert between.strip() == python(SAVED).strip()


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
