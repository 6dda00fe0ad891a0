"""What is asked of Slurm's hooks beyond their files: are they run, may they go, and how to try them out."""

from __future__ import annotations

import fnmatch
import os
from typing import TYPE_CHECKING

from mingle_hooks import shipped
from mingle_hooks.errors import ConflictError, FactsError
from mingle_hooks.install import chain, files, running, slurmconf
from mingle_hooks.install.health import Finding
from mingle_hooks.install.hook import EVIL
from mingle_hooks.install.site import Site
from mingle_hooks.install.targets import hook
from mingle_hooks.install.text import Chain, render
from mingle_hooks.values import number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mingle_hooks.install.hook import Run, Where
    from mingle_hooks.install.manifest import Entry
    from mingle_hooks.install.plan import Plan
    from mingle_hooks.install.slurmconf import SlurmConf

# Programs of the site's own that run beside mingle's TaskProlog, where there is such a directory.
TASK_PROLOGS = "/etc/slurm/task_prolog.d"
# What a user, or another scheduler's leftovers, can put there.
_HOSTILE = {
    "no variables at all": None,
    "a hostile job id": {"SLURM_JOB_ID": "7/../../etc;" + EVIL},
    "hostile host lists": {
        "SLURM_JOB_NODELIST": EVIL,
        "SLURM_STEP_NODELIST": "n[1-$(id)]",
        "SLURM_NODELIST": EVIL,
    },
    "hostile numbers": {
        "SLURM_PROCID": "a[$(id)]",
        "SLURM_NODEID": "08",
        "SLURM_JOB_UID": "-1",
        "SLURM_NNODES": EVIL,
    },
    "hostile texts": {
        "SLURM_JOB_COMMENT": EVIL,
        "SLURM_JOB_NAME": EVIL,
        "MASTER_ADDR": EVIL,
        "IFS": "0123456789",
    },
}


def findings(plan: Plan, where: Where) -> Iterator[Finding]:
    """Find what slurm.conf says otherwise, and what drains nodes or fails tasks. Raises FactsError."""
    yield from chain.findings(plan.root, chains(file.entry for file in plan.files))
    conf, now = slurmconf.find(where.root, where.slurm_conf), running.config(where)
    if conf is not None and now is not None:
        yield from _stale(conf, now)
    if (known := conf or now) is not None:
        yield from (*_lines(plan), *_task_prolog(plan, known), *_globs(plan.root, known), *_timeouts(known))


def chains(entries: Iterable[Entry]) -> dict[str, str]:
    """Return the site's own programs that ours call, by the names that the settings have for them."""
    return {entry.name.removesuffix("-all"): entry.chain for entry in entries if entry.chain}


def refuse(where: Where, entries: tuple[Entry, ...]) -> None:
    """Raise ConflictError while slurm.conf runs one of the files; FactsError where none can be read."""
    conf = running.known(where)
    if conf is not None:
        _refuse_if_used(where.root, conf, entries)
    elif entries:
        raise FactsError(
            "a slurm.conf, or a controller that answers, to check that Slurm no longer runs mingle's files",
            "neither",
            "--slurm-conf with a copy of slurm.conf as it is on the controller",
        )


def task_prologs(root: str) -> str:
    """Return the directory of TaskProlog programs that a site may have; empty where it has none."""
    return TASK_PROLOGS if os.path.isdir(files.at(root, TASK_PROLOGS)) else ""


def stubs(where: Where, entries: tuple[Entry, ...]) -> dict[str, str]:
    """Return path -> what has to stay there, doing the site's own alone, while Slurm may still run that file.

    slurm.conf names it no more, or this would be refused; but Slurm goes by what it read last.
    """
    now = running.config(where)
    if now is None and not _is_silent(where):
        return {}
    ours = {entry.path for entry in entries}
    return {
        entry.path: render(
            hook(entry.scheduler, entry.name)._replace(template="slurm/stub.sh.j2"),
            Site(),
            Chain(entry.chain, task_prologs(where.root)),
        )
        for entry in entries
        if entry.name.removesuffix("-all") in chain.KEYS.values()
        and (now is None or _is_run(where.root, now, entry.path, ours))
    }


def _is_silent(where: Where) -> bool:
    """Tell whether there should be a controller, though none has answered."""
    return not where.root and running.can_ask()


def _is_run(root: str, conf: SlurmConf, path: str, ours: set[str]) -> bool:
    values = [value for key in chain.KEYS for value in conf.all(key)]
    emptied = [value for value in values if _would_be_empty(root, value, ours)]
    return path in values or any(fnmatch.fnmatch(path, value) for value in emptied)


def runs(name: str) -> Iterator[Run]:
    """Yield how a hook is run: with recorded variables, and with hostile ones."""
    last: dict[str, str] = {}
    for file in shipped.names(shipped.ENVIRONMENTS):
        label, _, kind = file.rpartition(".")
        if kind == name:
            lines = shipped.text(f"{shipped.ENVIRONMENTS}/{file}").splitlines()
            last = dict(line.partition("=")[::2] for line in lines)
            yield label, (), last
    for label, spoilt in _HOSTILE.items():
        yield label, (), {} if spoilt is None else {**last, **spoilt}


def _lines(plan: Plan) -> Iterator[Finding]:
    for line in plan.lines:
        if not line.is_there:
            yield Finding(plan.where, f"does not say {line.text}", f"this line there: {line.text}")


def _task_prolog(plan: Plan, conf: SlurmConf) -> Iterator[Finding]:
    """Find a TaskProlog of ours that the settings for containers do without."""
    named = conf.one("TaskProlog")
    if not any(line.text.startswith("TaskProlog=") for line in plan.lines):
        own = next((file.entry.chain for file in plan.files if file.entry.name == "taskprolog-all"), "")
        if named in {file.entry.path for file in plan.files}:
            mend = f"TaskProlog={own} instead" if own else "no TaskProlog line"
            yield Finding(conf.path, f"names TaskProlog={named}, which fails every task in a container", mend)
        elif own and named != own:
            yield Finding(conf.path, f"does not name the site's own TaskProlog={own}", f"TaskProlog={own}")


def _stale(conf: SlurmConf, now: SlurmConf) -> Iterator[Finding]:
    """Find what Slurm still runs, though the file says otherwise."""
    for key in chain.KEYS:
        if conf.one(key) != now.one(key):
            what = f"says {key}={conf.one(key)}, and slurmctld runs with {now.one(key) or 'none'}"
            yield Finding(conf.path, what, "scontrol reconfigure")


def _globs(root: str, conf: SlurmConf) -> Iterator[Finding]:
    """Find what makes slurmd drain a node: a glob that matches nothing, or something that cannot be run."""
    for key in ("Prolog", "Epilog"):
        for value in conf.all(key):
            found = files.matches(root, value) if files.is_glob(value) else [value]
            if not found:
                yield Finding(f"{key}={value}", "matches no file, which drains every node", f"no {key} line")
            for path in found:
                if not files.can_be_run(root, path):
                    what = "cannot be run, which drains every node"
                    yield Finding(path, what, f"moving it out of {key}={value}, or chmod +x")


def _timeouts(conf: SlurmConf) -> Iterator[Finding]:
    """Root's hooks take 7 s at the very worst (_run.sh.j2), so Slurm's must not be shorter."""
    for key in ("PrologTimeout", "EpilogTimeout", "PrologEpilogTimeout"):
        value = conf.one(key)
        if number(value, least=1, most=14) is not None:  # s: ours, and some for the site's own
            yield Finding(f"{conf.path}", f"has {key}={value} (s)", f"{key}=60, or no such line")


def _refuse_if_used(root: str, conf: SlurmConf, entries: tuple[Entry, ...]) -> None:
    paths = {entry.path: entry for entry in entries}
    for key in chain.KEYS:
        for value in conf.all(key):
            if value in paths:
                own = paths[value].chain
                instead = f"{key}={own}" if own else f"no {key} line"
                raise ConflictError(
                    f"a {conf.path} that does not name the files to remove",
                    f"{key}={value}",
                    f"{instead} instead, then scontrol reconfigure, then this command again",
                )
            if _would_be_empty(root, value, set(paths)):
                raise ConflictError(
                    f"programs that {key}={value} still matches afterwards (or it drains every node)",
                    "only mingle's",
                    f"no {key} line in {conf.path}, then scontrol reconfigure, then this command again",
                )


def _would_be_empty(root: str, value: str, ours: set[str]) -> bool:
    if not files.is_glob(value):
        return False
    found = set(files.matches(root, value))
    return bool(found & ours) and found <= ours
