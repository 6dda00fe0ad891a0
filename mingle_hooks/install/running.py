"""What Slurm runs with at the moment, whatever the file says by now; asked by commands, never by hooks."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

from mingle_hooks.install import slurmconf
from mingle_hooks.install.slurmconf import SlurmConf

if TYPE_CHECKING:
    from mingle_hooks.install.hook import Where

_PATIENCE_S = 5.0
_PROGRAMS = "/usr/bin:/bin:/usr/sbin:/usr/local/bin:/usr/local/sbin:/opt/slurm/bin:/opt/slurm/sbin"
_LINE = re.compile(r"(?P<key>[A-Za-z_]+)(\[[0-9]+\])?\s*= ?(?P<value>.*)")
_VERSION = re.compile(r"slurm\S* ([0-9]{1,2})\.([0-9]{1,2})\b")


def config(where: Where) -> SlurmConf | None:
    """Return what the controller runs with; None below a root, and where no controller answers in time."""
    if where.root:
        return None
    text = _said(where.slurm_conf, "scontrol", "show", "config")
    return parsed(text) if text else None


def known(where: Where) -> SlurmConf | None:
    """Return what slurm.conf says, or where there is no such file what the controller runs with.

    Raises FactsError for a file that cannot be read.
    """
    return slurmconf.find(where.root, where.slurm_conf) or config(where)


def can_ask() -> bool:
    """Tell whether this host has what asks a controller."""
    return bool(_path("scontrol"))


def version(where: Where) -> tuple[int, int] | None:
    """Return Slurm's version: as it was told, or as this host's programs say below no root."""
    if where.slurm_version is not None or where.root:
        return where.slurm_version
    for program in ("slurmd", "scontrol"):
        if match := _VERSION.match(_said(where.slurm_conf, program, "-V")):
            return int(match[1]), int(match[2])
    return None


def nodes(where: Where) -> tuple[str, ...]:
    """Return the nodes that the controller knows; none where it does not answer."""
    said = "" if where.root else _said(where.slurm_conf, "sinfo", "--noheader", "--Node", "--format=%N")
    return tuple(sorted(set(said.split())))


def parsed(text: str) -> SlurmConf:
    """Return the answer to `scontrol show config`; later versions number the values of one key."""
    values: dict[str, list[str]] = {}
    for match in filter(None, map(_LINE.fullmatch, text.splitlines())):
        if match["value"].strip() not in {"", "(null)"}:
            values.setdefault(match["key"].lower(), []).append(match["value"].strip())
    return SlurmConf("what slurmctld runs with", {key: tuple(found) for key, found in values.items()})


@functools.cache  # a command asks once, however often its parts want to know
def _said(conf: str | None, program: str, *words: str) -> str:
    """Return what a program of Slurm's prints; nothing where it fails or takes too long."""
    path = _path(program)
    if not path:
        return ""
    environ = {**os.environ, **({"SLURM_CONF": conf} if conf else {})}
    try:
        done = subprocess.run(
            [path, *words], env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace")


def _path(program: str) -> str:
    return shutil.which(program) or shutil.which(program, path=_PROGRAMS) or ""
