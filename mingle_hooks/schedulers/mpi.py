"""Tasks of an MPI launcher: Open MPI, MVAPICH, MPICH's and Intel's Hydra, jsrun.

Source: each one's manual; Open MPI's FAQ "What environment variables are set for my MPI processes".
"""

from __future__ import annotations

from collections.abc import Mapping

from mingle_hooks.schedulers import hostlist
from mingle_hooks.schedulers.facts import RUN, JobFacts, Variables

# The launchers' rank, size, rank on the node, size on the node; the first whose rank is set applies.
# PMI comes last: others set it too.
FAMILIES = (
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
# What names one run of a launcher, the same for all of its tasks: Open MPI 5 and 4, then older ones.
RUNS = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid")


def facts(environ: Mapping[str, str]) -> JobFacts | None:
    """Return what the launcher says to a task, or None where there is none.

    Launchers do not count nodes: `nodes` and `node_rank` are worked out on the assumption that each has as
    many tasks as this one, filled in order, and are None where that cannot be. `step` is the run's own
    name, where it has one. Raises FactsError for a variable that makes no sense.
    """
    read = Variables(environ)
    family = next((names for names in FAMILIES if environ.get(names[0])), None)
    if family is None:
        return None
    rank = read.number("task_rank", family[0])
    size = read.number("task_count", family[1], least=1)
    local_rank = read.number("local_rank", family[2])
    local_count = read.number("local_count", family[3], least=1)
    nodes = 1 if size == 1 else hostlist.nodes_by_block(size, local_count)
    read.sources["nodes"] = read.sources["node_rank"] = f"{family[1]} and {family[3]}"
    return JobFacts(
        scheduler="mpi",
        step=read.text("step", *RUNS, pattern=RUN) or "",
        nodes=nodes,
        node_rank=0 if nodes == 1 else hostlist.node_rank_by_block(rank, local_rank, local_count),
        task_rank=rank,
        task_count=size,
        local_rank=local_rank,
        local_count=local_count,
        tasks_per_node=(local_count,) * nodes if nodes and local_count else (),
        shares_homes=False,
        sources=read.sources,
    )
