"""What was installed, so that it can be checked and taken away: one JSON file beside the hooks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks import jsontext
from mingle_hooks.install import files
from mingle_hooks.install.made import digest, made

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DIRECTORY = "/etc/mingle/hooks"
PATH = f"{DIRECTORY}/manifest.json"
# Copies of what stood where an installed file stands now. Outside of every directory that a scheduler runs.
KEPT = f"{DIRECTORY}/kept"


class Entry(NamedTuple):
    """One installed file. `kept` is the copy of what stood at the path before; `chain` what the hook calls."""

    scheduler: str
    name: str
    path: str  # without the root that it was installed below
    sha256: str  # empty where nobody knows any more what was installed
    mode: int
    chain: str = ""
    kept: str = ""
    kept_sha256: str = ""
    is_users: bool = False  # the job's user runs it


class Manifest(NamedTuple):
    """The installed files by path."""

    entries: Mapping[str, Entry] = {}
    is_rebuilt: bool = False  # from the hooks themselves, as the file is lost or makes no sense

    def of(self, scheduler: str) -> tuple[Entry, ...]:
        """Return one scheduler's files."""
        return tuple(entry for entry in self.entries.values() if entry.scheduler == scheduler)

    def text(self) -> str:
        """Return the file's text, the same for the same entries."""
        rows = [jsontext.dumps(entry._asdict()) for _, entry in sorted(self.entries.items())]
        return '{"version": 1, "files": [\n' + ",\n".join(rows) + "\n]}\n"


def read(root: str) -> Manifest:
    """Return the manifest below root; where it is lost or makes no sense, what the hooks there say of themselves.

    Raises PlaceError where it cannot be read.
    """
    found = files.look(files.below(root, PATH))
    entries = _parsed(found.data) if found else None
    if entries is not None:
        return Manifest({entry.path: entry for entry in entries})
    rebuilt = {entry.path: entry for entry in _hooks(root)}
    return Manifest(rebuilt, is_rebuilt=found is not None or bool(rebuilt))


def _parsed(data: bytes) -> list[Entry] | None:
    """Return the entries; names that a newer version may have added are left out. None for what makes no sense."""
    try:
        rows = jsontext.loads(data)["files"]
        entries = [Entry(**{name: row[name] for name in Entry._fields if name in row}) for row in rows]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return entries if all(_is_sound(entry) for entry in entries) else None


def _is_sound(entry: Entry) -> bool:
    """Tell whether all is of its kind, and each path is a whole one: what they name is what uninstalling removes."""
    paths = [entry.path, *([entry.kept] if entry.kept else [])]
    texts = entry.scheduler, entry.name, entry.sha256, entry.chain, entry.kept_sha256, *paths
    return (
        all(isinstance(text, str) for text in texts)
        and isinstance(entry.mode, int)
        and all(os.path.isabs(path) and path == os.path.normpath(path) for path in paths)
    )


def _hooks(root: str) -> Iterator[Entry]:
    """Yield an entry for each hook in our own directories; others are found where they would be installed."""
    place = files.at(root, DIRECTORY)
    for name in sorted(os.listdir(place)) if os.path.isdir(place) else ():
        directory = f"{place}/{name}"
        for file in sorted(os.listdir(directory)) if os.path.isdir(directory) and not os.path.islink(directory) else ():
            its = files.look(f"{directory}/{file}", links=True)
            said = made(its.data) if its is not None else None
            if its is not None and said is not None and said.scheduler == name:
                sha256 = digest(its.data) if said.is_whole else ""
                yield Entry(name, said.name, f"{DIRECTORY}/{name}/{file}", sha256, its.mode, said.chain)
