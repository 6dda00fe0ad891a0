"""On which hosts a run starts: those of the job whose script this is, or those that a person names."""

from __future__ import annotations

from collections.abc import Container, Mapping

from mingle_hooks.errors import FactsError, UsageError
from mingle_hooks.net.addresses import hostname
from mingle_hooks.schedulers import hostlist
from mingle_hooks.schedulers.facts import JobFacts

_SCRIPT = "the job's script, or its interactive shell"
_INSTEAD = "`mingle exec COMMAND` in its place, or `mingle run` in the job's script, with nothing in front of it"

_ON_EACH = "`mingle exec COMMAND` on each of its hosts, or --hosts node1,node2"


def listed(text: str) -> tuple[str, ...]:
    """Return the hosts of --hosts in its order, such as ``a,b`` and ``node[1-4]``. Raises UsageError."""
    try:
        hosts = hostlist.expand(text)
    except FactsError as error:
        raise UsageError("hosts such as node1,node2 or node[1-4]", error.seen, "--hosts node1,node2") from None
    if len(set(hosts)) != len(hosts):
        twice = next(host for host in hosts if hosts.count(host) > 1)
        raise UsageError("each host once in --hosts", f"{twice} more than once", "--hosts with each name once")
    return hosts


def of_job(facts: JobFacts, environ: Mapping[str, str], known: Container[str]) -> tuple[str, ...]:
    """Return the hosts of the job whose script this is. Raises FactsError where there is none, or this is a task."""
    if facts.scheduler not in known:
        raise _no_starter(facts)
    if facts.step:
        raise FactsError(_SCRIPT, f"a task of step {facts.step}", _INSTEAD)
    if facts.task_rank is not None:
        raise FactsError(_SCRIPT, f"its task {facts.task_rank}", _INSTEAD)
    if not facts.hosts:
        expected, seen, remedy = facts.without_nodes or (
            "the job's hosts",
            "no list of them here",
            "--hosts node1,node2",
        )
        raise FactsError(expected, seen, remedy)
    # Scripts run on the first host, and PBS says so of its own: there may be tasks, too.
    is_task = facts.node_rank != 0 or bool(environ.get("PBS_TASKNUM"))
    if len(facts.hosts) > 1 and not facts.is_batch and facts.node_rank is not None and is_task:
        raise FactsError(_SCRIPT, f"a task on host {facts.node_rank + 1} of {len(facts.hosts)}", _INSTEAD)
    return facts.hosts


def is_in_flux(environ: Mapping[str, str]) -> bool:
    """Tell whether this is the script of a Flux instance, which may run in a job of another scheduler."""
    return bool(environ.get("FLUX_URI")) and not environ.get("FLUX_JOB_ID")


def _no_starter(facts: JobFacts) -> FactsError:
    expected = "a job of a scheduler that starts programs on its hosts, or --hosts"
    if facts.scheduler == "none":
        return FactsError(expected, "no job here", "--hosts node1,node2, or --hosts localhost for this machine alone")
    is_launched = "+" in facts.scheduler  # by a launcher such as mpirun, in a job's script
    return FactsError(expected, f"a process that {facts.scheduler} started", _INSTEAD if is_launched else _ON_EACH)


def own_of(facts: JobFacts) -> str | None:
    """Return which host of the job this is, None where it is not known to be one."""
    if facts.host is None and facts.node_rank is not None and facts.hosts:
        return facts.hosts[facts.node_rank]
    return facts.host if facts.host in facts.hosts else None


def own_among(hosts: tuple[str, ...]) -> str | None:
    """Return by which of its names a person named this host."""
    name = hostname()
    return next((host for host in hosts if host in ("localhost", name, name.split(".")[0])), None)
