"""Flux.

Source: flux-environment(7).
"""

from __future__ import annotations

from collections.abc import Mapping

from mingle_hooks.schedulers import hostlist
from mingle_hooks.schedulers.facts import MOST_NODES, JobFacts, Variables


def facts(environ: Mapping[str, str]) -> JobFacts | None:
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
