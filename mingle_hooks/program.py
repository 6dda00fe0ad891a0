"""The programs that `mingle run` and `mingle check` start on each host: files of the package, or mingle.pyz itself."""

from __future__ import annotations

import os
import sys

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_PLACE, _NAME = os.path.split(_PACKAGE)


def archive() -> str | None:
    """Return the path of mingle.pyz, None where this mingle is installed."""
    return _PLACE if os.path.isfile(_PLACE) else None


def argv_of(program: str) -> tuple[str, ...]:
    """Return what starts a program, such as supervise/node/start.py, on any host that sees this mingle's file.

    mingle.pyz takes the program's path as its first word: see packaging/build.py.
    """
    if (its := archive()) is not None:
        return (sys.executable, "-IS", its, f"{_NAME}/{program}")
    return (sys.executable, "-IS", f"{_PACKAGE}/{program}")
