"""Where a command may start: on every node of the job, or not at all.

What is started in the batch script alone, or once for each task where it starts the node's processes itself,
would train in a world of its own and end with 0.
"""

from __future__ import annotations

from mingle_hooks import sockets as socket
from mingle_hooks.errors import UsageError
from mingle_hooks.launchers import find, module
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mingle_hooks.job import MemberSpec
    from mingle_hooks.schedulers.facts import JobFacts


def check(command: Sequence[str], spec: MemberSpec) -> None:
    """Raise UsageError, with the line that works, for a command that would not be in the world of several nodes."""
    facts, (launcher, end) = spec.facts, find(command) or (None, 0)
    if facts.is_batch and (launcher is None or launcher.starts == "node"):
        raise UsageError(
            f"to start {command[0]} on every node of the job",
            f"a shell that runs on {here(facts)} only",
            everywhere(facts, command),
        )
    tasks = max((facts.local_count or 1, *facts.tasks_per_node))
    if spec.settings.scope == "task" and tasks > 1 and launcher is not None and launcher.starts == "node":
        raise UsageError(
            f"one {launcher.name} on each node, as it starts the node's processes itself",
            f"{tasks} tasks on a node",
            "--ntasks-per-node=1 and no --scope task, or the program without its launcher",
        )
    if launcher is not None and launcher.checked_by:
        module(launcher, launcher.checked_by).check(command[end:], spec)


def here(facts: JobFacts) -> str:
    """Return this host's name."""
    return facts.host or socket.gethostname()


def is_first_host(facts: JobFacts) -> bool:
    """Tell whether this host is the job's first: salloc's shell may run on none of them."""
    first = facts.hosts[0] if facts.hosts else ""
    return here(facts) == first or (facts.host is None and here(facts).partition(".")[0] == first.partition(".")[0])


def everywhere(facts: JobFacts, command: Sequence[str]) -> str:
    """Return the line that starts a command on every node of the job, each in the world."""
    import shlex

    if starter := facts.on_every_node:
        return f"{starter} in front: {starter} mingle exec {shlex.join(command)}"
    return f"the script of `mingle template {facts.scheduler} -- {shlex.join(command)}`, which starts it on every host"
