"""docs/frameworks.md, from what was seen."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cluster.names import RESOLVABLE

from frameworks.rows import Row

TEXT = Path(__file__).with_name("frameworks.md")


class Place(NamedTuple):
    """Where a row is tried."""

    kind: str  # "bare" or "Slurm"
    names: str  # as in cluster/names.py
    iface: str


KINDS = ("bare", "Slurm")


def text(rows: Sequence[Row], versions: Mapping[str, str], found: Mapping[str, Mapping[Place, str]]) -> str:
    """Return the page: the text beside this file with the table in its place."""
    whys: dict[str, int] = {}
    lines = [f"| framework | after `mingle exec` | {' | '.join(KINDS)} |", "|---" * (2 + len(KINDS)) + "|"]
    for row in rows:
        cells = [_cell(row, kind, found[row.name], whys) for kind in KINDS]
        name = f"{row.name} ({versions[row.name]})" if versions[row.name] else row.name
        lines.append(f"| {name} | `{_shown(row)}` | {' | '.join(cells)} |")
    lines += ["", *(f"[{number}] {why}" + ("" if number == len(whys) else "  ") for why, number in whys.items())]
    return TEXT.read_text().replace("<!-- table -->\n", "\n".join(lines).rstrip() + "\n")


def is_news(row: Row, place: Place, why: str) -> bool:
    """Tell whether a try ended otherwise than the row says: with `why` not "" where it did not train."""
    return bool(why) != bool(row.needs_names and place.names != RESOLVABLE)


def _cell(row: Row, kind: str, found: Mapping[Place, str], whys: dict[str, int]) -> str:
    """Return the networks on which a row trained, and with which names it did not; `whys` numbers the reasons."""
    tried = {place: why for place, why in found.items() if place.kind == kind}
    failed: dict[int, list[str]] = {}
    for names in dict.fromkeys(place.names for place in tried):
        ifaces: dict[int, list[str]] = {}
        for place, why in tried.items():
            if why and place.names == names:
                reason = why if is_news(row, place, why) else row.needs_names
                ifaces.setdefault(whys.setdefault(reason, len(whys) + 1), []).append(place.iface)
        size = sum(place.names == names for place in tried)
        for number, over in ifaces.items():
            failed.setdefault(number, []).append(names if len(over) == size else f"{names} over {', '.join(over)}")
    trained = ", ".join(sorted({place.iface for place, why in tried.items() if not why}))
    return "; ".join(filter(None, [trained, *(f"no [{n}] with {', '.join(w)}" for n, w in failed.items())])) or "-"


def _shown(row: Row) -> str:
    """Return the line as a person types it, with a script's name in place of what only the test tells it."""
    head = row.line.partition(row.script)[0]
    return f"{head}train.py".format(python="python", size="", nodes="", slots="")
