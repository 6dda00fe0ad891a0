"""Slurm 22.05 to 26.05.

Source: srun(1), sbatch(1), src/common/env.c, src/srun/srun.c, and recorded environments.
"""

from __future__ import annotations

from collections.abc import Mapping

from mingle_hooks.errors import FactsError
from mingle_hooks.schedulers.facts import MOST_LEADER_HOSTS, MOST_NODES, JobFacts, Variables, expand, expand_counts
from mingle_hooks.values import number

# The batch script and salloc's shell have step ids too: -5 and -6, printed unsigned by some versions. Ids from here on
# are such special steps (slurm.h: SLURM_MAX_NORMAL_STEP_ID).
FIRST_SPECIAL_STEP = 0xFFFFFFF0
# Slurm's own bound on the components of a heterogeneous job (MAX_HET_JOB_COMPS).
MOST_COMPONENTS = 128
# More GPUs than any node has.
MOST_GPUS = 4096


def facts(environ: Mapping[str, str]) -> JobFacts:
    """Return Slurm's facts.

    In a task of srun the members are the step's nodes. In the batch script and in salloc's shell they are
    the job's, and with several of them `is_batch` is set.
    Raises FactsError for variables that are invalid or contradict each other.
    """
    read = Variables(environ)
    job_id = read.digits("job_id", "SLURM_JOB_ID", "SLURM_JOBID", longest=10)
    components = _components(read, job_id)
    if components:  # the same in all components
        job_id = read.digits("job_id", "SLURM_JOB_ID_HET_GROUP_0", longest=10) or job_id
    step = _step(read)
    step_hosts = _hosts(read, "SLURM_STEP_NODELIST") if step is not None else ()
    job_hosts = tuple(dict.fromkeys(host for hosts in components for host in hosts))
    job_hosts = job_hosts or _hosts(read, "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    found = JobFacts(
        scheduler="slurm",
        job_id=job_id,
        restarts=read.number("restarts", "SLURM_RESTART_COUNT") or 0,
        cpus=read.number("cpus", "SLURM_CPUS_ON_NODE", least=1),
        gpus=_gpus(read),
        host=read.host("host", "SLURMD_NODENAME"),
        sources=read.sources,
    )
    # sbatch passes the submitter's variables on, so those of a step may be left over from another job: Slurm 22.05 does
    # not overwrite them in the batch script. They name other hosts.
    if step is not None and step_hosts and set(step_hosts).issubset(job_hosts):
        return _in_step(read, found, step, step_hosts, components)
    return _in_job(read, found, job_hosts, is_het=bool(components))


def _in_step(
    read: Variables, found: JobFacts, step: str, hosts: tuple[str, ...], components: list[tuple[str, ...]]
) -> JobFacts:
    read.sources["hosts"] = "SLURM_STEP_NODELIST"
    nodes = read.number("nodes", "SLURM_STEP_NUM_NODES", least=1, most=MOST_NODES) or len(hosts)
    node_rank = read.number("node_rank", "SLURM_NODEID", most=MOST_NODES)
    task_count = read.number("task_count", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", least=1)
    per_node = _step_counts(read, nodes, task_count)
    if components:
        # Two steps in different components have the same job id and the same step id, but not this.
        step = f"{step}@{hosts[0]}"
    in_order = _rank_order(hosts, nodes, components)
    if found.host in in_order and node_rank is not None and in_order[node_rank : node_rank + 1] != (found.host,):
        in_order = ()  # `srun A : B` in one allocation: the list is sorted, the ranks follow the components
    if components and in_order and per_node:
        tasks = dict(zip(hosts, per_node, strict=True))
        per_node = tuple(tasks[host] for host in in_order)
    is_arbitrary = read.environ.get("SLURM_DISTRIBUTION") == "arbitrary"
    anywhere = not in_order or is_arbitrary
    task_rank = read.number("task_rank", "SLURM_PROCID")
    if is_arbitrary and task_count == nodes and set(per_node) == {1}:
        # JAX and others use the task's rank, and each node has one task. The list is in NODEID's order.
        node_rank, in_order = task_rank, ()
        read.sources["node_rank"] = read.sources.get("task_rank", "SLURM_PROCID")
    return found._replace(
        step=step,
        nodes=nodes,
        node_rank=node_rank,
        hosts=in_order,
        leader_hosts=(in_order or hosts)[:MOST_LEADER_HOSTS] if anywhere else in_order[:1],
        task_rank=task_rank,
        task_count=task_count,
        local_rank=read.number("local_rank", "SLURM_LOCALID"),
        local_count=_local_count(read, per_node, node_rank) if in_order else None,
        tasks_per_node=per_node if in_order else (),
    )


def _in_job(read: Variables, found: JobFacts, hosts: tuple[str, ...], *, is_het: bool) -> JobFacts:
    """Return the facts of the batch script or of salloc's shell, whose own task numbers have no meaning."""
    task_count: int | None = None
    per_node: tuple[int, ...] = ()
    if is_het:
        read.sources["nodes"] = read.sources["hosts"] = "SLURM_JOB_NODELIST_HET_GROUP_*"
        nodes = len(hosts)
    else:
        nodes = read.number("nodes", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", least=1, most=MOST_NODES) or len(hosts)
        task_count = read.number("task_count", "SLURM_NTASKS", least=1)
        per_node = _counts(read, "SLURM_TASKS_PER_NODE")
        if len(per_node) != nodes:
            per_node = ()  # a step's counts, as srun overwrites the job's and mpirun's daemons inherit them
    return found._replace(
        nodes=nodes or None,
        node_rank=0 if nodes == 1 else None,
        hosts=hosts,
        leader_hosts=hosts[:1],
        task_count=task_count,
        local_count=_local_count(read, per_node, 0),
        tasks_per_node=per_node,
        is_batch=nodes > 1,
        on_every_node="srun",
        without_nodes=(  # an ssh shell in which SLURM_JOB_ID was set by hand
            "a step of the job",
            f"SLURM_JOB_ID={found.job_id} alone, as in an ssh shell",
            f"srun --jobid={found.job_id} --overlap in front, or --nodes N",
        ),
    )


def _step(read: Variables) -> str | None:
    """Return the id of an ordinary step, or None in the batch script and in salloc's shell."""
    text = read.digits("step", "SLURM_STEP_ID", "SLURM_STEPID", longest=10, signed=True)
    if text is None or text.startswith("-") or int(text) >= FIRST_SPECIAL_STEP:
        return None
    return str(int(text))


def _components(read: Variables, job_id: str | None) -> list[tuple[str, ...]]:
    """Return the hosts of each component of a heterogeneous job; [] for an ordinary job.

    Variables left over from the submitting job are ignored, as none of them has this job's id.
    """
    groups = range(read.number("components", "SLURM_HET_SIZE", most=MOST_COMPONENTS) or 0)
    if job_id not in {read.environ.get(f"SLURM_JOB_ID_HET_GROUP_{n}") for n in groups}:
        return []
    return [_hosts(read, f"SLURM_JOB_NODELIST_HET_GROUP_{n}") for n in groups]


def _hosts(read: Variables, *names: str) -> tuple[str, ...]:
    text = read.raw("hosts", *names)
    return tuple(dict.fromkeys(expand(text))) if text else ()


def _rank_order(hosts: tuple[str, ...], nodes: int, components: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the step's hosts in the order of SLURM_NODEID, or () if components that share a host hide it.

    A step over several components numbers the nodes of one component after the other, but srun
    sorts its host list (_reorder_het_job_recs in srun.c).
    """
    if not components:
        return hosts
    wanted = set(hosts)
    found = [host for component in components for host in component if host in wanted]
    if len(found) == nodes == len(hosts):
        return tuple(found)
    alone = len(hosts) == nodes and any(wanted.issubset(component) for component in components)
    return hosts if alone else ()


def _counts(read: Variables, name: str) -> tuple[int, ...]:
    text = read.raw("tasks_per_node", name)
    return expand_counts(text) if text else ()


def _step_counts(read: Variables, nodes: int, task_count: int | None) -> tuple[int, ...]:
    """Return a step's tasks on each node, or () if unknown. Raises FactsError for contradictions."""
    per_node = _counts(read, "SLURM_STEP_TASKS_PER_NODE")
    if per_node and (len(per_node) != nodes or task_count not in (None, sum(per_node))):
        seen = f"{len(per_node)} nodes with {sum(per_node)} tasks (SLURM_STEP_TASKS_PER_NODE)"
        remedy = "unset the variable that is left over from another job"
        raise FactsError(f"{task_count or 'some'} tasks on {nodes} nodes", seen, remedy)
    return per_node


def _local_count(read: Variables, per_node: tuple[int, ...], node_rank: int | None) -> int | None:
    if node_rank is None or node_rank >= len(per_node):
        return None
    read.sources["local_count"] = read.sources["tasks_per_node"]
    return per_node[node_rank]


def _gpus(read: Variables) -> int | None:
    """Return the GPUs on this node: Slurm's count, else the length of its list such as ``0-3,6``."""
    counted = read.number("gpus", "SLURM_GPUS_ON_NODE", most=MOST_GPUS)
    listed = read.raw("gpus", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS") if counted is None else None
    return len(expand(f"[{listed}]", most=MOST_GPUS)) if listed else counted


# Variables that enroot's PyTorch hook exports in a task of Slurm, unless the user has set them.
#
# Source: NVIDIA/enroot, conf/hooks/extra/50-slurm-pytorch.sh. It makes every task a rank and sets no NODE_RANK, so
# torchrun in such a task would join no world: mingle replaces these values.
_ENROOT_FIRST_PORT, _ENROOT_PORTS = 61_000, 4_536
_LAST_JOB = 2**32 - 1  # of Slurm's numbers
# Its name -> Slurm's name. All three together identify the hook, as users set fewer.
_ENROOT_NUMBERS = {"RANK": "SLURM_PROCID", "LOCAL_RANK": "SLURM_LOCALID", "WORLD_SIZE": "SLURM_NTASKS"}


def of_enroot(environ: Mapping[str, str]) -> set[str]:
    """Return the names whose values are the hook's, or those of a script like it; an empty set if none ran."""
    if not all(environ.get(name) == environ.get(slurm_name, "") != "" for name, slurm_name in _ENROOT_NUMBERS.items()):
        return set()
    found = set(_ENROOT_NUMBERS)
    job = number(environ.get("SLURM_JOB_ID", ""), most=_LAST_JOB)
    if job is not None and environ.get("MASTER_PORT") == str(job % _ENROOT_PORTS + _ENROOT_FIRST_PORT):
        found.add("MASTER_PORT")
    if environ.get("MASTER_ADDR") and environ["MASTER_ADDR"] == _first_host_of_step(environ):
        found.add("MASTER_ADDR")
    return found


def _first_host_of_step(environ: Mapping[str, str]) -> str | None:
    try:
        return expand(environ.get("SLURM_STEP_NODELIST", ""))[0]
    except FactsError:  # an invalid list is reported where it is needed
        return None
