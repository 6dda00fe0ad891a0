"""Taking the hooks away, and putting back what stood there before."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.install import files, manifest
from mingle_hooks.install.manifest import Entry, Manifest
from mingle_hooks.install.plan import digest
from mingle_hooks.install.targets import target

if TYPE_CHECKING:
    from typing import Literal

    from mingle_hooks.install.hook import Where

    Fate = Literal["remove", "restore", "leave", "gone", "restored"]


class Removal(NamedTuple):
    """What will happen to one file: removed, restored, left because somebody changed it, or done already."""

    entry: Entry
    what: Fate


def removals(where: Where, scheduler: str) -> tuple[Removal, ...]:
    """Return what uninstalling would do.

    Raises ConflictError while the scheduler still runs one of the files: a hook of Slurm that is missing, or a glob
    that matches nothing, drains every node. Raises UsageError, FactsError and PlaceError too.
    """
    entries = manifest.read(where.root).of(scheduler)
    target(scheduler).refuse(where, entries)
    return tuple(Removal(entry, _fate(where.root, entry)) for entry in entries)


def uninstall(root: str, scheduler: str, found: tuple[Removal, ...]) -> None:
    """Carry it out, and clear away what an installation or this was doing when the power went off. Raises PlaceError.

    The manifest goes last: until then, doing it again goes on from there.
    Raises FactsError too, for a manifest that is none.
    """
    for entry, what in found:
        kept = files.look(root + entry.kept) if entry.kept else None
        if what == "restore" and kept is not None:
            files.write(root + entry.path, kept.text, entry.kept_mode)
        elif what == "remove":
            files.remove(root + entry.path)
        if entry.kept and what in {"restore", "restored"}:
            files.remove(root + entry.kept)
    _remove_unfinished(root, scheduler, tuple(entry for entry, _ in found))
    known = manifest.read(root).entries
    rest = {path: entry for path, entry in known.items() if entry.scheduler != scheduler}
    if not rest:
        files.remove(root + manifest.PATH)
    elif rest != known:
        files.write(root + manifest.PATH, Manifest(rest).text(), 0o644)
    _remove_empty(root, scheduler)


def _fate(root: str, entry: Entry) -> Fate:
    now, kept = files.look(root + entry.path), files.look(root + entry.kept) if entry.kept else None
    if now is None:
        return "restore" if kept else "gone"
    if kept and (now.text, now.mode) == (kept.text, entry.kept_mode):
        return "restored"
    if digest(now.text) != entry.sha256:
        return "leave"
    return "restore" if kept else "remove"


def _remove_unfinished(root: str, scheduler: str, entries: tuple[Entry, ...]) -> None:
    for entry in entries:
        files.remove(root + files.unfinished(entry.path))
    for place in (f"{manifest.DIRECTORY}/{scheduler}", manifest.KEPT, manifest.DIRECTORY):
        for name in os.listdir(root + place) if os.path.isdir(root + place) else ():
            if name.startswith(files.TEMPORARY):
                files.remove(f"{root}{place}/{name}")


def _remove_empty(root: str, scheduler: str) -> None:
    """Remove the directories that installing made, as far as nothing is left in them."""
    for place in (f"{manifest.DIRECTORY}/{scheduler}", manifest.KEPT, manifest.DIRECTORY, "/etc/mingle"):
        if os.path.isdir(root + place) and not os.listdir(root + place):
            os.rmdir(root + place)
