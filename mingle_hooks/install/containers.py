"""Sites with pyxis: Slurm runs TaskProlog inside the container there, which has none of the host's files of itself."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.errors import FactsError
from mingle_hooks.install import files, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mingle_hooks.install.hook import Where
    from mingle_hooks.install.site import Site
    from mingle_hooks.install.slurmconf import SlurmConf

# Where packages have enroot's configuration, and where its own Makefile puts it.
_ENROOT = ("/etc/enroot", "/usr/local/etc/enroot")
_PYXIS = "spank_pyxis"
# From here slurmstepd runs itself to run TaskProlog, and is loaded with the container's libraries (pyxis #163).
_NEEDS_LIBRARIES = (24, 11)
_MOST_BYTES = 1 << 20
_DEEPEST = 4  # plugstack.conf files that include others
_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*", re.IGNORECASE)


class Containers(NamedTuple):
    """What is done for containers: mount, hook, none, or nothing; and where enroot's configuration is."""

    way: str = ""
    enroot: str = ""

    @property
    def has_task_prolog(self) -> bool:
        """Tell whether slurm.conf may name a TaskProlog of ours."""
        return self.way in {"", "mount"}


def containers(site: Site, where: Where, conf: SlurmConf) -> Containers:
    """Return what is done for containers on this host.

    Raises FactsError where every task in a container would fail, and where there is no enroot for what is wanted.
    """
    enroot = next((place for place in _ENROOT if os.path.isdir(files.at(where.root, place))), "")
    way = site.containers
    if way != "auto":
        if way in {"mount", "hook"} and not enroot and not where.is_shown:
            raise FactsError(f"enroot's {_ENROOT[0]}", "none", 'containers = "none" in [hooks]')
        return Containers(way, enroot)
    if not _has_pyxis(where.root, conf):
        return Containers("mount" if enroot else "", enroot)
    version = running.version(where)
    if enroot and version is not None and version < _NEEDS_LIBRARIES:
        return Containers("mount", enroot)
    if where.is_shown:
        return Containers()
    raise FactsError(
        "a TaskProlog that runs in pyxis' containers",
        _why(version) if enroot else f"no {_ENROOT[0]}, which would mount its file there",
        'containers = "hook" in [hooks] (enroot\'s hook sets the variables, no TaskProlog does), or "none", or "mount"'
        " where every image has what slurmstepd needs",
    )


def _why(version: tuple[int, int] | None) -> str:
    if version is None:
        return "an unknown version of Slurm (--slurm-version)"
    shown = "{}.{:02}".format(*version)
    return f"Slurm {shown}, whose slurmstepd needs its own libraries there (24.11 and later)"


def _has_pyxis(root: str, conf: SlurmConf) -> bool:
    """Tell whether Slurm's plugstack.conf names pyxis."""
    place = conf.one("PlugStackConfig") or f"{os.path.dirname(conf.path) or '/etc/slurm'}/plugstack.conf"
    return any(_PYXIS in line.partition("#")[0] for line in _lines(root, place, 0))


def _lines(root: str, path: str, depth: int) -> Iterator[str]:
    try:
        with open(files.at(root, path), encoding="utf-8", errors="replace") as file:
            lines = file.read(_MOST_BYTES).splitlines()
    except OSError:
        return
    for line in lines:
        match = _INCLUDE.fullmatch(line)
        if match is None:
            yield line
        elif depth < _DEEPEST:
            for found in files.matches(root, os.path.join(os.path.dirname(path), match[1])):
                yield from _lines(root, found, depth + 1)
