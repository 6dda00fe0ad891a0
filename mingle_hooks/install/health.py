"""Is what was installed still there, as it was? By the manifest's checksums alone, so that a health check is quick."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.install import files, manifest
from mingle_hooks.install.made import digest, made
from mingle_hooks.runtime import RUN_ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mingle_hooks.install.files import Found
    from mingle_hooks.install.manifest import Entry, Manifest

_ALL_ENTER = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
_KEY_DIGITS = range(64, 129, 2)


class Finding(NamedTuple):
    """One deviation: where, what is wrong, how to mend it. A `note` is worth knowing and is no deviation."""

    where: str
    what: str
    mend: str
    note: bool = False


def health(root: str, installed: Manifest, scheduler: str, key_file: str) -> Iterator[Finding]:
    """Yield what is wrong with one scheduler's hooks on this node. Raises PlaceError."""
    again, entries = f"mingle hooks install {scheduler}", installed.of(scheduler)
    if not entries:
        yield Finding(scheduler, "has no hooks installed", again)
    if installed.is_rebuilt:
        yield Finding(manifest.PATH, "is missing, or not what mingle hooks wrote", again)
    for entry in entries:
        yield from _file(root, entry, again)
        yield from _originals(root, entry, again)
    yield from (*_parents(root, entries), *closed(root, entries), *_state(root))
    # The host of PBS' server, which has no classic script, runs no jobs.
    if scheduler != "pbs" or any(entry.mode & stat.S_IXUSR for entry in entries):
        yield from site_key(root, key_file)


def _file(root: str, entry: Entry, again: str) -> Iterator[Finding]:
    now = files.look(files.below(root, entry.path), links=True)
    if now is None:
        yield Finding(entry.path, "is missing", again)
        return
    if now.is_link:
        yield Finding(entry.path, "is a link", f"removing it, then {again}")
        return
    if digest(now.data) != entry.sha256:
        yield Finding(entry.path, *_changed(entry.path, now, again))
    if now.uid != files.owner():
        yield Finding(entry.path, f"belongs to uid {now.uid}", f"chown 0 {entry.path}")
    if now.mode != entry.mode:
        yield Finding(entry.path, f"has mode {now.mode:04o}", f"chmod {entry.mode:04o} {entry.path}")


def _changed(path: str, now: Found, again: str) -> tuple[str, str]:
    said = made(now.data)
    if said is not None and said.is_whole:
        return f"comes from another installation than the manifest (mingle-hooks {said.version})", again
    if said is None and not path.startswith(f"{manifest.DIRECTORY}/"):
        return "is a foreign file", f"{again}, which keeps it"
    return "was edited by hand", f"{again}, which keeps the edited one in {manifest.KEPT}"


def _originals(root: str, entry: Entry, again: str) -> Iterator[Finding]:
    """Look at the site's own: the copy to be put back, and the program that the hook runs."""
    if entry.kept:
        there = files.look(files.below(root, entry.kept), links=True)
        if there is None:
            yield Finding(entry.kept, f"is missing: the site's own {entry.path}", "putting it back there")
            return
        if digest(there.data) != entry.kept_sha256:
            mend = f"putting the copy back, or, if this file is right: {again}"
            yield Finding(entry.kept, f"is not the copy of the site's own {entry.path}", mend)
    if entry.chain and not files.can_be_run(root, entry.chain):
        yield Finding(entry.chain, f"cannot be run, and {entry.path} runs it", f"chmod +x {entry.chain}")


def closed(root: str, entries: Iterable[Entry]) -> Iterator[Finding]:
    """Find directories that keep users from a hook of theirs: Slurm then cancels every task of every job."""
    for place, status in _above(root, [entry.path for entry in entries if entry.is_users]):
        if status.st_mode & _ALL_ENTER != _ALL_ENTER:
            what = f"is closed to users (mode {stat.S_IMODE(status.st_mode):04o}), so every task fails"
            yield Finding(place, what, f"chmod a+x {place}")


def _parents(root: str, entries: Iterable[Entry]) -> Iterator[Finding]:
    """Look at all directories above the files: who can write one of them can put another file there."""
    for place, status in _above(root, [entry.path for entry in entries]):
        if status.st_mode & files.OTHERS_WRITE:
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
            yield place, os.stat(files.at(root, place))
        except FileNotFoundError:
            continue


def site_key(root: str, path: str) -> Iterator[Finding]:
    """Find what keeps the site's key from being used. Raises PlaceError."""
    its = files.below(root, path)
    try:
        found = os.lstat(its)
    except FileNotFoundError:
        yield Finding(path, "is missing, so jobs get no key", "putting it there, the same on all nodes (mingle key)")
        return
    except OSError as wrong:
        yield Finding(path, f"cannot be looked at: {wrong.strerror}", "running it as root")
        return
    private = stat.S_IMODE(found.st_mode) in {0o400, 0o600} and found.st_uid == files.owner()
    if not stat.S_ISREG(found.st_mode) or not private:
        yield Finding(path, "is not a regular file of root's with mode 0400", f"chown 0 {path}; chmod 0400 {path}")
        return
    now = files.look(its)
    key = now.data.removesuffix(b"\n") if now else b""
    if len(key) not in _KEY_DIGITS or key.strip(b"0123456789abcdef"):
        yield Finding(path, "does not hold 64 to 128 lower-case hex digits", f"mingle key > {path}")


def _state(root: str) -> Iterator[Finding]:
    path = files.below(root, RUN_ROOT)
    if os.path.lexists(path):
        found = os.lstat(path)
        if (found.st_uid, found.st_mode) != (files.owner(), stat.S_IFDIR | 0o755):
            mend = f"rm -r {RUN_ROOT}; the next Prolog makes it"
            yield Finding(RUN_ROOT, "is not a directory of root's with mode 0755", mend)
