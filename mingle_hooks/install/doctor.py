"""What is installed on this host, what is in its way, and what a job here would get."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from mingle_hooks import __version__
from mingle_hooks.errors import MingleError
from mingle_hooks.fabric.machine import is_hostname
from mingle_hooks.install import files, manifest
from mingle_hooks.install.health import Finding
from mingle_hooks.install.site import KILL_SWITCH
from mingle_hooks.install.targets import TARGETS, hook, target
from mingle_hooks.install.text import render
from mingle_hooks.install.verify import verify

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mingle_hooks.install.hook import Target, Where
    from mingle_hooks.install.site import Site

# Others that set the same variables; where they are and what to do.
_RIVALS = {
    "/etc/enroot/hooks.d/50-slurm-pytorch.sh": "sets MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK in containers "
    "where they are unset; with these hooks they are set already",
}
_PATIENCE_S = 5.0
_NEEDED = ("timeout", "stat", "mkdir", "mv", "rm", "chown", "chmod", "sha256sum", "logger", "chroot", "id")


def doctor(site: Site, where: Where) -> Iterator[Finding]:
    """Yield findings in the order in which an admin would look. Raises FactsError for a manifest that is none."""
    yield Finding("mingle-hooks", __version__, "", note=True)
    installed = manifest.read(where.root)
    for scheduler in TARGETS:
        its = target(scheduler)
        version = _version(its)
        if not version and not installed.of(scheduler):
            continue
        yield Finding(scheduler, version or "is not on this host", "", note=True)
        if not installed.of(scheduler):
            yield _not_yet(scheduler, site, where)
            continue
        try:
            yield from verify(its.plan(site, where), site, where)
        except MingleError as wrong:
            yield Finding(scheduler, f"cannot be checked: saw {wrong.seen}", wrong.remedy)
    for name in _NEEDED:
        if shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
            yield Finding(
                name,
                "is not on this host, and root's hooks need it",
                f"installing {name} (coreutils, util-linux)",
            )
    for path, what in _RIVALS.items():
        if os.path.exists(files.at(where.root, path)):
            yield Finding(path, what, "keeping one of the two", note=True)


def _not_yet(scheduler: str, site: Site, where: Where) -> Finding:
    """Tell that nothing is installed, and why installing would be refused."""
    try:
        target(scheduler).plan(site, where)
    except MingleError as wrong:
        refused = f"has no hooks installed, and install would refuse: expected {wrong.expected}, saw {wrong.seen}"
        return Finding(scheduler, refused, wrong.remedy, note=True)
    return Finding(scheduler, "has no hooks installed", f"mingle hooks install {scheduler}", note=True)


def preview(site: Site, host: str, root: str = "") -> tuple[str, ...]:
    """Return what the second of two tasks on this host, the first of two nodes, would get from Slurm's TaskProlog.

    The kill switch is the one below root.
    """
    environ = {
        "SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": f"{host},other", "SLURM_STEP_NUM_NODES": "2",
        "SLURM_NNODES": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
        "SLURM_PROCID": "1", "SLURM_NODEID": "0", "SLURM_LOCALID": "1",
        "SLURM_JOB_PARTITION": "".join(site.partitions[:1]),
    }  # fmt: skip
    text = render(hook("slurm", "taskprolog"), site, kill_switch=files.below(root, KILL_SWITCH))
    done = subprocess.run(
        ["/bin/sh", "-c", text], env=environ, capture_output=True, text=True, timeout=_PATIENCE_S, check=True
    )
    return tuple(done.stdout.splitlines())


def why_nothing(site: Site, host: str, root: str = "") -> Iterator[str]:
    """Yield the reasons for a TaskProlog that prints nothing on this host, with the kill switch below root."""
    if os.path.lexists(files.below(root, KILL_SWITCH)):
        yield f"{root}{KILL_SWITCH} is there"
    for name in dict.fromkeys((host, host + site.host_suffix)):
        if not is_hostname(name):  # is_host in the TaskProlog
            yield f"{name!r} is not a host name that the hook accepts: letters, digits, _ . and -, at most 253 in all"
    if site.observe:
        yield "hooks.observe is on: see the system log"
    if site.hosts and host not in site.hosts:
        yield f"hooks.hosts: only where the first host is one of {', '.join(site.hosts)}"
    if site.opt_in:
        yield f"hooks.opt_in: only jobs with {site.opt_in} in their comment"


def _version(its: Target) -> str:
    """Return what a scheduler's daemon says of itself; empty where it is not on this host."""
    path = shutil.which(its.program, path="/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/opt/pbs/sbin:/opt/slurm/sbin")
    if path is None:
        return ""
    try:
        done = subprocess.run(
            [path, its.version_option], capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as wrong:
        return f"{path} does not answer ({type(wrong).__name__})"
    return (done.stdout or done.stderr).strip().partition("\n")[0][:80] or path
