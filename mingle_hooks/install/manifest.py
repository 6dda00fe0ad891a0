"""What was installed, so that it can be checked and taken away: one JSON file beside the hooks."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from mingle_hooks.errors import FactsError

if TYPE_CHECKING:
    from collections.abc import Mapping

DIRECTORY = "/etc/mingle/hooks"
PATH = f"{DIRECTORY}/manifest.json"
# Copies of the site's files that an installed one stands in for. Outside of every directory that a scheduler runs.
KEPT = f"{DIRECTORY}/kept"
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Entry:
    """One installed file. `kept` is the copy of what stood at the path before; `chain` what the hook calls."""

    scheduler: str
    name: str
    path: str  # without the root that it was installed below
    sha256: str
    mode: int
    chain: str = ""
    kept: str = ""
    kept_mode: int = 0


@dataclass(frozen=True)
class Manifest:
    """The installed files by path."""

    entries: Mapping[str, Entry] = field(default_factory=dict)

    def of(self, scheduler: str) -> tuple[Entry, ...]:
        """Return one scheduler's files."""
        return tuple(entry for entry in self.entries.values() if entry.scheduler == scheduler)

    def text(self) -> str:
        """Return the file's text, the same for the same entries."""
        files = [asdict(entry) for _, entry in sorted(self.entries.items())]
        return json.dumps({"version": 1, "files": files}, indent=1) + "\n"


def read(root: str) -> Manifest:
    """Return the manifest below root, an empty one where there is none. Raises FactsError."""
    try:
        with open(root + PATH, encoding="utf-8") as file:
            text = file.read(_MOST_BYTES)
    except FileNotFoundError:
        return Manifest()
    except OSError as wrong:
        raise FactsError("a readable manifest", f"{root}{PATH}: {wrong.strerror}", "running it as root") from None
    try:
        tree: dict[str, Any] = json.loads(text)
        entries = [Entry(**file) for file in tree["files"]]
    except (ValueError, TypeError, KeyError) as wrong:
        raise FactsError(
            "a manifest that mingle hooks wrote", f"{root}{PATH}: {wrong!r}", "mingle hooks install once more"
        ) from None
    for entry in entries:
        if not os.path.isabs(entry.path) or entry.path != os.path.normpath(entry.path):
            raise FactsError("whole paths in the manifest", f"{entry.path} ({root}{PATH})", "removing that entry")
    return Manifest({entry.path: entry for entry in entries})
