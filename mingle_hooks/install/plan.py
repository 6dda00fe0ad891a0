"""What installing would do: files to write, and lines for the admin to put into the scheduler's own files."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.install import files, manifest
from mingle_hooks.install.manifest import Entry, Manifest

if TYPE_CHECKING:
    from typing import Literal

    from mingle_hooks.install.hook import Hook


class Line(NamedTuple):
    """A line for the scheduler's own configuration, or a command to run there."""

    text: str
    is_there: bool = False


@dataclass(frozen=True)
class File:
    """One file to be installed. `before` is the text that stands there now, None where nothing does."""

    entry: Entry
    text: str
    before: str | None = None
    is_right: bool = False  # text, owner and mode are as they shall be

    @property
    def what(self) -> Literal["keep", "create", "replace"]:
        """Say in a word what will happen to it."""
        if self.is_right:
            return "keep"
        return "create" if self.before is None else "replace"


@dataclass(frozen=True)
class Plan:
    """All of it. Carrying it out twice is the same as once."""

    scheduler: str
    root: str
    files: tuple[File, ...]
    manifest: Manifest  # as it will be
    where: str  # what the lines are for
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Tell whether there is anything to write. Raises FactsError."""
        return not all(file.is_right for file in self.files) or self.manifest != manifest.read(self.root)


def planned(root: str, old: Manifest, hook: Hook, path: str, text: str, *, mode: int = 0o755, chain: str = "") -> File:
    """Return a file to install, with what stands at its path now; a file that is not ours will be kept.

    Raises PlaceError.
    """
    now = files.look(root + path)
    entry = Entry(hook.scheduler, hook.name, path, digest(text), mode, chain)
    if path in old.entries:
        before = old.entries[path]
        entry = replace(entry, kept=before.kept, kept_mode=before.kept_mode)
    elif now is not None:
        entry = replace(entry, kept=f"{manifest.KEPT}/{hook.scheduler}-{os.path.basename(path)}", kept_mode=now.mode)
    is_right = now is not None and (now.text, now.mode, now.uid) == (text, mode, files.owner())
    return File(entry, text, None if now is None else now.text, is_right)


def together(
    scheduler: str,
    root: str,
    old: Manifest,
    found: tuple[File, ...],
    where: str,
    lines: tuple[Line, ...],
    notes: tuple[str, ...] = (),
) -> Plan:
    """Return the plan, with a manifest in which this scheduler has these files and no others."""
    entries = {path: entry for path, entry in old.entries.items() if entry.scheduler != scheduler}
    entries |= {file.entry.path: file.entry for file in found}
    return Plan(scheduler, root, found, Manifest(entries), where, lines, notes)


def digest(text: str) -> str:
    """Return the checksum that the manifest holds."""
    return hashlib.sha256(text.encode()).hexdigest()
