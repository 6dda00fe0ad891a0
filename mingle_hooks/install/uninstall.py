"""Taking the hooks away, and putting back what stood there before."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.install import files, manifest
from mingle_hooks.install.manifest import Entry, Manifest
from mingle_hooks.install.plan import digest
from mingle_hooks.install.targets import target

if TYPE_CHECKING:
    from typing import Literal

    from mingle_hooks.install.hook import Where

    Fate = Literal["remove", "restore", "leave", "gone", "restored", "stub"]

# What a stub says of itself (slurm/stub.sh.j2).
STUB = "\n# Left behind by mingle hooks uninstall, "


class Removal(NamedTuple):
    """What will happen to one file: removed, restored, left because somebody changed it, or done already.

    Where the scheduler may still run it, a stub stays, which does the site's own alone: its text is `stub`.
    """

    entry: Entry
    what: Fate
    stub: str = ""


def removals(where: Where, scheduler: str) -> tuple[Removal, ...]:
    """Return what uninstalling would do.

    Raises ConflictError while the scheduler still runs one of the files: a hook of Slurm that is missing, or a glob
    that matches nothing, drains every node. Raises UsageError, FactsError and PlaceError too.
    """
    entries = manifest.read(where.root).of(scheduler)
    target(scheduler).refuse(where, entries)
    stubs = target(scheduler).stubs(where, entries)
    return tuple(_removal(where.root, entry, stubs.get(entry.path, "")) for entry in entries)


def uninstall(root: str, scheduler: str, found: tuple[Removal, ...]) -> None:
    """Carry it out, and clear away what an installation or this was doing when the power went off. Raises PlaceError.

    The manifest goes last: until then, doing it again goes on from there.
    Raises FactsError too, for a manifest that is none.
    """
    for entry, what, stub in found:
        kept = files.look(root + entry.kept) if entry.kept else None
        if what == "restore" and kept is not None:
            files.write(root + entry.path, kept.text, entry.kept_mode)
        elif what == "remove":
            files.remove(root + entry.path)
        elif what == "stub":
            files.write(root + entry.path, stub, entry.mode)
        if entry.kept and what in {"restore", "restored"}:
            files.remove(root + entry.kept)
    _remove_unfinished(root, scheduler, tuple(removal.entry for removal in found))
    known = manifest.read(root).entries
    rest = {path: entry for path, entry in known.items() if entry.scheduler != scheduler}
    rest |= {entry.path: replace(entry, sha256=digest(stub)) for entry, what, stub in found if what == "stub"}
    if not rest:
        files.remove(root + manifest.PATH)
    elif rest != known:
        files.write(root + manifest.PATH, Manifest(rest).text(), 0o644)
    _remove_empty(root, scheduler)


def _removal(root: str, entry: Entry, stub: str) -> Removal:
    what = _fate(root, entry)
    return Removal(entry, "stub", stub) if stub and what in {"remove", "gone"} else Removal(entry, what)


def _fate(root: str, entry: Entry) -> Fate:
    now, kept = files.look(root + entry.path), files.look(root + entry.kept) if entry.kept else None
    if now is None:
        return "restore" if kept else "gone"
    if kept and (now.text, now.mode) == (kept.text, entry.kept_mode):
        return "restored"
    if digest(now.text) != entry.sha256 and STUB not in now.text:  # or the power went off before the manifest knew
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
