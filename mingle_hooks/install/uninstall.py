"""Taking the hooks away, and putting back what stood there before."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.errors import FactsError, UsageError
from mingle_hooks.install import files, manifest
from mingle_hooks.install.keeping import as_was, is_ours
from mingle_hooks.install.made import digest
from mingle_hooks.install.manifest import Entry, Manifest
from mingle_hooks.install.targets import target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal

    from mingle_hooks.install.hook import Where
    from mingle_hooks.install.site import Site

    Fate = Literal["remove", "restore", "leave", "gone", "restored", "stub"]


class Removal(NamedTuple):
    """What will happen to one file: removed, restored, left because somebody changed it, or done already.

    Where the scheduler may still run it, a stub stays, which does the site's own alone: its text is `stub`.
    """

    entry: Entry
    what: Fate
    stub: str = ""


def removals(where: Where, scheduler: str, site: Site) -> tuple[Removal, ...]:
    """Return what uninstalling would do.

    Raises ConflictError while the scheduler still runs one of the files: a hook of Slurm that is missing, or a glob
    that matches nothing, drains every node. Raises UsageError, FactsError and PlaceError too.
    """
    old = manifest.read(where.root)
    entries = old.of(scheduler)
    if old.is_rebuilt or not entries:
        entries = (*entries, *_unlisted(where, scheduler, site, old))
    target(scheduler).refuse(where, entries)
    stubs = target(scheduler).stubs(where, entries)
    return tuple(_removal(where.root, entry, stubs.get(entry.path, "")) for entry in entries)


def _unlisted(where: Where, scheduler: str, site: Site, old: Manifest) -> Iterator[Entry]:
    """Yield the files that an installation would replace and that are ours, or whose originals are kept.

    Raises FactsError and UsageError only where the manifest was lost.
    """
    try:
        plan = target(scheduler).plan(site, where)
    except (FactsError, UsageError):
        if old.is_rebuilt:
            raise
        return
    for file in plan.files:
        its, entry = file.standing, file.entry
        is_kept = its.kept and (not its.copy or os.path.lexists(files.below(where.root, files.unfinished(its.kept))))
        if entry.path not in old.entries and (is_kept or its.whose in {"ours", "edited"}):
            yield entry


def uninstall(root: str, scheduler: str, found: tuple[Removal, ...]) -> None:
    """Carry it out, and clear away what an installation or this was doing when the power went off. Raises PlaceError.

    The manifest goes last: until then, doing it again goes on from there.
    """
    for entry, what, stub in found:
        path, copy = files.below(root, entry.path), files.below(root, entry.kept) if entry.kept else ""
        kept = files.look(copy, links=True) if copy else None
        if what == "restore" and kept is not None:
            files.put(path, as_was(kept))
        elif what == "remove":
            files.remove(path)
        elif what == "stub":
            files.write(path, stub.encode(), entry.mode)
        if copy and what in {"restore", "restored"}:
            files.remove(copy)
    _remove_unfinished(root, scheduler, tuple(removal.entry for removal in found))
    old = manifest.read(root)
    rest = {path: entry for path, entry in old.entries.items() if entry.scheduler != scheduler}
    rest |= {its.path: its._replace(sha256=digest(stub.encode())) for its, what, stub in found if what == "stub"}
    if not rest:
        files.remove(files.below(root, manifest.PATH))
    elif old != (left := Manifest(rest)):
        files.write(files.below(root, manifest.PATH), left.text().encode(), 0o644)
    _remove_empty(root, scheduler)


def _removal(root: str, entry: Entry, stub: str) -> Removal:
    what = _fate(root, entry)
    return Removal(entry, "stub", stub) if stub and what in {"remove", "gone"} else Removal(entry, what)


def _fate(root: str, entry: Entry) -> Fate:
    now = files.look(files.below(root, entry.path), links=True)
    kept = files.look(files.below(root, entry.kept), links=True) if entry.kept else None
    if now is None:
        return "restore" if kept else "gone"
    if kept and now == as_was(kept):
        return "restored"
    if not is_ours(now, entry):  # as a stub is, also where the power went off before the manifest knew of it
        return "leave"
    return "restore" if kept else "remove"


def _remove_unfinished(root: str, scheduler: str, entries: tuple[Entry, ...]) -> None:
    for entry in entries:
        for path in filter(None, (entry.path, entry.kept)):
            files.remove(files.below(root, files.unfinished(path)))
    for place in _places(scheduler):
        its = files.at(root, place)
        for name in os.listdir(its) if os.path.isdir(its) else ():
            if name.startswith(files.TEMPORARY):
                files.remove(f"{its}/{name}")


def _remove_empty(root: str, scheduler: str) -> None:
    """Remove the directories that installing made, as far as nothing is left in them."""
    for place in (*_places(scheduler), "/etc/mingle"):
        its = files.below(root, place)
        if not os.path.islink(its) and os.path.isdir(its) and not os.listdir(its):
            os.rmdir(its)


def _places(scheduler: str) -> tuple[str, ...]:
    return f"{manifest.DIRECTORY}/{scheduler}", manifest.KEPT, manifest.DIRECTORY
