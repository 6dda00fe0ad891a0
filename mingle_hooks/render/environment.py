"""The environment in which a script is made, as lines of shell that make it again where the job runs.

A scheduler that hands on nothing, as PBS does, would find neither mingle nor the user's Python. Modules are not seen
from here: --module loads them, before these lines.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from mingle_hooks import program
from mingle_hooks.errors import UsageError
from mingle_hooks.render.quoting import word

if TYPE_CHECKING:
    from collections.abc import Mapping

PORTABLE = ("mingle",)
_ON_EVERY_PATH = ("/usr/bin", "/bin")


def lines(environ: Mapping[str, str], called: str) -> tuple[str, ...]:
    """Return the lines for this environment; `called` is argv[0], by which this mingle was called.

    A venv is activated last, as it may stand on a conda environment. Raises UsageError for a directory that PATH
    cannot hold.
    """
    conda = _conda(environ)
    venv = environ.get("VIRTUAL_ENV", "")
    is_venv = os.path.isfile(f"{venv}/bin/activate") and os.path.isabs(venv)
    place = _mingle(called)
    is_there = is_venv and os.path.realpath(place) == os.path.realpath(f"{venv}/bin")
    path = [] if is_there or place in ("", *_ON_EVERY_PATH) else [_on_path(place)]
    return (*path, *conda, *([f". {word(f'{venv}/bin/activate')} || exit"] if is_venv else []))


def mingle() -> tuple[str, ...]:
    """Return what starts this mingle where the job runs: its name, or mingle.pyz with the Python that runs it."""
    archive = program.archive()
    is_named = archive is None or os.path.basename(archive) == "mingle"
    return PORTABLE if is_named else (sys.executable, str(archive))


def _mingle(called: str) -> str:
    """Return the directory of the program `mingle` that was called, or of this Python's; empty where there is none."""
    for path in (called, f"{os.path.dirname(sys.executable)}/mingle"):
        if os.path.basename(path) == "mingle" and os.path.isfile(path):
            return os.path.dirname(os.path.abspath(path))
    return ""


def _conda(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Activate by conda itself, for what stands in its activate.d; without it, as for pixi, PATH is all there is."""
    prefix, conda = environ.get("CONDA_PREFIX", ""), environ.get("CONDA_EXE", "")
    if not os.path.isabs(prefix) or not os.path.isdir(prefix):
        return ()
    if os.path.isabs(conda) and os.access(conda, os.X_OK):
        return (f'eval "$({word(conda)} shell.bash hook)" && conda activate {word(prefix)} || exit',)
    return (f"export CONDA_PREFIX={word(prefix)}", _on_path(f"{prefix}/bin"))


def _on_path(directory: str) -> str:
    if ":" in directory:
        raise UsageError(
            "a directory that PATH can hold", directory, "--no-environment, and a --setup line that finds mingle"
        )
    return f'export PATH={word(directory)}:"$PATH"'
