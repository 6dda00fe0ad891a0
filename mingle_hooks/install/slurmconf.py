"""The lines of slurm.conf that concern hooks: read, never written."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mingle_hooks.errors import FactsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Where packages, sites that build it themselves, old Debian, and slurmd of a configless site have it.
PLACES = (
    "/etc/slurm/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/run/slurm/conf/slurm.conf",
)
_MOST_BYTES = 16 << 20  # a file of 10,000 node lines is 1 MB
_DEEPEST = 8  # files that include files
_LINE = re.compile(r"\s*(Include\s+|(?P<key>[A-Za-z]+)\s*=\s*)(?P<value>.*?)\s*", re.IGNORECASE)


@dataclass(frozen=True)
class SlurmConf:
    """Keys in lower case, each with all of its values in order."""

    path: str
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def all(self, key: str) -> tuple[str, ...]:
        """Return the values of a key, of which old versions of Slurm take the last only."""
        return self.values.get(key.lower(), ())

    def one(self, key: str) -> str:
        """Return the last value of a key, or an empty text."""
        return "".join(self.all(key)[-1:])


def find(root: str, path: str | None = None) -> SlurmConf | None:
    """Read slurm.conf at `path`, or where it usually is, below root. None where there is none at all.

    Raises FactsError where it cannot be read.
    """
    for place in (path,) if path else PLACES:
        if path or os.path.exists(root + place):
            values: dict[str, list[str]] = {}
            for key, value in _read(root, place, 0):
                values.setdefault(key.lower(), []).append(value)
            return SlurmConf(place, {key: tuple(found) for key, found in values.items()})
    return None


def _read(root: str, path: str, depth: int) -> Iterator[tuple[str, str]]:
    try:
        with open(root + path, encoding="utf-8", errors="replace") as file:
            text = file.read(_MOST_BYTES)
    except OSError as wrong:
        raise FactsError("a readable slurm.conf", f"{root}{path}: {wrong.strerror}", "--slurm-conf PATH") from None
    for line in text.replace("\\\n", " ").splitlines():
        match = _LINE.fullmatch(re.sub(r"(?<!\\)#.*", "", line))
        if match is None:
            continue
        if match["key"] is not None:
            yield match["key"], match["value"].strip("\"'")
        elif depth < _DEEPEST and "*" not in match["value"]:
            yield from _read(root, os.path.join(os.path.dirname(path), match["value"]), depth + 1)
