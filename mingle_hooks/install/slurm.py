"""Slurm's hooks, where they go, and the lines of slurm.conf that name them."""

from __future__ import annotations

import fnmatch
import os
from typing import TYPE_CHECKING

from mingle_hooks.errors import FactsError, UsageError
from mingle_hooks.install import chain, manifest, running, slurmcheck
from mingle_hooks.install.containers import containers
from mingle_hooks.install.files import at, is_glob
from mingle_hooks.install.hook import Hook, Target, named
from mingle_hooks.install.plan import File, Line, Plan, planned, together
from mingle_hooks.install.slurmconf import PLACES, SlurmConf
from mingle_hooks.install.text import DROP_INS, Chain, render
from mingle_hooks.settings import SYSTEM_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mingle_hooks.install.containers import Containers
    from mingle_hooks.install.hook import Where
    from mingle_hooks.install.manifest import Manifest
    from mingle_hooks.install.site import Site

HOOKS = (
    Hook("slurm", "prolog", "slurm/prolog.sh.j2", "every node, root, before a job's first task there"),
    Hook("slurm", "epilog", "slurm/epilog.sh.j2", "every node, root, when a job ends", after="prolog"),
    Hook("slurm", "taskprolog", "slurm/taskprolog.sh.j2", "every task, the job's user, before it", is_users=True),
    Hook(
        "slurm", "taskprolog-all", "slurm/taskprolog-all.sh.j2", "runs taskprolog, then the site's own", is_users=True
    ),
    Hook("slurm", "enroot-mounts", "slurm/enroot-mounts.fstab.j2", "enroot, for every container"),
    Hook("slurm", "enroot-hook", "slurm/enroot-hook.sh.j2", "enroot, the job's user, before a container"),
)
DIRECTORY = f"{manifest.DIRECTORY}/slurm"
OLDEST = (22, 5)
NO_CONF = SlurmConf(PLACES[0])
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
    conf = running.known(where)
    found: list[File] = []
    lines: list[Line] = []
    more: list[str] = []
    for key in ("Prolog", "Epilog"):
        file, line, missing = _root_hook(site, where, conf, old, key)
        found.append(file)
        lines.append(line)
        more.append(missing)
    its = containers(site, where, conf or NO_CONF)
    task_files, line, missing = _task_hooks(site, where, conf, old)
    notes = (*_notes(site, root), *_to_settle([*more, missing]))
    lines += [*([line] if its.has_task_prolog else []), _flags(conf or NO_CONF)]
    files = (*found, *task_files, *_container_files(site, root, old, its))
    return together("slurm", root, old, files, (conf or NO_CONF).path, tuple(lines), notes)


def _container_files(site: Site, root: str, old: Manifest, its: Containers) -> Iterator[File]:
    if its.way == "mount":
        found = named(HOOKS, "enroot-mounts")
        yield planned(root, old, found, f"{its.enroot}/mounts.d/50-mingle.fstab", render(found, site), mode=0o644)
    elif its.way == "hook":
        found = named(HOOKS, "enroot-hook")
        yield planned(root, old, found, f"{its.enroot}/hooks.d/50-mingle.sh", render(found, site))


def _to_settle(lines: list[str]) -> Iterator[str]:
    """Tell what the settings should say before slurm.conf names the files, as a new node has nothing else to go by."""
    for line in filter(None, lines):
        yield f"a node that is new or reimaged cannot know this: add to [hooks] of {SYSTEM_FILE}, on every node: {line}"


def _root_hook(site: Site, where: Where, conf: SlurmConf | None, old: Manifest, key: str) -> tuple[File, Line, str]:
    """Return the file, its line of slurm.conf, and what the settings should say."""
    name, root = chain.KEYS[key], where.root
    found, path = named(HOOKS, name), f"{DIRECTORY}/{name}"
    values = conf.all(key) if conf else ()
    others = [value for value in values if value != path]
    if len(others) > 1:
        remedy = f"one line {key}=, with a glob such as /etc/slurm/{name}.d/* for several programs"
        raise FactsError(f"at most one {key} line in {conf.path if conf else ''}", ", ".join(others), remedy)
    own = chain.own(site, where, conf, old, key, (path,))
    if others and is_glob(others[0]):
        text = render(found, site, Chain(own.program))
        place = _place_in(others[0])
        return planned(root, old, found, place, text, chain=own.program), Line(f"{key}={others[0]}", is_there=True), ""
    file = planned(root, old, found, path, render(found, site, Chain(own.program)), chain=own.program)
    return file, Line(f"{key}={path}", is_there=path in values[-1:] and not others), own.line


def _place_in(glob: str) -> str:
    """Return a path that a glob of slurm.conf matches."""
    directory, pattern = os.path.split(glob)
    for name in _IN_GLOB:
        if fnmatch.fnmatchcase(name, pattern) and not is_glob(directory):
            return f"{directory}/{name}"
    raise FactsError(f"a glob that matches one of {', '.join(_IN_GLOB)}", glob, "a glob such as /etc/slurm/prolog.d/*")


def _task_hooks(site: Site, where: Where, conf: SlurmConf | None, old: Manifest) -> tuple[tuple[File, ...], Line, str]:
    """Return the TaskProlog and the wrapper that runs the site's own after it, which is there on every node."""
    single, both = named(HOOKS, "taskprolog"), named(HOOKS, "taskprolog-all")
    alone, path = f"{DIRECTORY}/{single.name}", f"{DIRECTORY}/{both.name}"
    now = conf.one("TaskProlog") if conf else ""
    own = chain.own(site, where, conf, old, "TaskProlog", (path, alone))
    directory = slurmcheck.task_prologs(where.root)
    root, text = where.root, render(both, site, Chain(own.program, directory))
    files = (
        planned(root, old, single, alone, render(single, site)),
        planned(root, old, both, path, text, chain=own.program),
    )
    is_wrapped = own.program or directory or now == path or os.path.isdir(at(where.root, f"{DROP_INS}/{single.name}.d"))
    line = path if is_wrapped else alone
    return files, Line(f"TaskProlog={line}", is_there=now == line), own.line


def _flags(conf: SlurmConf) -> Line:
    """Return PrologFlags with Alloc: the key is then there on every node before the first step anywhere."""
    flags = [flag for flag in conf.one("PrologFlags").split(",") if flag]
    # X11 and Contain imply Alloc (slurm.conf(5)).
    is_there = bool({flag.lower() for flag in flags} & {"alloc", "contain", "x11"})
    return Line("PrologFlags=" + ",".join(flags if is_there else [*flags, "Alloc"]), is_there=is_there)


def _notes(site: Site, root: str) -> tuple[str, ...]:
    notes = []
    if not os.path.exists(at(root, site.key_file)):
        notes.append(
            f"{site.key_file} is missing, so jobs get no key from the hooks. Create it (mingle key): "
            "the same on all nodes, owned by root, mode 0400."
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
    stubs=slurmcheck.stubs,
)
