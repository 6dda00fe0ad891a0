"""All schedulers except Slurm and PBS, and `detect`, which finds the active one; to add one, add a function and a row.

The innermost wins, in this order:

1. A *launcher* that started this process: its task numbers count, as those of the resource manager around it belong to
   the launcher's daemon or to the job script. The manager provides the job's id and, if all nodes of the job take
   part, its hosts. Exception: `srun --mpi=pmi2` and Flux set PMI themselves; if the manager has the same numbers, its
   facts are used.
2. The resource *manager*: Flux before the others, as it runs inside them; Torque before PBS, as it sets PBS's
   variables too.
3. A *platform*: given ranks, then a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from mingle_hooks import plugins, values
from mingle_hooks.errors import FactsError
from mingle_hooks.net.addresses import is_hostname
from mingle_hooks.schedulers import facts, pbs, slurm
from mingle_hooks.schedulers.facts import (
    MOST_LEADER_HOSTS,
    MOST_NODES,
    MOST_SLOTS,
    MOST_TASKS,
    JobFacts,
    Slots,
    Variables,
    check_host,
    is_readable,
    node_rank_by_block,
    read_nodefile,
    read_pe_hostfile,
)
from mingle_hooks.values import number


# Flux.
#
# Source: flux-environment(7).
def flux(environ: Mapping[str, str]) -> JobFacts:
    """Return Flux's facts for a task.

    Flux numbers tasks, not nodes, and fills one node after the other by default; if the numbers do not fit that,
    `node_rank` is None. Raises FactsError for an invalid variable.
    """
    read = Variables(environ)
    job_id = read.text("job_id", "FLUX_JOB_ID", pattern="[0-9A-Za-z.\u0192-]+") or ""
    nodes = read.number("nodes", "FLUX_JOB_NNODES", least=1, most=MOST_NODES)
    size = read.number("task_count", "FLUX_JOB_SIZE", least=1)
    rank = read.number("task_rank", "FLUX_TASK_RANK")
    local_rank = read.number("local_rank", "FLUX_TASK_LOCAL_ID")
    local_count = size // nodes if size and nodes and size % nodes == 0 else None
    return JobFacts(
        scheduler="flux",
        # Flux prints an id with a leading florin sign, or f if the locale has none.
        job_id=job_id.replace("\u0192", "f"),
        nodes=nodes,
        node_rank=0 if nodes == 1 else node_rank_by_block(rank, local_rank, local_count),
        task_rank=rank,
        task_count=size,
        local_rank=local_rank,
        # Unknown, as tasks may be distributed unevenly.
        local_count=size if nodes == 1 else None,
        sources=read.sources,
    )


# IBM Spectrum LSF.
#
# Source: LSF's reference, "Environment variables set for job execution".
def lsf(environ: Mapping[str, str]) -> JobFacts:
    """Return LSF's facts.

    LSF does not number the hosts for their tasks: the caller adds the node rank by this host's name.
    Raises FactsError for an invalid variable or host file.
    """
    read = Variables(environ)
    job_id = read.text("job_id", "LSB_JOBID", pattern="[0-9]{1,12}")
    index = read.number("index", "LSB_JOBINDEX", most=4_294_967_295)
    slots = _lsf_slots(read)
    for fact in ("nodes", "tasks_per_node", "task_count") if slots else ():
        read.sources[fact] = read.sources["hosts"]
    return facts.of_slots("lsf", f"{job_id}[{index}]" if index else job_id, slots, read.sources)


def _lsf_slots(read: Variables) -> Slots:
    """Return host -> slots; LSB_HOSTS is not set if it would be too long, the others always are."""
    if text := read.raw("hosts", "LSB_MCPU_HOSTS"):
        return _counted_hosts(text)
    if path := read.raw("hosts", "LSB_DJOB_HOSTFILE"):
        return read_nodefile(path)
    hosts = (read.raw("hosts", "LSB_HOSTS") or "").split()
    return _counted_hosts(" ".join(f"{host} 1" for host in hosts))


def _counted_hosts(text: str) -> Slots:
    """Return host -> slots from a list of hosts, each followed by its slots: ``h1 4 h2 4``."""
    slots: Slots = {}
    words = text.split()
    for host, count in zip(words[::2], [*words[1::2], ""], strict=False):
        if (counted := number(count, least=1, most=MOST_TASKS)) is None:
            raise FactsError("LSB_MCPU_HOSTS such as 'h1 4 h2 4'", repr(text[:80]), "--nodes and --rank")
        slots[check_host(host)] = slots.get(host, 0) + counted
    return slots


# OAR.
#
# Source: OAR's user documentation, "Environment variables".
def oar(environ: Mapping[str, str]) -> JobFacts:
    """Return OAR's facts; each element of an array is its own job.

    Hosts have no numbers: the caller adds the node rank by this host's name.
    Raises FactsError for an invalid variable or node file.
    """
    read = Variables(environ)
    job_id = read.text("job_id", "OAR_JOB_ID", "OAR_JOBID", pattern="[0-9]{1,12}")
    path = read.raw("hosts", "OAR_NODEFILE", "OAR_NODE_FILE", "OAR_FILE_NODES")
    return facts.of_slots("oar", job_id, read_nodefile(path) if path else {}, read.sources)


# Sun, Son of, Open and Univa Grid Engine.
#
# Source: submit(1), "Environmental variables", and sge_pe(5).
def sge(environ: Mapping[str, str]) -> JobFacts | None:
    """Return Grid Engine's facts, or None outside of its jobs.

    PE_HOSTFILE is on the first host only; on the others, where ``qrsh -inherit`` starts tasks, the number of nodes
    is NHOSTS. Hosts have no numbers: the caller adds the node rank by this host's name.
    Raises FactsError for an invalid variable or host file.
    """
    read = Variables(environ)
    job_id = read.text("job_id", "JOB_ID", pattern="[0-9]{1,12}")
    task = read.text("array_task", "SGE_TASK_ID", pattern="undefined|[0-9]{1,12}")
    path = read.raw("hosts", "PE_HOSTFILE")
    if job_id is None:
        return None
    host_count = read.number("nodes", "NHOSTS", least=1, most=MOST_NODES)
    if path and host_count and not is_readable(path):
        path = None
    slots = read_pe_hostfile(path) if path else {}
    nodes = host_count or len(slots) or 1
    element = f"{job_id}.{task}" if task and task != "undefined" else job_id
    tasks = read.number("task_count", "NSLOTS", least=1)
    found = facts.of_slots("sge", element, slots, read.sources)
    return found._replace(nodes=nodes, node_rank=0 if nodes == 1 else None, task_count=tasks)


# Tasks of an MPI launcher: Open MPI, MVAPICH, MPICH's and Intel's Hydra, jsrun.
#
# Source: each one's manual; Open MPI's FAQ "What environment variables are set for my MPI processes".
# The launchers' rank, size, rank on the node, size on the node; the first whose rank is set applies.
# PMI comes last: others set it too.
FAMILIES = (
    *(
        tuple(f"{prefix}_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
        for prefix in ("OMPI_COMM_WORLD", "MV2_COMM_WORLD", "JSM_NAMESPACE")
    ),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
# Names of a launcher's run, the same for all of its tasks: Open MPI 5 and 4, then older ones.
RUNS = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid")
# Such a name: a1b2-c3d4, prterun-node1-42@1, 3823042561.
RUN = "[A-Za-z0-9._:@+,-]+"


def mpi(environ: Mapping[str, str]) -> JobFacts:
    """Return an MPI launcher's facts for a task.

    Launchers do not count nodes: `nodes` and `node_rank` assume that each node has as many tasks as this one, filled in
    order, and are None if that is impossible. `step` is the name of the launcher's run, if it has one. Raises
    FactsError for an invalid variable.
    """
    read = Variables(environ)
    family = next(names for names in FAMILIES if environ.get(names[0]))
    rank = read.number("task_rank", family[0])
    size = read.number("task_count", family[1], least=1)
    local_rank = read.number("local_rank", family[2])
    local_count = read.number("local_count", family[3], least=1)
    read.sources["nodes"] = read.sources["node_rank"] = f"{family[1]} and {family[3]}"
    found = _launched(read, "mpi", RUNS, size, local_count)
    node_rank = 0 if found.nodes == 1 else node_rank_by_block(rank, local_rank, local_count)
    return found._replace(shares_homes=False, node_rank=node_rank, task_rank=rank, local_rank=local_rank)


def _launched(
    read: Variables, scheduler: str, runs: tuple[str, ...], size: int | None, local_count: int | None
) -> JobFacts:
    """Return what is the same for all tasks of a launcher's run, if each node has as many tasks as this one.

    If nodes differ, their results differ, so no world can form with a wrong number.
    """
    nodes = 1 if size == 1 else size // local_count if size and local_count and size % local_count == 0 else None
    return JobFacts(
        scheduler,
        step=read.text("step", *runs, pattern=RUN) or "",
        nodes=nodes,
        task_count=size,
        local_count=local_count,
        tasks_per_node=(local_count,) * nodes if nodes and local_count else (),
        sources=read.sources,
    )


# PALS, the launcher of HPE Cray systems, inside PBS or Slurm.
#
# Source: mpiexec(1) of PALS, "Environment variables".
def pals(environ: Mapping[str, str]) -> JobFacts:
    """Return PALS's facts for a task.

    PALS numbers nodes but does not count them: `nodes` assumes that each node has as many tasks as this one. Raises
    FactsError for an invalid variable.
    """
    read = Variables(environ)
    rank = read.number("task_rank", "PALS_RANKID")
    size = read.number("task_count", "PALS_SIZE", "PMI_SIZE", least=1)
    local_count = read.number("local_count", "PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE", least=1)
    read.sources["nodes"] = f"{read.sources.get('task_count')} and {read.sources.get('local_count')}"
    node_rank = read.number("node_rank", "PALS_NODEID", most=MOST_NODES)
    local_rank = read.number("local_rank", "PALS_LOCAL_RANKID")
    found = _launched(read, "pals", ("PALS_APID",), size, local_count)
    return found._replace(node_rank=node_rank, task_rank=rank, local_rank=local_rank)


# JobFacts.without_nodes of platforms, which do not count nodes.
COUNT_MEMBERS = ("the number of members", "none", "--nodes N, MINGLE_NODES or NNODES; or --alone for this node only")

# Ranks that a platform gives: VESSL's runs, Toolkit's replicas and Kubeflow's training jobs.
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# In a pod a world of one on loopback is real: Kubernetes operators give it to a job's only replica.
_POD = "KUBERNETES_SERVICE_HOST"


def given(environ: Mapping[str, str]) -> JobFacts | None:
    """Return the given ranks, or None without both NODE_RANK and RANK.

    The variables of an earlier mingle (with MINGLE_ID) do not count, nor does a world of one on loopback. A RANK
    without LOCAL_RANK is that of a replica, and replicas are members; one with LOCAL_RANK is that of a process, and the
    nodes are groups, as in torchrun. Kubeflow's PyTorchJob counts replicas by PET_NNODES, and by WORLD_SIZE processes,
    or replicas too. Raises FactsError for an invalid variable.
    """
    named = environ.get("NODE_RANK") or environ.get("RANK")
    address = environ.get("MASTER_ADDR")
    # Outside of pods a world of one on loopback is left over from a trial on one machine.
    is_trial = address in _LOOPBACK and environ.get("WORLD_SIZE") == "1" and not environ.get(_POD)
    if environ.get("MINGLE_ID") or not named or is_trial:
        return None
    read = Variables(environ)
    is_task = bool(environ.get("LOCAL_RANK"))
    rank_names, count_names = ["NODE_RANK", "GROUP_RANK"], ["NUM_NODES", "NNODES", "GROUP_WORLD_SIZE"]
    if not is_task and not environ.get("NODE_RANK"):
        is_counted = environ.get("PET_NNODES", "").isdecimal()  # and no range, as in an elastic job
        rank_names += ["PET_NODE_RANK", "RANK"] if is_counted else ["RANK"]
        count_names += ["PET_NNODES"] if is_counted else ["WORLD_SIZE"]
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


# A Kubernetes pod, preferably of an Indexed Job.
#
# Source: Kubernetes' documentation, "Indexed Job": JOB_COMPLETION_INDEX, and host names JOB-INDEX.
def kubernetes(environ: Mapping[str, str]) -> JobFacts:
    """Return Kubernetes' facts; a pod does not know the number of pods.

    Raises FactsError for an index that is no number.
    """
    read = Variables(environ)
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


# `mingle run` sets the members of an attempt and their order.
#
# MINGLE_RUN is one JSON object with fields of JobFacts; the scheduler provides the others.
RUN_VARIABLE = "MINGLE_RUN"
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
    """Return a scheduler's facts with the fields of MINGLE_RUN. Raises FactsError."""
    text = environ.get(RUN_VARIABLE)
    if not text:
        return found
    try:
        run_facts = values.from_json(text.encode(errors="surrogateescape"))
    except (ValueError, RecursionError):
        run_facts = None
    if not isinstance(run_facts, dict):
        raise _bad_run("one JSON object")
    for name, value in run_facts.items():
        if not _is_valid(name, value):
            raise _bad_run(f"a valid {name}")
    hosts = tuple(run_facts.get("hosts", ()))
    fields = {**run_facts, **({"hosts": hosts} if "hosts" in run_facts else {}), "leader_hosts": hosts[:1]}
    sources = {**found.sources, **dict.fromkeys(fields, RUN_VARIABLE)}
    none = {"slot": None, "is_batch": False, "nodes_of_job": None, "tasks_per_node": ()}
    return found._replace(**{**none, **fields, "sources": sources})


def _is_valid(name: str, value: object) -> bool:
    if name in ("job_id", "step"):
        return isinstance(value, str) and value.isprintable() and len(value) <= values.LONGEST_ID
    if name == "hosts":
        hosts = value if isinstance(value, list) and len(value) <= MOST_NODES else [None]
        return all(isinstance(host, str) and is_hostname(host) for host in hosts)
    return type(value) is int and 0 <= value <= _NUMBERS.get(name, -1)


def _bad_run(expected: str) -> FactsError:
    remedy = f"unset {RUN_VARIABLE}, which only `mingle run` sets"
    return FactsError(f"{expected} from `mingle run`", f"something else in {RUN_VARIABLE}", remedy)


# The tables, and the search in them.


class Adapter(NamedTuple):
    """A function that reads a scheduler's variables; it is called only if one of `marks` is set, and not empty.

    It returns None if this is no job after all.

    `of_process` are the variables about one process, which a launcher's processes inherit from its daemon or from the
    job script.
    """

    facts: Callable[[Mapping[str, str]], JobFacts | None]
    marks: tuple[str, ...]
    of_process: tuple[str, ...] = ()


LAUNCHERS = (
    Adapter(mpi, ("OMPI_COMM_WORLD_RANK",)),
    Adapter(pals, ("PALS_RANKID",)),  # sets PMI_RANK too
    Adapter(mpi, ("MV2_COMM_WORLD_RANK", "JSM_NAMESPACE_RANK", "PMI_RANK")),
)
MANAGERS = (
    Adapter(flux, ("FLUX_JOB_ID",), ("FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID")),
    Adapter(
        slurm.facts,
        ("SLURM_JOB_ID", "SLURM_JOBID"),
        ("SLURM_STEP_ID", "SLURM_STEPID", "SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID"),
    ),
    Adapter(pbs.torque, ("PBS_NUM_NODES", "PBS_VNODENUM", "PBS_NP"), ("PBS_NODENUM", "PBS_TASKNUM")),
    Adapter(pbs.facts, ("PBS_JOBID",), ("PBS_NODENUM", "PBS_TASKNUM")),
    Adapter(lsf, ("LSB_JOBID",)),
    Adapter(oar, ("OAR_JOB_ID", "OAR_JOBID")),
    Adapter(sge, ("PE_HOSTFILE", "SGE_TASK_ID")),
)
PLATFORMS = (
    Adapter(given, ("MASTER_ADDR",)),
    Adapter(kubernetes, ("JOB_COMPLETION_INDEX", "KUBERNETES_SERVICE_HOST")),
)


def detect(environ: Mapping[str, str], hostname: str | None = None, *, asks_plugins: bool = False) -> JobFacts:
    """Return the facts of the innermost scheduler, with those that `mingle run` sets.

    `hostname` is this host's own name, for managers that list hosts without numbering them. With `asks_plugins` plugins
    are tried if no built-in adapter fits; a caller that knows the job's id needs none.
    Raises FactsError if that scheduler's variables, node file or host list are invalid.
    """
    return placed_by_run(_detect(environ, hostname, asks_plugins=asks_plugins), environ)


def _detect(environ: Mapping[str, str], hostname: str | None, *, asks_plugins: bool) -> JobFacts:
    launched = _first(LAUNCHERS, environ)
    if launched is None:
        found = _first(MANAGERS, environ) or _first(PLATFORMS, environ)
        found = found or (_of_plugin(environ) if asks_plugins else None) or _NO_JOB
        return _numbered(found, hostname)
    if launched.sources["task_rank"] == "PMI_RANK":
        manager = _first(MANAGERS, environ)
        if manager and (manager.task_rank, manager.task_count) == (launched.task_rank, launched.task_count):
            return manager
    of_another = {name for adapter in MANAGERS for name in adapter.of_process}
    outside = {name: value for name, value in environ.items() if name not in of_another}
    job = _first(MANAGERS, outside) or (_of_plugin(outside) if asks_plugins else None)
    return _within(launched, job, hostname) if job else launched


def _first(table: tuple[Adapter, ...], environ: Mapping[str, str]) -> JobFacts | None:
    marked = (adapter for adapter in table if any(map(environ.get, adapter.marks)))
    return next((found for adapter in marked if (found := adapter.facts(environ))), None)


def _of_plugin(environ: Mapping[str, str]) -> JobFacts | None:
    """Return the facts of the first plugin that knows this job; raise a broken plugin's error if none does."""
    broken: FactsError | None = None
    for name in plugins.names(plugins.SCHEDULERS):
        try:
            plugin = plugins.find(plugins.SCHEDULERS, name, Adapter, _RETURNS)
            found = _first((plugin,), environ) if plugin else None
        except FactsError as error:
            broken = broken or error
            continue
        if found is not None:
            return found
    if broken is not None:
        raise broken
    return None


_WAYS = "srun in front, --id NAME --nodes N on each of N hosts, or --alone for this host only"
_NO_JOB = JobFacts("none", shares_homes=False, without_nodes=("a job, or --nodes N", "no job here", _WAYS))
_RETURNS = {"facts": ("JobFacts or None", lambda found: found is None or isinstance(found, JobFacts))}


def _within(launched: JobFacts, job: JobFacts, hostname: str | None) -> JobFacts:
    """Return a launcher's facts completed by those of its job."""
    whole = launched.nodes is not None and launched.nodes == len(job.hosts)
    place = _place(job.hosts, hostname)
    in_order = whole and (place is None or launched.node_rank in (None, place))  # not mpirun --host node2,node1
    return launched._replace(
        scheduler=f"{job.scheduler}+{launched.scheduler}",
        job_id=job.job_id,
        restarts=job.restarts,
        hosts=job.hosts if in_order else (),
        nodes_of_job=None if whole else len(job.hosts) or job.nodes,
        # A launcher on part of the job may leave out its first hosts.
        leader_hosts=job.hosts[:1] if in_order else job.hosts[:MOST_LEADER_HOSTS],
        cookie=job.cookie,
        shares_homes=job.shares_homes,
        sources={**job.sources, **launched.sources},
    )


def _numbered(found: JobFacts, hostname: str | None) -> JobFacts:
    """Return the facts with the node rank of this host's name, whole or to the first dot, if it is unique."""
    if found.node_rank is not None or found.is_batch or (place := _place(found.hosts, hostname)) is None:
        return found
    return found._replace(node_rank=place, sources={**found.sources, "node_rank": "host name"})


def _place(hosts: tuple[str, ...], hostname: str | None) -> int | None:
    if not hostname:
        return None
    for same in (hostname.__eq__, lambda host: host.split(".")[0] == hostname.split(".")[0]):
        places = [place for place, host in enumerate(hosts) if same(host)]
        if len(places) == 1:
            return places[0]
    return None
