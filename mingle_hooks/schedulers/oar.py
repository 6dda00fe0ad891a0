"""OAR.

Source: OAR's user documentation, "Environment variables".
"""

from __future__ import annotations

from collections.abc import Mapping

from mingle_hooks.schedulers import hostlist
from mingle_hooks.schedulers.facts import JobFacts, Variables


def facts(environ: Mapping[str, str]) -> JobFacts | None:
    """Return what OAR says, or None outside of its jobs; each element of an array is a job of its own.

    Hosts have no numbers: the caller knows its own host's name.
    Raises FactsError for a variable or a node file that makes no sense.
    """
    read = Variables(environ)
    job_id = read.text("job_id", "OAR_JOB_ID", "OAR_JOBID", pattern="[0-9]{1,12}")
    if job_id is None:
        return None
    path = read.long("hosts", "OAR_NODEFILE", "OAR_NODE_FILE", "OAR_FILE_NODES")
    slots = hostlist.read_nodefile(path) if path else {}
    hosts = tuple(slots)
    return JobFacts(
        scheduler="oar",
        job_id=job_id,
        nodes=len(hosts) or None,
        hosts=hosts,
        leader_hosts=hosts[:1],
        task_count=sum(slots.values()) or None,
        tasks_per_node=tuple(slots.values()),
        sources=read.sources,
    )
