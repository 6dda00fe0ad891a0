"""IBM Spectrum LSF.

Source: LSF's reference, "Environment variables set for job execution".
"""

from __future__ import annotations

from collections.abc import Mapping

from mingle_hooks.errors import FactsError
from mingle_hooks.schedulers import hostlist
from mingle_hooks.schedulers.facts import MOST_TASKS, JobFacts, Variables
from mingle_hooks.schedulers.hostlist import LONGEST_TEXT, check_host
from mingle_hooks.values import number


def facts(environ: Mapping[str, str]) -> JobFacts | None:
    """Return what LSF says, or None outside of its jobs.

    LSF does not number the hosts for their tasks: the caller knows its own host's name.
    Raises FactsError for a variable or a host file that makes no sense.
    """
    read = Variables(environ)
    job_id = read.text("job_id", "LSB_JOBID", pattern="[0-9]{1,12}")
    if job_id is None:
        return None
    index = read.number("index", "LSB_JOBINDEX", most=4_294_967_295)
    slots = _slots(read)
    hosts = tuple(slots)
    for fact in ("nodes", "tasks_per_node", "task_count") if hosts else ():
        read.sources[fact] = read.sources["hosts"]
    return JobFacts(
        scheduler="lsf",
        job_id=f"{job_id}[{index}]" if index else job_id,
        nodes=len(hosts) or None,
        hosts=hosts,
        leader_hosts=hosts[:1],
        task_count=sum(slots.values()) or None,
        tasks_per_node=tuple(slots.values()),
        sources=read.sources,
    )


def _slots(read: Variables) -> hostlist.Slots:
    """Return {host: slots}: LSB_HOSTS is not set where it would be too long, the others always are."""
    if counted := read.long("hosts", "LSB_MCPU_HOSTS"):
        return _counted(counted)
    if path := read.long("hosts", "LSB_DJOB_HOSTFILE"):
        return hostlist.read_nodefile(path)
    slots: hostlist.Slots = {}
    for host in _words(read.long("hosts", "LSB_HOSTS") or ""):
        slots[check_host(host)] = slots.get(host, 0) + 1
    return slots


def _counted(text: str) -> hostlist.Slots:
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
