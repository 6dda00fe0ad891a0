"""Taking the hooks away, and putting back what stood there before."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.errors import ConflictError
from mingle_hooks.install import files, manifest
from mingle_hooks.install.manifest import Entry, Manifest
from mingle_hooks.install.plan import digest

if TYPE_CHECKING:
    from mingle_hooks.install.slurmconf import SlurmConf

_KEYS = ("Prolog", "Epilog", "TaskProlog")


class Removal(NamedTuple):
    """What will happen to one file: removed, restored, left because somebody changed it; or it is so already."""

    entry: Entry
    what: str


def removals(root: str, scheduler: str, conf: SlurmConf | None) -> tuple[Removal, ...]:
    """Return what uninstalling would do.

    Raises ConflictError while slurm.conf still runs one of the files: a hook that is missing, or a glob
    that matches nothing, drains every node.
    """
    entries = manifest.read(root).of(scheduler)
    if scheduler == "slurm" and conf is not None:
        _refuse_if_used(root, conf, entries)
    return tuple(Removal(entry, _fate(root, entry)) for entry in entries)


def uninstall(root: str, scheduler: str, found: tuple[Removal, ...]) -> None:
    """Carry it out, and clear away what an installation or this was doing when the power went off. Raises PlaceError.

    The manifest goes last: until then, doing it again goes on from there.
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


def _fate(root: str, entry: Entry) -> str:
    now, kept = files.look(root + entry.path), files.look(root + entry.kept) if entry.kept else None
    if now is None:
        return "restore" if kept else "gone"
    if kept and (now.text, now.mode) == (kept.text, entry.kept_mode):
        return "restored"
    if digest(now.text) != entry.sha256:
        return "leave"
    return "restore" if kept else "remove"


def _refuse_if_used(root: str, conf: SlurmConf, entries: tuple[Entry, ...]) -> None:
    paths = {entry.path: entry for entry in entries}
    for key in _KEYS:
        for value in conf.all(key):
            if value in paths:
                chain = paths[value].chain
                instead = f"{key}={chain}" if chain else f"no {key} line"
                raise ConflictError(
                    f"a {conf.path} that does not run what is to be removed",
                    f"{key}={value}",
                    f"{instead} instead, then scontrol reconfigure, then this once more",
                )
            if _would_be_empty(root, value, set(paths)):
                raise ConflictError(
                    f"programs that {key}={value} still matches afterwards (or it drains every node)",
                    "none but mingle's",
                    f"no {key} line in {conf.path}, then scontrol reconfigure, then this once more",
                )


def _would_be_empty(root: str, value: str, ours: set[str]) -> bool:
    import glob  # noqa: PLC0415 -- only here

    if not re.search(r"[*?[]", value):
        return False
    found = {path[len(root) :] for path in glob.glob(root + value)}
    return bool(found & ours) and found <= ours


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
