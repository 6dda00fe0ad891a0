"""Sun, Son of, Open and Univa Grid Engine.

Source: submit(1), "Environmental variables", and sge_pe(5).
"""

from __future__ import annotations

from collections.abc import Mapping

from mingle_hooks.schedulers import hostlist
from mingle_hooks.schedulers.facts import MOST_NODES, JobFacts, Variables


def facts(environ: Mapping[str, str]) -> JobFacts | None:
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
