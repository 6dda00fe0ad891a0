"""The files that ship with the package: in a wheel inside it, in a checkout beside it, in a zip file within that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.errors import MingleError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

ENVIRONMENTS = "templates/hooks/environments"  # recorded on real clusters, to try hooks with
_CHECKOUT = "pyproject.toml"  # what lies beside the package there, and in no directory of packages


def place(path: str) -> Traversable:
    """Return a file or directory, such as templates/job. Raises MingleError where the installation has none."""
    from importlib.resources import files  # 13 ms, which only templates and pages need

    inside = files("mingle_hooks")
    parts = path.split("/")
    found = inside.joinpath(*parts)
    if not (found.is_dir() or found.is_file()):
        beside = files("mingle_hooks").joinpath("..")
        found = beside.joinpath(*parts) if beside.joinpath(_CHECKOUT).is_file() else found
    if not (found.is_dir() or found.is_file()):
        raise MingleError(f"{path} in the package", f"none in {inside}", "reinstalling mingle-hooks")
    return found


def text(path: str) -> str:
    """Return what a file holds. Raises MingleError where there is none."""
    return place(path).read_text(encoding="utf-8")


def names(path: str) -> tuple[str, ...]:
    """Return the files of a directory and of those below it, by their paths from there, sorted.

    Raises MingleError where there is none.
    """
    return tuple(sorted(_below(place(path), "")))


def _below(directory: Traversable, before: str) -> Iterator[str]:
    for entry in directory.iterdir():
        if entry.is_dir():
            yield from _below(entry, f"{before}{entry.name}/")
        else:
            yield before + entry.name
