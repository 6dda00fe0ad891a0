"""Which directories the hosts need from this machine, and what stands in the way to them."""

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
# The programs beside this Python: mingle, which users do not have where their shells look, torchrun and others.
BIN = Path(sys.executable).parent
MINGLE = BIN / "mingle"
# With it, what imports torch takes two thirds of the time.
LEAN = {"PYTHONPATH": str(PROJECT / "tests/data/lean")}


def needed_paths() -> list[str]:
    """Return the directories that Python and this project need, wherever they lie on this machine."""
    paths = [PROJECT, *(Path(p) for p in (sys.prefix, sys.base_prefix, *sys.path))]
    return [str(p.resolve()) for p in paths if p.is_absolute() and p.exists()]


def reachable(paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the paths to keep, and the closed directories to cover so that every user can reach those paths.

    A checkout or a Python under a directory such as /root (0700) would be out of other users' reach. A tmpfs
    over the closed directory, in which only the needed paths appear, opens the way to them and to nothing
    else.
    """
    keep: list[str] = []
    covered: list[str] = []
    for path in outermost(paths):
        covered += [str(p) for p in Path(path).parents if not is_open(str(p))]
        if Path(path).is_dir() and not is_open(path):
            covered.append(path)
            keep += [entry.path for entry in os.scandir(path)]
        else:
            keep.append(path)
    return keep, outermost(covered)


def is_open(path: str) -> bool:
    """Tell whether other users can go through a directory."""
    return bool(Path(path).stat().st_mode & stat.S_IXOTH)


def outermost(paths: Iterable[str]) -> list[str]:
    """Return the paths, sorted, without those that lie below another one."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not any(path.startswith(f"{other}/") for other in kept):
            kept.append(path)
    return kept


def walk(root: Path, top: str) -> Iterator[str]:
    """Yield every path below a directory and on its own file system, as it is named below `root`."""
    start = f"{root}{top}"
    device = Path(start).stat().st_dev
    for directory, names, files in os.walk(start):
        names[:] = [n for n in names if os.lstat(f"{directory}/{n}").st_dev == device]
        yield from (f"{directory}/{n}".removeprefix(str(root)) for n in (*names, *files))
