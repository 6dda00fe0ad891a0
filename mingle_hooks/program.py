"""The programs that `mingle run` and `mingle check` start on each host: files of the package, or mingle.pyz itself."""

from __future__ import annotations

import os
import sys

from mingle_hooks.errors import UsageError

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_PLACE, _NAME = os.path.split(_PACKAGE)


def argv_of(program: str) -> tuple[str, ...]:
    """Return what starts a program, such as supervise/node/start.py, on any host that sees this mingle's file.

    mingle.pyz takes the program's path as its first word: see packaging/build.py. Raises UsageError where this mingle
    has no file of its own.
    """
    path = f"{_PACKAGE}/{program}"
    if os.path.isfile(path):
        return (sys.executable, "-IS", path)
    if os.path.isfile(_PLACE):
        return (sys.executable, "-IS", _PLACE, f"{_NAME}/{program}")
    raise UsageError("mingle in a file that each host can start", path, "an installed mingle, or mingle.pyz")
