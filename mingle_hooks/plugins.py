"""Plugins: rows that other packages add by entry points, used only if no built-in row fits.

An entry point of one of GROUPS names a row like a built-in one. importlib.metadata, which finds it, costs 20 ms and
6 MB, so it is imported only if an installed package has such a group.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from mingle_hooks.errors import FactsError, MingleError, UsageError, printable, reason

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


Row = TypeVar("Row")  # a NamedTuple

# function -> a description of its return value, for a message, and a check of a value.
Returns = Mapping[str, tuple[str, Callable[[Any], bool]]]

SCHEDULERS, FRAMEWORKS, LAUNCHERS = "mingle.schedulers", "mingle.frameworks", "mingle.launchers"
# group -> the error for a broken plugin.
GROUPS: dict[str, type[MingleError]] = {SCHEDULERS: FactsError, FRAMEWORKS: UsageError, LAUNCHERS: UsageError}

_found: dict[str, dict[str, EntryPoint]] = {}
_loaded: dict[tuple[str, str], Any] = {}


def names(group: str) -> tuple[str, ...]:
    """Return the names of a group's plugins, sorted."""
    return tuple(sorted(_points(group)))


def find(group: str, name: str, kind: type[Row], returns: Returns) -> Row | None:
    """Return the row of this name, or None; its functions check what they return.

    Raises the group's error if the row cannot be loaded or is not of that kind.
    """
    known: Row | None = _loaded.get((group, name))
    if known is not None or (point := _points(group).get(name)) is None:
        return known
    owner = point.dist.name if point.dist is not None else point.value
    try:
        row: Any = point.load()
    except Exception as error:  # noqa: BLE001 - an import may raise anything, and the message shows it
        raise _broken(group, name, owner, reason(error)) from None
    is_row = isinstance(row, kind)
    if not is_row:
        raise _broken(group, name, owner, f"{point.value} is no {kind.__name__}")

    def guarded(field: str, function: Callable[..., object]) -> Callable[..., object]:
        def call(*given: object) -> object:
            try:
                found = function(*given)
            except MingleError:
                raise
            except Exception as error:  # noqa: BLE001 - a plugin may raise anything, and the message shows it
                raise _broken(group, name, owner, f"{field}: {reason(error)}") from None
            expected, holds = returns.get(field, ("", None))
            if holds is not None and not holds(found):
                seen = f"{field} returned {printable(repr(found), 60)}, which is not {expected}"
                raise _broken(group, name, owner, seen)
            return found

        return call

    functions = {field: guarded(field, value) for field, value in row._asdict().items() if callable(value)}
    known = _loaded[group, name] = row._replace(**functions)
    return known


def loaded(group: str) -> list[Any]:
    """Return the rows of a group that have been loaded."""
    return [row for (row_group, _), row in _loaded.items() if row_group == group]


def _points(group: str) -> Mapping[str, EntryPoint]:
    if group not in _found:
        _found[group] = _installed(group) if _may_be_there(group) else {}
    return _found[group]


def _installed(group: str) -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    try:
        return {point.name: point for point in entry_points(group=group)}
    except Exception as error:  # noqa: BLE001 - other installed packages may be broken in any way
        expected, remedy = (
            "installed packages whose entry points can be read",
            "`pip check`, then reinstalling that package",
        )
        raise GROUPS[group](expected, reason(error), remedy) from None


def _may_be_there(group: str) -> bool:
    """Return whether importlib.metadata may find the group: from entry_points.txt, or in a zip file or an egg."""
    section = f"[{group}]".encode()
    for place in sys.path:
        try:
            names = os.listdir(place or os.curdir)
        except NotADirectoryError:  # a zip file
            return True
        except OSError:
            continue
        for name in names:
            if name.endswith(".egg"):
                return True
            if name.endswith((".dist-info", ".egg-info")) and section in _entry_points(os.path.join(place, name)):
                return True
    return False


def _entry_points(package: str) -> bytes:
    try:
        with open(os.path.join(package, "entry_points.txt"), "rb") as file:
            return file.read()
    except OSError:
        return b""


def _broken(group: str, name: str, owner: str, why: str) -> MingleError:
    remedy = f"another version of {owner}, or pip uninstall {owner}"
    return GROUPS[group](f"a working plugin {name} in {group}", f"{why} (package {owner})", remedy)
