"""Which scheduler is it: the tables to add a line to, and `detect`, which reads them.

The innermost wins. In order:

1. A *launcher* that started this very process: its task numbers hold, and those of the resource manager
   around it belong to the launcher's daemon or to the job script. From the manager come the job's id and,
   where as many nodes take part as the job has, its hosts. Exception: `srun --mpi=pmi2` and Flux set PMI
   themselves; where the manager's numbers are the same, its facts are the better ones.
2. The resource *manager*: Flux before the others, as it runs inside them; Torque before PBS, as it sets
   PBS's variables too.
3. A *platform*: ranks that were given, then a pod.
"""

from __future__ import annotations

from mingle_hooks.modules import import_module
from mingle_hooks.schedulers.facts import MOST_LEADER_HOSTS, JobFacts
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# (a variable that marks it, the module that reads it). Only the modules whose variable is set are imported.
LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "mpi"),
    ("PALS_RANKID", "pals"),  # sets PMI_RANK too
    ("MV2_COMM_WORLD_RANK", "mpi"),
    ("JSM_NAMESPACE_RANK", "mpi"),
    ("PMI_RANK", "mpi"),
)
MANAGERS = (
    ("FLUX_JOB_ID", "flux"),
    ("SLURM_JOB_ID", "slurm"),
    ("SLURM_JOBID", "slurm"),
    ("PBS_NUM_NODES", "torque"),
    ("PBS_VNODENUM", "torque"),
    ("PBS_NP", "torque"),
    ("PBS_JOBID", "pbs"),
    ("LSB_JOBID", "lsf"),
    ("OAR_JOB_ID", "oar"),
    ("OAR_JOBID", "oar"),
    ("PE_HOSTFILE", "sge"),
    ("SGE_TASK_ID", "sge"),
)
PLATFORMS = (
    ("MASTER_ADDR", "given"),
    ("JOB_COMPLETION_INDEX", "kubernetes"),
    ("KUBERNETES_SERVICE_HOST", "kubernetes"),
)

# What a launcher's tasks inherit from its daemon or from the job script, and is not about themselves.
OF_ANOTHER_PROCESS = frozenset(
    {
        *("SLURM_STEP_ID", "SLURM_STEPID", "SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID"),
        *("PBS_NODENUM", "PBS_TASKNUM", "FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID"),
    }
)


def detect(environ: Mapping[str, str], hostname: str | None = None) -> JobFacts:
    """Return the facts of the innermost scheduler that the environment tells of.

    `hostname` is this host's own name, for managers that list hosts without numbering them.
    Raises FactsError when that scheduler's variables, node file or host list make no sense.
    """
    launched = _first(LAUNCHERS, environ)
    if launched is None:
        found = _first(MANAGERS, environ) or _first(PLATFORMS, environ) or JobFacts(scheduler="none")
        return _numbered(found, hostname)
    if launched.sources["task_rank"] == "PMI_RANK":
        manager = _first(MANAGERS, environ)
        if manager and (manager.task_rank, manager.task_count) == (launched.task_rank, launched.task_count):
            return manager
    outside = {name: value for name, value in environ.items() if name not in OF_ANOTHER_PROCESS}
    job = _first(MANAGERS, outside)
    return _within(launched, job) if job else launched


def _first(table: tuple[tuple[str, str], ...], environ: Mapping[str, str]) -> JobFacts | None:
    for mark, module in table:
        if environ.get(mark):
            adapter = import_module(f"mingle_hooks.schedulers.{module}")
            found: JobFacts | None = adapter.facts(environ)
            if found:
                return found
    return None


def _within(launched: JobFacts, job: JobFacts) -> JobFacts:
    """Complete a launcher's facts by those of the job that it runs in."""
    whole = launched.nodes is not None and launched.nodes == len(job.hosts)
    return launched._replace(
        scheduler=f"{job.scheduler}+{launched.scheduler}",
        job_id=job.job_id,
        restarts=job.restarts,
        hosts=job.hosts if whole else (),
        # A run on part of the job may leave out its first hosts.
        leader_hosts=job.hosts[:1] if whole else job.hosts[:MOST_LEADER_HOSTS],
        cookie=job.cookie,
        sources={**job.sources, **launched.sources},
    )


def _numbered(found: JobFacts, hostname: str | None) -> JobFacts:
    """Fill in the node rank by this host's name, whole or to the first dot, where just one host has it."""
    if found.node_rank is not None or found.is_batch or not hostname:
        return found
    for same in (hostname.__eq__, lambda host: host.split(".")[0] == hostname.split(".")[0]):
        places = [rank for rank, host in enumerate(found.hosts) if same(host)]
        if len(places) == 1:
            return found._replace(node_rank=places[0], sources={**found.sources, "node_rank": "host name"})
    return found
