"""docs/frameworks.md, from what was seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cluster.names import NAMES, RESOLVABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frameworks.rows import Row

TEXT = Path(__file__).with_name("frameworks.md")


class Place(NamedTuple):
    """Where a row is tried."""

    kind: str  # "bare" or "Slurm"
    names: str  # as in cluster/names.py
    iface: str


COLUMNS = tuple((kind, names) for kind in ("bare", "Slurm") for names in NAMES)


def text(rows: Sequence[Row], versions: Mapping[str, str], found: Mapping[str, Mapping[Place, str]]) -> str:
    """Return the page: the text beside this file with the table in its place."""
    whys: dict[str, int] = {}
    heads = " | ".join(f"{kind}: {names}" for kind, names in COLUMNS)
    lines = [f"| | version | after `mingle exec`, or `srun mingle exec` | {heads} |"]
    lines += ["| --- | --- | --- |" + " --- |" * len(COLUMNS)]
    for row in rows:
        cells = [_cell(row, kind, names, found[row.name], whys) for kind, names in COLUMNS]
        lines.append(f"| {row.name} | {versions[row.name] or '-'} | `{_shown(row)}` | {' | '.join(cells)} |")
    lines += ["", *(f"[{number}] {why}" + ("" if number == len(whys) else "  ") for why, number in whys.items())]
    return TEXT.read_text().replace("<!-- table -->\n", "\n".join(lines).rstrip() + "\n")


def is_news(row: Row, place: Place, why: str) -> bool:
    """Tell whether a try ended otherwise than the row says: with `why` not "" where it did not train."""
    return bool(why) != bool(row.needs_names and place.names != RESOLVABLE)


def _cell(row: Row, kind: str, names: str, found: Mapping[Place, str], whys: dict[str, int]) -> str:
    """Return the networks on which a row trained, and those on which it did not; `whys` numbers the reasons."""
    seen = []
    for place, why in found.items():
        if (place.kind, place.names) == (kind, names):
            reason = why if is_news(row, place, why) else row.needs_names
            seen.append(f"{place.iface} no [{whys.setdefault(reason, len(whys) + 1)}]" if why else place.iface)
    return ", ".join(seen) or "-"


def _shown(row: Row) -> str:
    """Return the line as a person types it, with a script's name in place of what only the test tells it."""
    head = row.line.partition(row.script)[0]
    return f"{head}train.py".format(python="python", size="", nodes="", slots="")
