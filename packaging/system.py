"""`make packages`: the packages of distributions, .deb and .rpm, of those that this machine can make."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import deb
import rpm


def main(directory: str, python: str) -> None:
    """Make them of the mingle.pyz in that directory; what cannot be made is told."""
    for kind in (deb, rpm):
        if shutil.which(kind.TOOL) is None:
            print(f"!!! NOT MADE, for want of {kind.TOOL}: .{kind.__name__}", file=sys.stderr)
            continue
        made = kind.make(Path(directory, "mingle.pyz"), Path(directory), python)
        print(f"{made.stat().st_size:9} {made}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["dist"])[:1], *(sys.argv[2:] or ["python3"]))
