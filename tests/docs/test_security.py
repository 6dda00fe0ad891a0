"""docs/security.md: every test that it names is there, and every promise names one."""

from __future__ import annotations

import ast
import re
from functools import cache

from documents import DOCS, ROOT

PAGE = (DOCS / "security.md").read_text()
# Rows that say what is not promised have no test to name.
OPEN = "Not promised"


def named(text: str) -> list[str]:
    """Return the tests that a text names, as path::function."""
    return re.findall(r"`(tests/[^`\s]*)`", text)


def is_there(name: str) -> bool:
    """Tell whether a test exists: the file, and in it a function of that name."""
    path, _, function = name.partition("::")
    return function.startswith("test_") and function in functions(path)


@cache
def functions(path: str) -> set[str]:
    """Return the names of a file's functions, none where there is no such file."""
    file = ROOT / path
    if not file.is_file():
        return set()
    return {node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)}


def rows() -> list[list[str]]:
    """Return the cells of each row of the page's tables, without their heads."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    cells = [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]
    return [row for row in cells if row[0].strip() not in ("does", "what happens")]


def test_every_test_that_is_named_is_there() -> None:
    """A test that is renamed is renamed on the page too."""
    names = named(PAGE)
    assert len(names) > 100
    assert [name for name in names if not is_there(name)] == []


def test_a_test_that_is_not_there_is_found_out() -> None:
    """By its file or by its function."""
    text = "`tests/docs/test_none.py::test_a`, `tests/docs/test_security.py::test_b`, `tests/docs/test_security.py`"
    assert [is_there(name) for name in named(text)] == [False] * 3
    assert is_there("tests/docs/test_security.py::test_a_test_that_is_not_there_is_found_out")


def test_every_promise_names_its_test() -> None:
    """Or says that it is none."""
    promises = rows()
    assert len(promises) > 50
    for row in promises:
        shown = bool(named(row[-1]))
        assert shown != any(cell.startswith(OPEN) for cell in row), row


def test_no_time_of_day_decides_anything_in_a_rendezvous() -> None:
    """One is compared with the age of a file, after thirty days; a run logs and shows it, and a job's end is one.

    A check compares them. A member and its leader tell each other's, so that a clock that is off is named: with
    --strict alone it decides.
    """
    package = ROOT / "mingle_hooks"
    of_day = re.compile(r"time\.time\b|CLOCK_REALTIME|datetime|strftime|localtime|from time import.*\btime\b")
    users = {path.name for path in package.rglob("*.py") if of_day.search(path.read_text())}
    assert users == {
        "rejoin.py",
        "logs.py",
        "planning.py",
        "picture.py",
        "world.py",
        "runs.py",
        "session.py",
        "membership.py",
        "clocks.py",
    }
