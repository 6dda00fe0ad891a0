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
