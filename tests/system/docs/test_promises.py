"""Every promise of README.md, docs/how-it-works.md and docs/security.md stands in promises.toml with its tests."""

from __future__ import annotations

import ast
import re
from functools import cache

from documents import ROOT
from promises import PROSE, listed, made, sentences


def is_there(name: str) -> bool:
    """Tell whether a test exists: the file, and in it a function of that name."""
    path, _, function = name.partition("::")
    return function.startswith("test_") and function in functions(path)


@cache
def functions(path: str) -> set[str]:
    """Return the names of a file's functions, none if there is no such file."""
    file = ROOT / path
    if not file.is_file():
        return set()
    return {node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_promise_is_listed_and_every_row_is_on_its_page() -> None:
    """Put a new promise into promises.toml with the test that shows it, or with the reason why it needs none."""
    rows = {(row.page, row.text) for row in listed()}
    pages = {(one.page, one.text) for one in made()}
    assert pages - rows == set()
    prose = {(page, text) for page in PROSE for text in sentences((ROOT / page).read_text())}
    assert rows - pages - prose == set()


def test_every_promise_has_a_test_that_exists() -> None:
    """A test that is renamed is renamed in the table too. A sentence that promises nothing says why."""
    rows = listed()
    assert len(rows) > 100
    assert [row for row in rows if bool(row.tests) == bool(row.why)] == []
    assert [(row.text, name) for row in rows for name in row.tests if not is_there(name)] == []


def test_no_time_of_day_decides_anything_in_a_rendezvous() -> None:
    """One is compared with the age of a file, after thirty days; a run logs and shows it, and a job's end is one.

    A check compares them. A member and its leader tell each other's, so that a clock that is off is named: with
    --strict alone it decides.
    """
    package = ROOT / "mingle_hooks"
    of_day = re.compile(r"time\.time\b|CLOCK_REALTIME|datetime|strftime|localtime|from time import.*\btime\b")
    users = {path.name for path in package.rglob("*.py") if of_day.search(path.read_text())}
    assert users == {
        "leader.py",
        "member.py",
        "output.py",
        "probes.py",
        "session.py",
        "status.py",
        "jobs.py",
        "runner.py",
        "joining.py",
    }
