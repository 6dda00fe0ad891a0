"""PALS, the launcher of HPE Cray systems, inside PBS or Slurm.

Source: mpiexec(1) of PALS, "Environment variables".
"""

from __future__ import annotations

from collections.abc import Mapping

from mingle_hooks.schedulers import hostlist
from mingle_hooks.schedulers.facts import MOST_NODES, RUN, JobFacts, Variables


def facts(environ: Mapping[str, str]) -> JobFacts | None:
    """Return what PALS says to a task, or None outside of its runs.

    PALS numbers nodes but does not count them: `nodes` is worked out on the assumption that each has as
    many tasks as this one. Raises FactsError for a variable that makes no sense.
    """
    read = Variables(environ)
    rank = read.number("task_rank", "PALS_RANKID")
    if rank is None:
        return None
    size = read.number("task_count", "PALS_SIZE", "PMI_SIZE", least=1)
    local_count = read.number("local_count", "PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE", least=1)
    nodes = 1 if size == 1 else hostlist.nodes_by_block(size, local_count)
    read.sources["nodes"] = f"{read.sources.get('task_count')} and {read.sources.get('local_count')}"
    return JobFacts(
        scheduler="pals",
        step=read.text("step", "PALS_APID", pattern=RUN) or "",
        nodes=nodes,
        node_rank=read.number("node_rank", "PALS_NODEID", most=MOST_NODES),
        task_rank=rank,
        task_count=size,
        local_rank=read.number("local_rank", "PALS_LOCAL_RANKID"),
        local_count=local_count,
        tasks_per_node=(local_count,) * nodes if nodes and local_count else (),
        sources=read.sources,
    )
