"""Batch systems that tell their hosts by a list or a file, and no more: Flux, LSF, OAR and Grid Engine."""

from __future__ import annotations

from collections.abc import Mapping

from mingle_hooks.errors import FactsError
from mingle_hooks.schedulers import hostlist
from mingle_hooks.schedulers.facts import MOST_NODES, MOST_TASKS, JobFacts, Variables
from mingle_hooks.schedulers.hostlist import LONGEST_TEXT, check_host
from mingle_hooks.values import number


# Flux.
#
# Source: flux-environment(7).
def flux(environ: Mapping[str, str]) -> JobFacts | None:
    """Return what Flux says to a task, or None outside of its jobs.

    Flux numbers tasks, not nodes, and fills one node after the other by default: where that does not
    fit, `node_rank` is None. Raises FactsError for a variable that makes no sense.
    """
    read = Variables(environ)
    job_id = read.text("job_id", "FLUX_JOB_ID", pattern="[0-9A-Za-z.\u0192-]+")
    if job_id is None:
        return None
    nodes = read.number("nodes", "FLUX_JOB_NNODES", least=1, most=MOST_NODES)
    size = read.number("task_count", "FLUX_JOB_SIZE", least=1)
    rank = read.number("task_rank", "FLUX_TASK_RANK")
    local_rank = read.number("local_rank", "FLUX_TASK_LOCAL_ID")
    local_count = size // nodes if size and nodes and size % nodes == 0 else None
    return JobFacts(
        scheduler="flux",
        # Flux prints an id with a leading florin sign, or f where the locale has none: let both be one.
        job_id=job_id.replace("\u0192", "f"),
        nodes=nodes,
        node_rank=0 if nodes == 1 else hostlist.node_rank_by_block(rank, local_rank, local_count),
        task_rank=rank,
        task_count=size,
        local_rank=local_rank,
        # Not told, so not claimed: tasks may be spread unevenly.
        local_count=size if nodes == 1 else None,
        sources=read.sources,
    )


# IBM Spectrum LSF.
#
# Source: LSF's reference, "Environment variables set for job execution".
def lsf(environ: Mapping[str, str]) -> JobFacts | None:
    """Return what LSF says, or None outside of its jobs.

    LSF does not number the hosts for their tasks: the caller knows its own host's name.
    Raises FactsError for a variable or a host file that makes no sense.
    """
    read = Variables(environ)
    job_id = read.text("job_id", "LSB_JOBID", pattern="[0-9]{1,12}")
    if job_id is None:
        return None
    index = read.number("index", "LSB_JOBINDEX", most=4_294_967_295)
    slots = _lsf_slots(read)
    for fact in ("nodes", "tasks_per_node", "task_count") if slots else ():
        read.sources[fact] = read.sources["hosts"]
    return _of_slots("lsf", f"{job_id}[{index}]" if index else job_id, slots, read)


def _of_slots(scheduler: str, job_id: str, slots: hostlist.Slots, read: Variables) -> JobFacts:
    """Return the facts where hosts and their slots are all that is told, none where they are not."""
    hosts = tuple(slots)
    return JobFacts(
        scheduler,
        job_id,
        nodes=len(hosts) or None,
        hosts=hosts,
        leader_hosts=hosts[:1],
        task_count=sum(slots.values()) or None,
        tasks_per_node=tuple(slots.values()),
        sources=read.sources,
    )


def _lsf_slots(read: Variables) -> hostlist.Slots:
    """Return {host: slots}: LSB_HOSTS is not set where it would be too long, the others always are."""
    if text := read.long("hosts", "LSB_MCPU_HOSTS"):
        return _counted_hosts(text)
    if path := read.long("hosts", "LSB_DJOB_HOSTFILE"):
        return hostlist.read_nodefile(path)
    slots: hostlist.Slots = {}
    for host in _words(read.long("hosts", "LSB_HOSTS") or ""):
        slots[check_host(host)] = slots.get(host, 0) + 1
    return slots


def _counted_hosts(text: str) -> hostlist.Slots:
    """Parse ``h1 4 h2 4``."""
    words = _words(text)
    slots: hostlist.Slots = {}
    for host, count in zip(words[::2], [*words[1::2], ""], strict=False):
        if (counted := number(count, least=1, most=MOST_TASKS)) is None:
            raise FactsError("LSB_MCPU_HOSTS such as 'h1 4 h2 4'", repr(text[:80]), "--nodes and --rank")
        slots[check_host(host)] = slots.get(host, 0) + counted
    return slots


def _words(text: str) -> list[str]:
    if len(text) > LONGEST_TEXT:
        raise FactsError(f"a host list of at most {LONGEST_TEXT} characters", f"{len(text)}", "--nodes and --rank")
    return text.split()


# OAR.
#
# Source: OAR's user documentation, "Environment variables".
def oar(environ: Mapping[str, str]) -> JobFacts | None:
    """Return what OAR says, or None outside of its jobs; each element of an array is a job of its own.

    Hosts have no numbers: the caller knows its own host's name.
    Raises FactsError for a variable or a node file that makes no sense.
    """
    read = Variables(environ)
    job_id = read.text("job_id", "OAR_JOB_ID", "OAR_JOBID", pattern="[0-9]{1,12}")
    if job_id is None:
        return None
    path = read.long("hosts", "OAR_NODEFILE", "OAR_NODE_FILE", "OAR_FILE_NODES")
    return _of_slots("oar", job_id, hostlist.read_nodefile(path) if path else {}, read)


# Sun, Son of, Open and Univa Grid Engine.
#
# Source: submit(1), "Environmental variables", and sge_pe(5).
def sge(environ: Mapping[str, str]) -> JobFacts | None:
    """Return what Grid Engine says, or None outside of its jobs (JOB_ID alone is anybody's variable).

    PE_HOSTFILE lies on the first host only, so on the others, where ``qrsh -inherit`` starts tasks, the
    number of nodes is NHOSTS. Hosts have no numbers: the caller knows its own host's name.
    Raises FactsError for a variable or a host file that makes no sense.
    """
    read = Variables(environ)
    job_id = read.text("job_id", "JOB_ID", pattern="[0-9]{1,12}")
    task = read.text("array_task", "SGE_TASK_ID", pattern="undefined|[0-9]{1,12}")
    path = read.long("hosts", "PE_HOSTFILE")
    if job_id is None or not (task or path):
        return None
    told = read.number("nodes", "NHOSTS", least=1, most=MOST_NODES)
    if path and told and not hostlist.is_readable(path):
        path = None
    slots = hostlist.read_pe_hostfile(path) if path else {}
    hosts = tuple(slots)
    return JobFacts(
        scheduler="sge",
        job_id=f"{job_id}.{task}" if task and task != "undefined" else job_id,
        nodes=told or len(hosts) or 1,
        node_rank=0 if (told or len(hosts) or 1) == 1 else None,
        hosts=hosts,
        leader_hosts=hosts[:1],
        task_count=read.number("task_count", "NSLOTS", least=1),
        tasks_per_node=tuple(slots.values()),
        sources=read.sources,
    )
