"""The table of `--explain`: every variable, its value, where it came from, and what lost."""

from __future__ import annotations

from mingle_hooks.errors import printable
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mingle_hooks.export.variables import Variable

# Longer values, such as TF_CONFIG, would push the other columns off any terminal.
LONGEST_VALUE = 60  # characters


def explain(variables: Sequence[Variable]) -> str:
    """Return an aligned table for stderr, with control characters escaped."""
    rows = [("NAME", "VALUE", "SOURCE", "WHAT LOST")]
    rows += [(v.name, printable(v.value, LONGEST_VALUE), printable(v.source), printable(v.lost)) for v in variables]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    ]
    return "".join(f"{line.rstrip()}\n" for line in lines)
