"""What installing would do: files to write, and lines for the admin to put into the scheduler's own files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.install import files, manifest
from mingle_hooks.install.keeping import Standing, stands
from mingle_hooks.install.made import digest
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
    """One file to be installed, and what stands there now."""

    entry: Entry
    text: str
    standing: Standing
    is_right: bool = False  # content, owner and mode are as they shall be

    @property
    def what(self) -> Literal["keep", "create", "replace"]:
        """Say in a word what will happen to it."""
        if self.is_right:
            return "keep"
        return "create" if self.standing.now is None else "replace"

    @property
    def before(self) -> str:
        """Return the text that stands there now, for people; an empty one where there is none."""
        now = self.standing.now
        return "" if now is None else now.data.decode(errors="backslashreplace")


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


def planned(
    root: str,
    old: Manifest,
    hook: Hook,
    path: str,
    text: str,
    *,
    mode: int = 0o755,
    chain: str = "",
    standing: Standing | None = None,
) -> File:
    """Return a file to install, with what stands at its path now; a file that is not ours will be kept.

    Raises PlaceError.
    """
    its, data = standing or stands(root, old, hook, path), text.encode()
    entry = Entry(hook.scheduler, hook.name, path, digest(data), mode, chain, its.kept, its.kept_sha256, hook.is_users)
    now = its.now
    if now is not None and not now.is_link and now.data == data:  # nothing is lost
        its = its._replace(whose="ours", copy=None)
    is_right = now is not None and its.whose == "ours" and (now.data, now.mode, now.uid) == (data, mode, files.owner())
    return File(entry, text, its, is_right)


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
