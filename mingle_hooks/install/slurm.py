"""Slurm's hooks, where they go, and the lines of slurm.conf that name them."""

from __future__ import annotations

import fnmatch
import os
import re
from typing import TYPE_CHECKING

from mingle_hooks.errors import FactsError, UsageError
from mingle_hooks.install import manifest, slurmcheck, slurmconf
from mingle_hooks.install.hook import Hook, Target, named
from mingle_hooks.install.plan import File, Line, Plan, planned, together
from mingle_hooks.install.text import Chain, render

if TYPE_CHECKING:
    from mingle_hooks.install.hook import Where
    from mingle_hooks.install.manifest import Manifest
    from mingle_hooks.install.site import Site
    from mingle_hooks.install.slurmconf import SlurmConf

HOOKS = (
    Hook("slurm", "prolog", "slurm/prolog.sh.j2", "every node, root, before a job's first task there"),
    Hook("slurm", "epilog", "slurm/epilog.sh.j2", "every node, root, when a job ends", after="prolog"),
    Hook("slurm", "taskprolog", "slurm/taskprolog.sh.j2", "every task, the job's user, before it", is_users=True),
    Hook(
        "slurm", "taskprolog-all", "slurm/taskprolog-all.sh.j2", "runs taskprolog, then the site's own", is_users=True
    ),
)
DIRECTORY = f"{manifest.DIRECTORY}/slurm"
OLDEST = (22, 5)
# Programs of the site's own that run beside mingle's TaskProlog, where there is such a directory.
TASK_PROLOGS = "/etc/slurm/task_prolog.d"
# In a globbed directory: after the site's own, as Slurm takes the names in reverse order.
_IN_GLOB = ("10-mingle", "10-mingle.sh", "mingle", "mingle.sh")


def plan(site: Site, where: Where) -> Plan:
    """Return what to write below the root and what slurm.conf should say.

    The hooks are the same for every version from 22.05 on. Raises FactsError, PlaceError, and
    UsageError for an older one.
    """
    root, version = where.root, where.slurm_version
    if version is not None and version < OLDEST:
        raise UsageError("Slurm 22.05 or later", ".".join(map(str, version)), "mingle env in the job scripts")
    old = manifest.read(root)
    conf = slurmconf.find(root, where.slurm_conf) or slurmconf.SlurmConf(slurmconf.PLACES[0])
    files: list[File] = []
    lines: list[Line] = []
    for key, name in (("Prolog", "prolog"), ("Epilog", "epilog")):
        file, line = _root_hook(site, root, conf, old, key, name)
        files.append(file)
        lines.append(line)
    task_files, line = _task_hooks(site, root, conf, old)
    files += task_files
    lines += [line, _flags(conf)]
    return together("slurm", root, old, tuple(files), conf.path, tuple(lines), _notes(site, root))


def _root_hook(site: Site, root: str, conf: SlurmConf, old: Manifest, key: str, name: str) -> tuple[File, Line]:
    found, path = named(HOOKS, name), f"{DIRECTORY}/{name}"
    others = [value for value in conf.all(key) if value != path]
    if len(others) > 1:
        remedy = f"one line {key}=, with a glob such as /etc/slurm/{name}.d/* for several programs"
        raise FactsError(f"at most one {key} line in {conf.path}", ", ".join(others), remedy)
    if others and re.search(r"[*?[]", others[0]):
        text = render(found, site)
        return planned(root, old, found, _place_in(others[0]), text), Line(f"{key}={others[0]}", is_there=True)
    chain = _absolute(key, others[0]) if others else ""
    if not others and conf.all(key) and path in old.entries:
        chain = old.entries[path].chain
    file = planned(root, old, found, path, render(found, site, Chain(chain)), chain=chain)
    return file, Line(f"{key}={path}", is_there=conf.one(key) == path and not others)


def _place_in(glob: str) -> str:
    """Return a path that a glob of slurm.conf matches."""
    directory, pattern = os.path.split(glob)
    for name in _IN_GLOB:
        if fnmatch.fnmatchcase(name, pattern) and not re.search(r"[*?[]", directory):
            return f"{directory}/{name}"
    raise FactsError(f"a glob that matches one of {', '.join(_IN_GLOB)}", glob, "a glob such as /etc/slurm/prolog.d/*")


def _absolute(key: str, path: str) -> str:
    if not re.fullmatch(r"/[A-Za-z0-9_./+@-]+", path):
        raise FactsError("an absolute, plain path", f"{key}={path}", f"the whole path in {key}=")
    return path


def _task_hooks(site: Site, root: str, conf: SlurmConf, old: Manifest) -> tuple[list[File], Line]:
    """Return the TaskProlog, and where the site has its own the wrapper that runs both."""
    single, both = named(HOOKS, "taskprolog"), named(HOOKS, "taskprolog-all")
    files = [planned(root, old, single, f"{DIRECTORY}/{single.name}", render(single, site))]
    now, path = conf.one("TaskProlog"), f"{DIRECTORY}/{both.name}"
    chain = now if now not in {"", path, files[0].entry.path} else ""
    if now == path and path in old.entries:
        chain = old.entries[path].chain
    directory = TASK_PROLOGS if os.path.isdir(root + TASK_PROLOGS) else ""
    if not chain and not directory:
        return files, Line(f"TaskProlog={files[0].entry.path}", is_there=now == files[0].entry.path)
    text = render(both, site, Chain(_absolute("TaskProlog", chain) if chain else "", directory))
    files.append(planned(root, old, both, path, text, chain=chain))
    return files, Line(f"TaskProlog={path}", is_there=now == path)


def _flags(conf: SlurmConf) -> Line:
    """Return PrologFlags with Alloc: the key is then there on every node before the first step anywhere."""
    flags = [flag for flag in conf.one("PrologFlags").split(",") if flag]
    # X11 and Contain imply Alloc (slurm.conf(5)).
    is_there = bool({flag.lower() for flag in flags} & {"alloc", "contain", "x11"})
    return Line("PrologFlags=" + ",".join(flags if is_there else [*flags, "Alloc"]), is_there=is_there)


def _notes(site: Site, root: str) -> tuple[str, ...]:
    notes = []
    if not os.path.exists(root + site.key_file):
        notes.append(
            f"{site.key_file} is not there, so jobs get no key from the hooks. Make one (mingle key), "
            "the same on all nodes, root's, mode 0400."
        )
    if site.interfaces == () and site.host_suffix == "":
        notes.append("No iface and no host_suffix in the settings: MASTER_ADDR is the first host's Slurm name.")
    return tuple(notes)


TARGET = Target(
    HOOKS,
    plan,
    program="slurmd",
    version_option="-V",
    scripts=("prolog", "taskprolog", "epilog"),
    runs=slurmcheck.runs,
    findings=slurmcheck.findings,
    refuse=slurmcheck.refuse,
)
