"""Applies a plan, and removes what it installed; a power cut at any point loses nothing of the site's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Literal, NamedTuple

from mingle_hooks.errors import FactsError, UsageError
from mingle_hooks.hooks import files, pbs, slurm
from mingle_hooks.hooks.files import Entry, Found, Manifest, Site, checksum
from mingle_hooks.hooks.plan import Hook, Plan, Stub, Target, Where, origin_of, restored
from mingle_hooks.values import nearest

# The schedulers that hooks can be installed for, by the name that people type: a new one is a row here.
TARGETS: dict[str, Target] = {
    "slurm": slurm.TARGET,
    "pbs": pbs.TARGET,
    "torque": pbs.classic_target(
        "torque", "/var/spool/torque", "mom_priv", program="momctl", version_option="-V", suffixes=("", ".parallel")
    ),
}


def target(scheduler: str) -> Target:
    """Return one scheduler's row. Raises UsageError."""
    if scheduler not in TARGETS:
        raise UsageError(f"one of {', '.join(TARGETS)}", repr(scheduler), nearest(scheduler, TARGETS))
    return TARGETS[scheduler]


def hook(scheduler: str, name: str) -> Hook:
    """Return one hook. Raises UsageError."""
    hooks = target(scheduler).hooks
    if name not in hooks:
        near = f"mingle hooks render {scheduler} {nearest(name, hooks)}"
        raise UsageError(f"one of {', '.join(hooks)}", repr(name), near)
    return hooks[name]


def apply(plan: Plan) -> None:
    """Write what the plan says. Raises PlaceError; then installing again goes on from there.

    All are on disk before the first gets its name. Copies of the site's originals get theirs first, then the manifest,
    so that everything that is ever written can be found again, then the hooks, each of which works beside an older or
    newer other.
    """
    if not plan.changes:
        return
    owner = files.owner_of()
    wanted = [(copy.path, copy.found) for file in plan.files if (copy := file.present.copy) is not None]
    wanted.append((files.MANIFEST_PATH, Found(plan.manifest.text().encode(), 0o644, owner)))
    wanted += [
        (file.entry.path, Found(file.text.encode(), file.entry.mode, owner)) for file in plan.files if not file.is_right
    ]
    files.put_files([(files.strip_root(plan.root, path), found) for path, found in wanted])


# Removing the hooks, and restoring what was there before.

Fate = Literal["remove", "restore", "leave", "gone", "restored", "stub", "wait"]

# slurmctld tells all nodes within seconds; a node that swaps, or is asked through many others, needs longer.
STUB_S = 60


class Removal(NamedTuple):
    """What will happen to one file: removed, restored, left because somebody edited it, or done already.

    First a stub takes the place of what a daemon may still run: its text is `stub`. It waits there for STUB_S.
    """

    entry: Entry
    what: Fate
    stub: str = ""


def removals(where: Where, scheduler: str, site: Site) -> tuple[Removal, ...]:
    """Return what uninstalling would do.

    Raises ConflictError while the scheduler still runs one of the files: a hook of Slurm that is missing, or a glob
    that matches nothing, drains every node. Raises UsageError, FactsError and PlaceError too.
    """
    old = files.read_manifest(where.root)
    entries = old.of(scheduler)
    if old.is_rebuilt or not entries:
        entries = (*entries, *_unlisted(where, scheduler, site, old))
    target(scheduler).refuse(where, entries)
    stubs = target(scheduler).stubs(where, entries)
    return tuple(_removal(where.root, entry, stubs.get(entry.path)) for entry in entries)


def _unlisted(where: Where, scheduler: str, site: Site, old: Manifest) -> Iterator[Entry]:
    """Yield the files that an installation would replace and that are ours, are begun, or have a copy.

    Raises FactsError and UsageError only where the manifest was lost.
    """
    try:
        plan = target(scheduler).plan(site, where)
    except (FactsError, UsageError):
        if old.is_rebuilt:
            raise
        return
    for file in plan.files:
        present, entry = file.present, file.entry
        begun = [
            os.path.lexists(files.strip_root(where.root, files.unfinished_files(path)))
            for path in filter(None, (entry.path, present.original))
        ]
        has_copy = present.original and not present.copy
        if entry.path not in old.entries and (has_copy or any(begun) or present.origin in {"ours", "edited"}):
            yield entry


def uninstall(root: str, scheduler: str, found: tuple[Removal, ...]) -> None:
    """Remove the files, and what an interrupted installation or removal left unfinished. Raises PlaceError.

    The manifest goes last: until then, uninstalling again goes on from there.
    """
    for entry, what, stub in found:
        path, copy = files.strip_root(root, entry.path), files.strip_root(root, entry.kept) if entry.kept else ""
        original = files.look_at(copy, links=True) if copy else None
        if what == "restore" and original is not None:
            files.put_files([(path, restored(original))])
        elif what == "remove":
            files.remove_file(path)
        elif what == "stub":
            files.write_whole(path, stub.encode(), entry.mode)
        if copy and what in {"restore", "restored"}:
            files.remove_file(copy)
    _remove_unfinished(root, scheduler, tuple(removal.entry for removal in found))
    old = files.read_manifest(root)
    rest = {path: entry for path, entry in old.entries.items() if entry.scheduler != scheduler}
    rest |= {entry.path: entry for entry, what, _ in found if what in {"stub", "wait"}}
    if not rest:
        files.remove_file(files.strip_root(root, files.MANIFEST_PATH))
    elif old != (left := Manifest(rest)):
        files.write_whole(files.strip_root(root, files.MANIFEST_PATH), left.text().encode(), 0o644)
    _remove_empty(root, scheduler)


def _removal(root: str, entry: Entry, stub: Stub | None) -> Removal:
    what = _fate(root, entry)
    if stub is None or what not in {"remove", "gone"}:
        return Removal(entry, what)
    if entry.stub and what == "remove" and not stub.is_run:
        return Removal(entry, "remove" if files.seconds_since(entry.stub) >= STUB_S else "wait")
    since = files.boot_clock()
    return Removal(entry._replace(sha256=checksum(stub.text.encode()), stub=since), "stub", stub.text)


def _fate(root: str, entry: Entry) -> Fate:
    now = files.look_at(files.strip_root(root, entry.path), links=True)
    copy = files.look_at(files.strip_root(root, entry.kept), links=True) if entry.kept else None
    if now is None:
        return "restore" if copy else "gone"
    if copy and now == restored(copy):
        return "restored"
    if origin_of(now, entry.path, entry) != "ours":  # a stub is ours, also if the manifest does not know of it yet
        return "leave"
    return "restore" if copy else "remove"


def _remove_unfinished(root: str, scheduler: str, entries: tuple[Entry, ...]) -> None:
    for entry in entries:
        for path in filter(None, (entry.path, entry.kept)):
            files.remove_file(files.strip_root(root, files.unfinished_files(path)))
    for place in _places(scheduler):
        directory = files.below_root(root, place)
        for name in os.listdir(directory) if os.path.isdir(directory) else ():
            if name.startswith(files.TEMPORARY):
                files.remove_file(f"{directory}/{name}")


def _remove_empty(root: str, scheduler: str) -> None:
    """Remove the directories that installing made, as far as nothing is left in them."""
    for place in (*_places(scheduler), "/etc/mingle"):
        directory = files.strip_root(root, place)
        if not os.path.islink(directory) and os.path.isdir(directory) and not os.listdir(directory):
            os.rmdir(directory)


def _places(scheduler: str) -> tuple[str, ...]:
    return f"{files.MANIFEST_DIRECTORY}/{scheduler}", files.COPIES, files.MANIFEST_DIRECTORY
