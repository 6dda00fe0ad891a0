"""What README.md, docs/how-it-works.md and docs/security.md promise: sentences of prose, and rows of tables."""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

from documents import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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


class Promise(NamedTuple):
    """A promise as its page makes it, and the tests that show it. `why` tells why it needs none."""

    page: str
    text: str
    tests: tuple[str, ...] = ()
    why: str = ""


def listed() -> list[Promise]:
    """Return the rows of promises.toml."""
    rows = tomllib.loads(TABLE.read_text())["promise"]
    return [Promise(row["page"], row["text"], tuple(row.get("tests", ())), row.get("why", "")) for row in rows]


def made() -> list[Promise]:
    """Return every promise of the three pages."""
    found = [Promise(page, text) for page in PROSE for text in sentences((ROOT / page).read_text())]
    return [*(one for one in found if MARKERS.search(one.text)), *(Promise(ROWS, text) for text in rows())]


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
