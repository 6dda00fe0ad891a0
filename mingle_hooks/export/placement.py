"""Where a command may start: on every node of the job, or not at all.

What is started in the batch script alone, or once for each task where it starts the node's processes itself,
would train in a world of its own and end with 0.
"""

from __future__ import annotations

import shlex
import shutil
import socket
from collections.abc import Mapping, Sequence

from mingle_hooks.errors import UsageError
from mingle_hooks.export.launchers import find, given
from mingle_hooks.job import MemberSpec
from mingle_hooks.schedulers.facts import MOST_TASKS, JobFacts
from mingle_hooks.values import number

# What mpirun and horovodrun call the number of processes, and those of their options that have no value.
_PROCESSES = ("-n", "-np", "--np", "-c", "--num-proc")
_OF_MPI = (
    *("--allow-run-as-root", "--oversubscribe", "--nooversubscribe", "--tag-output", "--display-map", "-v", "-q"),
    *("--verbose", "--quiet", "--report-bindings", "--use-hwthread-cpus", "-l", "--gloo", "--mpi", "--jsrun"),
)
# What gives a job to a scheduler, and the line that does: the first of these programs that is here.
_SUBMITTING = (
    ("salloc", "salloc -N2 {line}"),
    ("flux", "flux alloc -N2 {line}"),
    ("bsub", "{line} in a job script, for bsub"),
    ("qsub", "{line} in a job script, for qsub"),
    ("oarsub", "{line} in a job script, for oarsub"),
)
# Options by which a launcher that reads no variables is told its nodes.
_OF_NODES = (
    *("--num-machines", "--machine-rank", "--config-file", "--hostfile", "-hostfile", "-H", "--hosts", "--host"),
    *("--node-rank", "--num-nodes", "--address", "--head", "--host-discovery-script", "-machinefile", "--machinefile"),
)


def check(command: Sequence[str], spec: MemberSpec, *, verbatim: bool = False) -> None:
    """Raise UsageError, with the line that works, for a command that would not be in the world of several nodes.

    With `verbatim` nothing tells a launcher its nodes but its own options.
    """
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
            "--ntasks-per-node=1 without --scope task, or the program without its launcher",
        )
    # In a run only rank 0's host starts a launcher of all nodes, and the run itself asks for --verbatim there.
    is_of_all = launcher is not None and launcher.starts == "job" and "MINGLE_RUN_FORMED" not in spec.user_environ
    is_untold = launcher is not None and verbatim and (launcher.options or is_of_all)
    if launcher is not None and is_untold and not _names_nodes(command[end:]):
        raise UsageError(
            f"{launcher.name} with options that name its nodes",
            "none, with --verbatim: each node would train alone",
            "leaving out --verbatim, so that mingle adds them",
        )
    if launcher is not None and launcher.starts == "job":
        check_processes(launcher.name, command[end:], spec.nodes)
    if launcher is not None and launcher.check is not None:
        launcher.check(command[end:], spec)


def check_processes(launcher: str, arguments: Sequence[str], nodes: int | None) -> None:
    """Raise UsageError for fewer processes than nodes, of a launcher that reaches all of them itself."""
    asked = given(arguments, _OF_MPI)
    counts = [(name, number(asked[name], most=MOST_TASKS)) for name in _PROCESSES if name in asked]
    for name, count in counts:
        if nodes is not None and count is not None and count < nodes:
            seen = f"{name} {count}, which leaves some nodes out"
            raise UsageError(f"{launcher} with a process on each of {nodes} nodes", seen, f"{name} {nodes} or more")


def here(facts: JobFacts) -> str:
    """Return this host's name."""
    return facts.host or socket.gethostname()


def is_first_host(facts: JobFacts) -> bool:
    """Tell whether this host is the job's first: salloc's shell may run on none of them."""
    first = facts.hosts[0] if facts.hosts else ""
    return here(facts) == first or (facts.host is None and here(facts).partition(".")[0] == first.partition(".")[0])


def everywhere(facts: JobFacts, command: Sequence[str]) -> str:
    """Return the line that starts a command on every node of the job, each in the world."""
    if starter := facts.on_every_node:
        return f"{starter} in front: {starter} mingle exec {shlex.join(command)}"
    return f"mingle run {shlex.join(command)}"


def anywhere(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return what gets a command hosts where there is no job: a job of the scheduler that is here, hosts, or one."""
    line = f"mingle run {shlex.join(command)}"
    path = environ.get("PATH", "")
    job = next((text.format(line=line) for program, text in _SUBMITTING if shutil.which(program, path=path)), "")
    hosts = f"mingle run --hosts node1,node2 {shlex.join(command)}"
    return f"{job or hosts}; or --alone to train on this host only"


def _names_nodes(words: Sequence[str]) -> bool:
    return any(word.partition("=")[0].replace("_", "-") in _OF_NODES for word in words)
