"""The site's own programs that ours call: which they are, and whether they can be run."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.errors import FactsError
from mingle_hooks.install import files
from mingle_hooks.install.health import Finding
from mingle_hooks.install.text import DROP_INS
from mingle_hooks.settings import SYSTEM_FILE
from mingle_hooks.values import NONE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mingle_hooks.install.hook import Where
    from mingle_hooks.install.manifest import Manifest
    from mingle_hooks.install.site import Site
    from mingle_hooks.install.slurmconf import SlurmConf

# slurm.conf's keys, and the names that these hooks have in the settings.
KEYS = {"Prolog": "prolog", "Epilog": "epilog", "TaskProlog": "taskprolog"}


class Own(NamedTuple):
    """The site's own program for one key, empty for none; `line` is what the settings should say and do not."""

    program: str
    line: str = ""


def own(site: Site, where: Where, conf: SlurmConf | None, old: Manifest, key: str, ours: tuple[str, ...]) -> Own:
    """Return the site's own program for a key, where `ours` are the paths of ours, first the one that may call it.

    The settings say it, the same on every node; else slurm.conf, while it names the site's; else what was installed
    here before. Raises FactsError where none of these can tell, and where two contradict each other.
    """
    name = KEYS[key]
    said = site.chain(name)
    named = conf.one(key) if conf else ""
    theirs = "" if named in ours or files.is_glob(named) else named
    if said is not None:
        program = "" if said == NONE else said
        if theirs and theirs != program:
            raise FactsError(
                f"one {key} of the site's own in {SYSTEM_FILE} and {conf.path if conf else ''}",
                f"{name} = {said} and {key}={theirs}",
                f'{name} = "{theirs}" in [hooks], or another {key} in slurm.conf',
            )
        return Own(_not_ours(key, program, ours))
    if theirs:
        return Own(_not_ours(key, _absolute(key, theirs), ours), f'{name} = "{theirs}"')
    known = [old.entries[path].chain for path in ours if path in old.entries]
    if not known and (conf is None or named == ours[0]) and not where.is_shown:
        raise FactsError(
            f"the site's own {key}, which mingle's calls at its end",
            f"{key}={named}, and no setting in {SYSTEM_FILE}" if conf else "neither slurm.conf nor a controller",
            f'{name} = "/the/path", or {name} = "none", in [hooks] of {SYSTEM_FILE}, the same on every node',
        )
    program = "".join(known[:1])
    return Own(program, f'{name} = "{program or NONE}"')


def _not_ours(key: str, program: str, ours: tuple[str, ...]) -> str:
    if program in ours:
        raise FactsError(f"a {key} of the site's own", f"mingle's, {program}", f'{KEYS[key]} = "none" in [hooks]')
    return program


def _absolute(key: str, path: str) -> str:
    if not re.fullmatch(r"/[A-Za-z0-9_./+@-]+", path):
        raise FactsError("an absolute, plain path", f"{key}={path}", f"the whole path in {key}=")
    return path


def findings(root: str, chains: Mapping[str, str]) -> Iterator[Finding]:
    """Find what of the site's own cannot be run: as without ours, Slurm then drains the node or fails every task.

    `chains` has the program for each name in KEYS that has one.
    """
    for name in KEYS.values():
        bit = stat.S_IXOTH if name == "taskprolog" else stat.S_IXUSR
        if program := chains.get(name):
            yield from _program(root, program, bit, f"another {name} in [hooks] of {SYSTEM_FILE}")
        place = f"{DROP_INS}/{name}.d"
        its = files.at(root, place)
        if not os.path.isdir(its):
            continue
        if os.stat(its).st_mode & files.OTHERS_WRITE:
            yield Finding(place, "can be written by others", f"chmod go-w {place}")
        for entry in sorted(os.listdir(its)):
            if not entry.startswith("."):  # as a shell's *
                yield from _program(root, f"{place}/{entry}", bit, f"moving it out of {place}")


def _program(root: str, path: str, bit: int, mend: str) -> Iterator[Finding]:
    what = "cannot be run, which " + ("fails every task" if bit == stat.S_IXOTH else "drains the node")
    try:
        found = os.stat(files.at(root, path))
    except OSError as wrong:
        yield Finding(path, f"{what}: {wrong.strerror}", f"putting it there, or {mend}")
        return
    if not stat.S_ISREG(found.st_mode) or not found.st_mode & bit:
        yield Finding(path, what, f"chmod a+rx {path}, or {mend}")
    elif found.st_mode & files.OTHERS_WRITE or found.st_uid not in {0, files.owner()}:
        yield Finding(path, "can be changed by others than root", f"chown 0 {path}; chmod go-w {path}")
