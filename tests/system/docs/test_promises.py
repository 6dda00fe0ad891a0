"""Every promise of README.md, docs/how-it-works.md and docs/security.md stands in promises.toml with its tests."""

import ast
import re
from functools import cache
from typing import Any

from documents import ROOT

from mingle_hooks.files import toml

TABLE = ROOT / "tests" / "system" / "docs" / "promises.toml"
# A sentence with one of these words promises something.
MARKERS = re.compile(
    r"\b(?:no|never|always|every|each|all|only|nobody|nothing|n?either|cannot|the same|refuse[sd]?"
    r"|at (?:most|least|once))\b",
    re.IGNORECASE,
)
PROSE = ("README.md", "docs/how-it-works.md")
ROWS = "docs/security.md"
# Rows of docs/security.md that promise nothing say so.
OPEN = "Not promised"
# The modules that read the time of day.
OF_DAY = "files.py leader.py member.py probes.py session.py status.py jobs.py runner.py start.py joining.py"


# The rows of promises.toml: a promise as its page makes it, with the tests that show it, or why it needs none.
LISTED: list[dict[str, Any]] = toml(TABLE.read_bytes())["promise"]


def made() -> set[tuple[str, str]]:
    """Return every promise of the three pages."""
    prose = {(page, text) for page in PROSE for text in sentences((ROOT / page).read_text()) if MARKERS.search(text)}
    return prose | {(ROWS, text) for text in rows()}


def sentences(page: str) -> list[str]:
    """Return the sentences of a page's prose, without blocks, tables, headings and marks."""
    page = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    page = re.sub(r"^(?:[|#]).*$", "", page, flags=re.MULTILINE)
    page = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", page).replace("**", "").replace("`", "")
    texts = [" ".join(paragraph.split()) for paragraph in page.split("\n\n")]
    return [sentence for text in texts for sentence in re.split(r"(?<=[.?!:])\s+(?=[A-Z-])", text) if sentence]


def rows() -> list[str]:
    """Return the first cell of each row of docs/security.md that promises something."""
    lines = [line for line in (ROOT / ROWS).read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]
    heads = ("attack", "event", "---")
    return [row[0] for row in cells if row[0].strip() not in heads and not row[1].startswith(OPEN)]


@cache
def functions(path: str) -> set[str]:
    """Return the names of a file's functions, none if there is no such file."""
    body = ast.parse((ROOT / path).read_text()).body if (ROOT / path).is_file() else []
    return {node.name for node in body if isinstance(node, ast.FunctionDef)}


def test_every_promise_is_listed_and_every_row_is_on_its_page() -> None:
    """Put a new promise into promises.toml with the test that shows it, or with the reason why it needs none."""
    listed = {(row["page"], row["text"]) for row in LISTED}
    assert made() - listed == set()
    prose = {(page, text) for page in PROSE for text in sentences((ROOT / page).read_text())}
    assert listed - made() - prose == set()


def test_every_promise_has_a_test_that_exists() -> None:
    """A test that is renamed is renamed in the table too. A sentence that promises nothing says why."""
    assert len(LISTED) > 100
    assert [row for row in LISTED if ("tests" in row) == ("why" in row)] == []
    named = {name for row in LISTED for name in row.get("tests", ())}
    assert [name for name in named if not re.fullmatch("test_.*", name.partition("::")[2])] == []
    assert [name for name in named if name.partition("::")[2] not in functions(name.partition("::")[0])] == []


def test_no_time_of_day_decides_anything_in_a_rendezvous() -> None:
    """One is compared with the age of a file, after thirty days; a run logs and shows it, and a job's end is one.

    A check compares them. A member and its leader tell each other's, so that a clock that is off is named: with
    --strict alone it decides.
    """
    package = ROOT / "mingle_hooks"
    of_day = re.compile(r"time\.time\b|CLOCK_REALTIME|datetime|strftime|localtime|from time import.*\btime\b")
    users = {path.name for path in package.rglob("*.py") if of_day.search(path.read_text())}
    assert users == {*OF_DAY.split()}
