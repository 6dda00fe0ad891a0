"""`detect` finds the scheduler by the tables below; a new scheduler is a new row.

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

from mingle_hooks import plugins
from mingle_hooks.errors import FactsError
from mingle_hooks.schedulers import pbs, platforms, slurm
from mingle_hooks.schedulers.facts import MOST_LEADER_HOSTS, JobFacts


class Adapter(NamedTuple):
    """A function that reads a scheduler's variables; it is called only if one of `marks` is set.

    `of_process` are the variables about one process, which a launcher's processes inherit from its daemon or from the
    job script.
    """

    facts: Callable[[Mapping[str, str]], JobFacts | None]
    marks: tuple[str, ...]
    of_process: tuple[str, ...] = ()


LAUNCHERS = (
    Adapter(platforms.mpi, ("OMPI_COMM_WORLD_RANK",)),
    Adapter(platforms.pals, ("PALS_RANKID",)),  # sets PMI_RANK too
    Adapter(platforms.mpi, ("MV2_COMM_WORLD_RANK", "JSM_NAMESPACE_RANK", "PMI_RANK")),
)
MANAGERS = (
    Adapter(platforms.flux, ("FLUX_JOB_ID",), ("FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID")),
    Adapter(
        slurm.facts,
        ("SLURM_JOB_ID", "SLURM_JOBID"),
        ("SLURM_STEP_ID", "SLURM_STEPID", "SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID"),
    ),
    Adapter(pbs.torque, ("PBS_NUM_NODES", "PBS_VNODENUM", "PBS_NP"), ("PBS_NODENUM", "PBS_TASKNUM")),
    Adapter(pbs.facts, ("PBS_JOBID",), ("PBS_NODENUM", "PBS_TASKNUM")),
    Adapter(platforms.lsf, ("LSB_JOBID",)),
    Adapter(platforms.oar, ("OAR_JOB_ID", "OAR_JOBID")),
    Adapter(platforms.sge, ("PE_HOSTFILE", "SGE_TASK_ID")),
)
PLATFORMS = (
    Adapter(platforms.given, ("MASTER_ADDR",)),
    Adapter(platforms.kubernetes, ("JOB_COMPLETION_INDEX", "KUBERNETES_SERVICE_HOST")),
)


def detect(environ: Mapping[str, str], hostname: str | None = None, *, asks_plugins: bool = False) -> JobFacts:
    """Return the facts of the innermost scheduler, with those that `mingle run` sets.

    `hostname` is this host's own name, for managers that list hosts without numbering them. With `asks_plugins` plugins
    are tried if no built-in adapter fits; a caller that knows the job's id needs none.
    Raises FactsError if that scheduler's variables, node file or host list are invalid.
    """
    found = _detect(environ, hostname, asks_plugins=asks_plugins)
    return platforms.placed_by_run(found, environ)


def _detect(environ: Mapping[str, str], hostname: str | None, *, asks_plugins: bool) -> JobFacts:
    launched = _first(LAUNCHERS, environ)
    if launched is None:
        found = _first(MANAGERS, environ) or _first(PLATFORMS, environ)
        found = found or (_of_plugin(environ) if asks_plugins else None) or _no_job()
        return _numbered(found, hostname)
    if launched.sources["task_rank"] == "PMI_RANK":
        manager = _first(MANAGERS, environ)
        if manager and (manager.task_rank, manager.task_count) == (launched.task_rank, launched.task_count):
            return manager
    of_another = {name for adapter in MANAGERS for name in adapter.of_process}
    outside = {name: value for name, value in environ.items() if name not in of_another}
    job = _first(MANAGERS, outside) or (_of_plugin(outside) if asks_plugins else None)
    return _within(launched, job) if job else launched


def _first(table: tuple[Adapter, ...], environ: Mapping[str, str]) -> JobFacts | None:
    for adapter in table:
        if any(environ.get(mark) for mark in adapter.marks):
            found = adapter.facts(environ)
            if found:
                return found
    return None


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


_RETURNS = {"facts": ("JobFacts or None", lambda found: found is None or isinstance(found, JobFacts))}


def _no_job() -> JobFacts:
    each = "--id NAME --nodes N on each of N hosts"
    missing = ("a job, or --nodes N", "no job here", f"srun in front, {each}, or --alone for this host only")
    return JobFacts(scheduler="none", shares_homes=False, without_nodes=missing)


def _within(launched: JobFacts, job: JobFacts) -> JobFacts:
    """Return a launcher's facts completed by those of its job."""
    whole = launched.nodes is not None and launched.nodes == len(job.hosts)
    return launched._replace(
        scheduler=f"{job.scheduler}+{launched.scheduler}",
        job_id=job.job_id,
        restarts=job.restarts,
        hosts=job.hosts if whole else (),
        nodes_of_job=None if whole else len(job.hosts) or job.nodes,
        # A launcher on part of the job may leave out its first hosts.
        leader_hosts=job.hosts[:1] if whole else job.hosts[:MOST_LEADER_HOSTS],
        cookie=job.cookie,
        shares_homes=job.shares_homes,
        sources={**job.sources, **launched.sources},
    )


def _numbered(found: JobFacts, hostname: str | None) -> JobFacts:
    """Return the facts with the node rank of this host's name, whole or to the first dot, if it is unique."""
    if found.node_rank is not None or found.is_batch or not hostname:
        return found
    for same in (hostname.__eq__, lambda host: host.split(".")[0] == hostname.split(".")[0]):
        places = [rank for rank, host in enumerate(found.hosts) if same(host)]
        if len(places) == 1:
            return found._replace(node_rank=places[0], sources={**found.sources, "node_rank": "host name"})
    return found
