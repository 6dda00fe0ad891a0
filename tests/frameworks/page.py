"""docs/frameworks.md, from what was seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frameworks.rows import Row

PLACES = ("bare, eth0", "bare, ib0", "Slurm, eth0", "Slurm, ib0")
TEXT = Path(__file__).with_name("frameworks.md")


def text(rows: Sequence[Row], versions: Mapping[str, str], found: Mapping[str, Mapping[str, str]]) -> str:
    """Return the page: the text beside this file with the table in its place."""
    whys: dict[str, int] = {}
    lines = ["| | version | after `mingle exec`, or `srun mingle exec` | " + " | ".join(PLACES) + " |"]
    lines += ["| --- | --- | --- |" + " --- |" * len(PLACES)]
    for row in rows:
        cells = [_cell(found[row.name].get(place), whys) for place in PLACES]
        lines.append(f"| {row.name} | {versions[row.name] or '-'} | `{_shown(row)}` | {' | '.join(cells)} |")
    lines += ["", *(f"[{number}] {why}" + ("" if number == len(whys) else "  ") for why, number in whys.items())]
    return TEXT.read_text().replace("<!-- table -->\n", "\n".join(lines).rstrip() + "\n")


def _cell(why: str | None, whys: dict[str, int]) -> str:
    """Return what was seen in one place, None where it was not tried; `whys` numbers the reasons."""
    if why is None:
        return "-"
    return f"no [{whys.setdefault(why, len(whys) + 1)}]" if why else "trains"


def _shown(row: Row) -> str:
    """Return the line as a person types it, with a script's name in place of what only the test tells it."""
    head = row.line.partition(row.script)[0]
    return f"{head}train.py".format(python="python", size="", nodes="", slots="")
