"""Whose file stands where a hook is to be, and where a copy of it goes before the hook takes its place.

The site's own is kept for good: a hook may call it, and uninstalling puts it back. A hook of ours that somebody
changed is kept, too, but never called. No copy is ever written over another.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from mingle_hooks import values
from mingle_hooks.install import files, manifest
from mingle_hooks.install.made import digest, made

if TYPE_CHECKING:
    from collections.abc import Collection

    from mingle_hooks.install.files import Found
    from mingle_hooks.install.hook import Hook
    from mingle_hooks.install.manifest import Entry, Manifest

    Whose = Literal["nobody", "ours", "edited", "site"]

# Ends the name of the site's own file, in its own directory: pbs_mom runs none of that name, and a script that looks
# for others beside itself (`dirname "$0"`) finds them.
SUFFIX = ".before-mingle"
_SUFFIXES = re.compile(re.escape(SUFFIX) + r"(\.[0-9]+)?$")


class Copy(NamedTuple):
    """A file to be written before a hook takes the original's place."""

    path: str
    found: Found


class Standing(NamedTuple):
    """What stands at a hook's path: `kept` is where the site's own is, or will be; `copy` is still to be made."""

    now: Found | None
    whose: Whose
    kept: str = ""
    kept_sha256: str = ""
    copy: Copy | None = None


def stands(root: str, old: Manifest, hook: Hook, path: str, classic: Collection[str] = ()) -> Standing:
    """Look at a hook's path.

    `classic` are the names of all scripts in its directory that the scheduler runs, where it runs no others there.
    The site's own is then kept beside the hook, and may be a link. Raises PlaceError.
    """
    now, entry = files.look(files.below(root, path), links=bool(classic)), old.entries.get(path)
    base = f"{path}{SUFFIX}" if classic else f"{manifest.KEPT}/{hook.scheduler}-{hook.name}"
    whose, copies = _whose(now, path, entry), _copies(root, base)
    if now is not None and whose == "site":
        return _kept(root, base, now, _as_kept(root, old, hook, path, now, classic), whose)
    kept = entry.kept if entry and entry.kept else "".join([*copies.values()][-1:])
    there = files.look(files.below(root, kept), links=True) if kept else None
    known = entry.kept_sha256 if entry else ""
    copy = None
    if now is not None and whose == "edited":
        mine = now._replace(mode=0o600, uid=files.owner(), gid=-1)
        copy = _kept(root, f"{manifest.KEPT}/{hook.scheduler}-{hook.name}.edited", now, mine, whose).copy
    return Standing(now, whose, kept, digest(there.data) if there else known, copy)


def _whose(now: Found | None, path: str, entry: Entry | None) -> Whose:
    if now is None:
        return "nobody"
    if not now.is_link and entry and digest(now.data) == entry.sha256:
        return "ours"
    said = None if now.is_link else made(now.data)
    if said is not None and said.is_whole:
        return "ours"
    return "edited" if said is not None or path.startswith(f"{manifest.DIRECTORY}/") else "site"


def is_ours(now: Found, entry: Entry) -> bool:
    """Tell whether an installed file is as mingle made it, at this installation or at another."""
    return _whose(now, entry.path, entry) == "ours"


def _copies(root: str, base: str) -> dict[int, str]:
    """Return the copies of one file that are there by their numbers, the oldest first: X, X.2, X.3."""
    place, name = os.path.split(base)
    directory = files.at(root, place)
    found = {1: base} if os.path.lexists(f"{directory}/{name}") else {}
    for other in os.listdir(directory) if os.path.isdir(directory) else ():
        end = other.removeprefix(f"{name}.")
        if end != other and (number := values.number(end, least=2, most=10**6)) is not None:
            found[number] = f"{place}/{other}"
    return dict(sorted(found.items()))


def _kept(root: str, base: str, now: Found, copy: Found, whose: Whose) -> Standing:
    """Return where a copy is, or the first name that is free."""
    copies = _copies(root, base)
    for path in copies.values():
        there = files.look(files.below(root, path), links=True)
        if there is not None and (there.data, there.is_link, there.mode) == (copy.data, copy.is_link, copy.mode):
            return Standing(now, whose, path, digest(copy.data))
    path = f"{base}.{max(copies) + 1}" if copies else base
    return Standing(now, whose, path, digest(copy.data), Copy(path, copy))


def _as_kept(root: str, old: Manifest, hook: Hook, path: str, now: Found, classic: Collection[str]) -> Found:
    """Return what is kept of the site's own: a link to another classic script leads to that one's copy.

    It would lead to our hook otherwise, as for Torque's prologue.parallel, which often is a link to prologue.
    Raises PlaceError for links that lead in a circle.
    """
    if not now.is_link:
        return now
    place, target = os.path.dirname(path), os.fsdecode(now.data)
    other = os.path.join(place, target)
    files.at(root, other)
    is_beside = os.path.dirname(files.below(root, other)) == os.path.dirname(files.below(root, path))
    name = os.path.basename(other)
    if not is_beside or name not in classic:
        return now
    kept = stands(root, old, hook, f"{place}/{name}", classic).kept or name + SUFFIX
    return now._replace(data=os.fsencode(os.path.join(os.path.dirname(target), os.path.basename(kept))))


def as_was(kept: Found) -> Found:
    """Return what _as_kept() made the copy of."""
    return kept._replace(data=os.fsencode(_SUFFIXES.sub("", os.fsdecode(kept.data)))) if kept.is_link else kept
