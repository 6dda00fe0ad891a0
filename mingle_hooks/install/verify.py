"""Every deviation of what is installed from what shall be, with the mend for it."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.install import files, manifest
from mingle_hooks.install.site import KILL_SWITCH
from mingle_hooks.install.targets import hook, target
from mingle_hooks.runtime import RUN_ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mingle_hooks.install.hook import Where
    from mingle_hooks.install.plan import Plan
    from mingle_hooks.install.site import Site

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ALL_ENTER = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH


class Finding(NamedTuple):
    """One deviation: where, what is wrong, how to mend it. A `note` is worth knowing and is no deviation."""

    where: str
    what: str
    mend: str
    note: bool = False


def verify(plan: Plan, site: Site, where: Where) -> tuple[Finding, ...]:
    """Return what deviates from the plan that installing now would make.

    Raises UsageError, FactsError and PlaceError.
    """
    again = f"mingle hooks install {plan.scheduler}"
    found = [*_files(plan, again), *_parents(plan), *closed(plan), *_key(plan.root, site), *_state(plan.root)]
    found += target(plan.scheduler).findings(plan, where)
    found += [Finding(plan.scheduler, note, "", note=True) for note in plan.notes]
    return tuple(found)


def _files(plan: Plan, again: str) -> Iterator[Finding]:
    known = manifest.read(plan.root).entries
    for file in plan.files:
        path, now = file.entry.path, files.look(plan.root + file.entry.path)
        if now is None:
            yield Finding(path, "is missing", again)
            continue
        if path not in known:
            yield Finding(path, "is not in the manifest", again)
        if now.text != file.text:
            yield Finding(path, "has other content than these settings and this version give", again)
        if now.uid != files.owner():
            yield Finding(path, f"belongs to uid {now.uid}", f"chown 0 {path}")
        if now.mode != file.entry.mode:
            yield Finding(path, f"has mode {now.mode:04o}", f"chmod {file.entry.mode:04o} {path}")
    for entry in manifest.read(plan.root).of(plan.scheduler):
        if entry.path not in plan.manifest.entries:
            yield Finding(entry.path, "is no longer needed", f"mingle hooks uninstall {plan.scheduler}, then {again}")


def closed(plan: Plan) -> Iterator[Finding]:
    """Find directories that keep users from a hook of theirs: Slurm then cancels every task of every job."""
    paths = [file.entry.path for file in plan.files if hook(plan.scheduler, file.entry.name).is_users]
    for place, status in _above(plan.root, paths):
        if status.st_mode & _ALL_ENTER != _ALL_ENTER:
            what = f"is closed to users (mode {stat.S_IMODE(status.st_mode):04o}), so every task fails"
            yield Finding(place, what, f"chmod a+x {place}")


def _parents(plan: Plan) -> Iterator[Finding]:
    """Look at all directories above the files: who can write one of them can put another file there."""
    for place, status in _above(plan.root, [file.entry.path for file in plan.files]):
        if status.st_mode & _OTHERS_WRITE:
            mode = stat.S_IMODE(status.st_mode)
            yield Finding(place, f"can be written by others (mode {mode:04o})", f"chmod go-w {place}")
        if status.st_uid not in {0, files.owner()}:
            yield Finding(place, f"belongs to uid {status.st_uid}", f"chown 0 {place}")


def _above(root: str, paths: list[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield each directory above these files, as far as they are there."""
    parents = set()
    for path in paths:
        place = os.path.dirname(path)
        while place not in parents and place != "/":
            parents.add(place)
            place = os.path.dirname(place)
    for place in sorted(parents):
        try:
            yield place, os.stat(root + place)
        except FileNotFoundError:
            continue


def _key(root: str, site: Site) -> Iterator[Finding]:
    try:
        found = os.lstat(root + site.key_file)
    except FileNotFoundError:
        return  # a note of the plan says so
    except OSError as wrong:
        yield Finding(site.key_file, f"cannot be looked at: {wrong.strerror}", "running it as root")
        return
    private = stat.S_IMODE(found.st_mode) in {0o400, 0o600} and found.st_uid == files.owner()
    if not stat.S_ISREG(found.st_mode) or not private:
        mend = f"chown 0 {site.key_file}; chmod 0400 {site.key_file}"
        yield Finding(site.key_file, "is not a regular file of root's with mode 0400", mend)
        return
    now = files.look(root + site.key_file)
    if now is not None and not re.fullmatch(r"(?:[0-9a-f]{2}){32,64}\n?", now.text):
        yield Finding(site.key_file, "does not hold 64 to 128 lower-case hex digits", f"mingle key > {site.key_file}")


def _state(root: str) -> Iterator[Finding]:
    if os.path.lexists(root + KILL_SWITCH):
        yield Finding(KILL_SWITCH, "is there, so the hooks do nothing", f"rm {KILL_SWITCH}", note=True)
    if os.path.lexists(root + RUN_ROOT):
        found = os.lstat(root + RUN_ROOT)
        if (found.st_uid, found.st_mode) != (files.owner(), stat.S_IFDIR | 0o755):
            mend = f"rm -r {RUN_ROOT}; the next Prolog makes it"
            yield Finding(RUN_ROOT, "is not a directory of root's with mode 0755", mend)
