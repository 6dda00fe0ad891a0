"""The hooks that there are, one line each."""

from __future__ import annotations

from typing import NamedTuple

from mingle_hooks.errors import UsageError
from mingle_hooks.nearest import nearest


class Hook(NamedTuple):
    """One file of one scheduler; `comment` starts a comment line in it, empty where it can hold none."""

    scheduler: str
    name: str
    template: str
    runs: str  # when, where and as whom, for people
    comment: str = "# "


HOOKS = (
    Hook("slurm", "prolog", "slurm/prolog.sh.j2", "every node, root, before a job's first task there"),
    Hook("slurm", "epilog", "slurm/epilog.sh.j2", "every node, root, when a job ends"),
    Hook("slurm", "taskprolog", "slurm/taskprolog.sh.j2", "every task, the job's user, before it"),
    Hook("slurm", "taskprolog-all", "slurm/taskprolog-all.sh.j2", "runs taskprolog, then the site's own"),
    Hook("pbs", "launch", "pbs/launch.py.j2", "every task, root, before it; and when a job ends"),
    Hook("pbs", "config", "pbs/config.json.j2", "the settings of launch", comment=""),
    Hook("pbs", "prologue", "pbs/prologue.sh.j2", "first node, root, before a job"),
    Hook("pbs", "epilogue", "_epilogue.sh.j2", "first node, root, when a job ends"),
    Hook("torque", "prologue", "torque/prologue.sh.j2", "first node, root, before a job"),
    Hook("torque", "prologue.parallel", "torque/prologue.sh.j2", "the other nodes, root, before a job"),
    Hook("torque", "epilogue", "_epilogue.sh.j2", "first node, root, when a job ends"),
    Hook("torque", "epilogue.parallel", "_epilogue.sh.j2", "the other nodes, root, when a job ends"),
)
SCHEDULERS = tuple(dict.fromkeys(hook.scheduler for hook in HOOKS))


def hooks(scheduler: str) -> tuple[Hook, ...]:
    """Return one scheduler's hooks in the table's order. Raises UsageError."""
    found = tuple(hook for hook in HOOKS if hook.scheduler == scheduler)
    if not found:
        raise UsageError(f"one of {', '.join(SCHEDULERS)}", repr(scheduler), nearest(scheduler, SCHEDULERS))
    return found


def hook(scheduler: str, name: str) -> Hook:
    """Return one hook. Raises UsageError."""
    for found in hooks(scheduler):
        if found.name == name:
            return found
    names = [found.name for found in hooks(scheduler)]
    raise UsageError(
        f"one of {', '.join(names)}", repr(name), f"mingle hooks render {scheduler} {nearest(name, names)}"
    )
