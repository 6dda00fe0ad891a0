"""What starts processes inside or outside of a batch system: MPI launchers, PALS, pods, a platform, `mingle run`."""

from __future__ import annotations

from collections.abc import Mapping

from mingle_hooks import values
from mingle_hooks.errors import FactsError
from mingle_hooks.net.addresses import is_hostname
from mingle_hooks.schedulers import hostlist
from mingle_hooks.schedulers.facts import (
    COUNT_MEMBERS,
    LONGEST_ID,
    MOST_NODES,
    MOST_SLOTS,
    MOST_TASKS,
    RUN,
    JobFacts,
    Variables,
)

# Tasks of an MPI launcher: Open MPI, MVAPICH, MPICH's and Intel's Hydra, jsrun.
#
# Source: each one's manual; Open MPI's FAQ "What environment variables are set for my MPI processes".
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


def mpi(environ: Mapping[str, str]) -> JobFacts | None:
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


# PALS, the launcher of HPE Cray systems, inside PBS or Slurm.
#
# Source: mpiexec(1) of PALS, "Environment variables".
def pals(environ: Mapping[str, str]) -> JobFacts | None:
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


# Ranks that a platform gave, as VESSL's runs, Toolkit's replicas and Kubeflow's training jobs do.
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# An operator of Kubernetes gives a job's only replica just that.
_POD = "KUBERNETES_SERVICE_HOST"


def given(environ: Mapping[str, str]) -> JobFacts | None:
    """Return what was given, or None: it takes MASTER_ADDR, and NODE_RANK or RANK.

    What an earlier mingle exported (it left MINGLE_ID) was not given by anybody, nor was a world of one
    on loopback. A RANK without LOCAL_RANK is a replica's, and replicas are members; one with LOCAL_RANK is a
    process's, and the nodes are groups, as torchrun names them. Raises FactsError for a variable that makes no sense.
    """
    named = environ.get("NODE_RANK") or environ.get("RANK")
    address = environ.get("MASTER_ADDR")
    # A world of one on loopback is left over from a trial on one machine, but in a pod.
    is_trial = address in LOOPBACK and environ.get("WORLD_SIZE") == "1" and not environ.get(_POD)
    if environ.get("MINGLE_ID") or not address or not named or is_trial:
        return None
    read = Variables(environ)
    is_task = bool(environ.get("LOCAL_RANK"))
    rank_names, count_names = ["NODE_RANK", "GROUP_RANK"], ["NUM_NODES", "NNODES", "GROUP_WORLD_SIZE"]
    if not is_task and not environ.get("NODE_RANK"):
        rank_names.append("RANK")
        count_names.append("WORLD_SIZE")
    leader = read.host("leader_hosts", "MASTER_ADDR", address=True)
    return JobFacts(
        scheduler="given",
        nodes=read.number("nodes", *count_names, least=1, most=MOST_NODES),
        node_rank=read.number("node_rank", *rank_names, most=MOST_NODES),
        leader_hosts=(leader,) if leader else (),
        task_rank=read.number("task_rank", "RANK") if is_task else None,
        task_count=read.number("task_count", "WORLD_SIZE", least=1) if is_task else None,
        local_rank=read.number("local_rank", "LOCAL_RANK"),
        local_count=read.number("local_count", "LOCAL_WORLD_SIZE", least=1) if is_task else None,
        gpus=read.number("gpus", "GPUS_PER_NODE", most=MOST_TASKS),
        shares_homes=False,
        without_nodes=COUNT_MEMBERS,
        sources=read.sources,
    )


# A Kubernetes pod, best one of an Indexed Job.
#
# Source: Kubernetes' documentation, "Indexed Job": JOB_COMPLETION_INDEX, and host names JOB-INDEX.
def kubernetes(environ: Mapping[str, str]) -> JobFacts | None:
    """Return what Kubernetes says, or None outside of pods; pods are not told how many they are.

    Raises FactsError for an index that is no number.
    """
    read = Variables(environ)
    if not any(environ.get(name) for name in ("JOB_COMPLETION_INDEX", "KUBERNETES_SERVICE_HOST")):
        return None
    index = read.number("node_rank", "JOB_COMPLETION_INDEX", most=MOST_NODES)
    host = read.text("job_id", "HOSTNAME", pattern="[a-z0-9.-]+") if index is not None else None
    job_id = host.removesuffix(f"-{index}") if host and host.endswith(f"-{index}") else None
    return JobFacts(
        scheduler="kubernetes",
        job_id=job_id or None,
        node_rank=index,
        shares_homes=False,
        without_nodes=COUNT_MEMBERS,
        sources=read.sources,
    )


# What `mingle run` says of one attempt: who takes part, and in which order, whatever the scheduler started.
#
# MINGLE_RUN holds it as one JSON object, whose names are those of JobFacts. What it leaves out is the scheduler's.
RUN_VARIABLE = "MINGLE_RUN"
_TEXTS = {"job_id": LONGEST_ID, "step": LONGEST_ID}
_NUMBERS = {
    "restarts": MOST_TASKS,
    "nodes": MOST_NODES,
    "node_rank": MOST_NODES - 1,
    "task_rank": MOST_TASKS,
    "task_count": MOST_TASKS,
    "local_rank": MOST_SLOTS - 1,
    "local_count": MOST_SLOTS,
}


def placed_by_run(found: JobFacts, environ: Mapping[str, str]) -> JobFacts:
    """Return a scheduler's facts with what the run says. Raises FactsError."""
    text = environ.get(RUN_VARIABLE)
    if not text:
        return found
    try:
        said = values.from_json(text.encode(errors="surrogateescape"))
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or not said.keys() <= {*_TEXTS, *_NUMBERS, "hosts"}:
        raise _bad("one JSON object from `mingle run`")
    fields: dict[str, object] = {name: _checked(name, value) for name, value in said.items()}
    hosts = fields.get("hosts", ())
    fields |= {"leader_hosts": hosts[:1]} if isinstance(hosts, tuple) else {}
    sources = {**found.sources, **dict.fromkeys(fields, RUN_VARIABLE)}
    none = {"slot": None, "is_batch": False, "nodes_of_job": None, "tasks_per_node": ()}
    return found._replace(**{**none, **fields, "sources": sources})


def _checked(name: str, value: object) -> object:
    if name in _TEXTS and isinstance(value, str) and value.isprintable() and len(value) <= _TEXTS[name]:
        return value
    if name in _NUMBERS and type(value) is int and 0 <= value <= _NUMBERS[name]:
        return value
    if name == "hosts" and isinstance(value, list) and len(value) <= MOST_NODES:
        hosts = [host for host in value if isinstance(host, str) and is_hostname(host)]
        if hosts == value:
            return tuple(hosts)
    raise _bad(f"a valid {name} from `mingle run`")


def _bad(expected: str) -> FactsError:
    return FactsError(
        expected, f"something else in {RUN_VARIABLE}", f"unset {RUN_VARIABLE}, which only `mingle run` sets"
    )
