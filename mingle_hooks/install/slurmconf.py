"""The lines of slurm.conf that concern hooks: read, never written."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mingle_hooks.errors import FactsError
from mingle_hooks.install import files, slurmd

if TYPE_CHECKING:
    from collections.abc import Mapping

# Where packages, sites that build it themselves, old Debian, and slurmd of a configless site have it.
CONFIGLESS = "/run/slurm/conf/slurm.conf"
PLACES = ("/etc/slurm/slurm.conf", "/usr/local/etc/slurm.conf", "/etc/slurm-llnl/slurm.conf", CONFIGLESS)
_MOST_BYTES = 16 << 20  # a file of 10,000 node lines is 1 MB
_DEEPEST = 8  # files that include files
_LINE = re.compile(r"\s*(Include\s+|(?P<key>[A-Za-z]+)\s*=\s*)(?P<value>.*?)\s*", re.IGNORECASE)
_CLUSTER = "clustername"


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
    """Read slurm.conf at `path`, or where Slurm looks for it, below root. None where there is none at all.

    Raises FactsError where it cannot be read.
    """
    named = path or _named(root)
    for place in (named,) if named else _places(root):
        if named or os.path.exists(files.at(root, place)):
            values: dict[str, list[str]] = {}
            _read(root, place, values, 0)
            return SlurmConf(place, {key: tuple(found) for key, found in values.items()})
    return None


def _named(root: str) -> str:
    """Return the file that slurmd, or SLURM_CONF on this host, names; empty where none does."""
    of_this_host = "" if root else os.environ.get("SLURM_CONF", "")
    return of_this_host or slurmd.option(root, "-f")


def _places(root: str) -> tuple[str, ...]:
    """Return where to look; slurmd with --conf-server reads no file of the node's own."""
    return (CONFIGLESS,) if slurmd.option(root, "--conf-server") else PLACES


def _read(root: str, path: str, values: dict[str, list[str]], depth: int) -> None:
    """Add what a file says, and what the files say that it includes."""
    try:
        with open(files.at(root, path), encoding="utf-8", errors="replace") as file:
            text = file.read(_MOST_BYTES)
    except OSError as wrong:
        raise FactsError("a readable slurm.conf", f"{root}{path}: {wrong.strerror}", "--slurm-conf PATH") from None
    for line in text.replace("\\\n", " ").splitlines():
        match = _LINE.fullmatch(re.sub(r"(?<!\\)#.*", "", line))
        if match is None:
            continue
        if match["key"] is not None:
            values.setdefault(match["key"].lower(), []).append(match["value"].strip("\"'"))
        elif depth < _DEEPEST and "*" not in match["value"]:
            _read(root, os.path.join(os.path.dirname(path), _filled(match["value"], path, values)), values, depth + 1)


def _filled(name: str, path: str, values: Mapping[str, list[str]]) -> str:
    """Return an included file's name with %c, the cluster's name, filled in: all that slurm.conf(5) knows of %."""
    if "%" not in name:
        return name
    cluster = "".join(values.get(_CLUSTER, ())[-1:])
    if not cluster or "%" in name.replace("%c", ""):
        raise FactsError("%c, below the line ClusterName=", f"Include {name} in {path}", "--slurm-conf PATH")
    return name.replace("%c", cluster)
