"""Slurm: one srun for all hosts, beside whatever else runs in the job.

srun reads the variables of the batch script as options of its own, made for the job's tasks: they would give a
supervisor the processors, GPUs and memory of one task. So those that a supervisor needs otherwise are options here,
and those that no option can undo are kept from srun, and given back to the program.

Source: srun(1); env_vars in src/srun/opt.c, the checks in src/common/slurm_opt.c and _copy_job_tres_to_step() of
slurmctld, of Slurm 22.05.8 and 26.05.3.
"""

from __future__ import annotations

from collections.abc import Mapping

from mingle_hooks.errors import FactsError, UsageError
from mingle_hooks.run.starters.allocation import Allocation
from mingle_hooks.run.starters.launch import Launch
from mingle_hooks.schedulers import hostlist
from mingle_hooks.schedulers.slurm import MOST_COMPONENTS, MOST_GPUS
from mingle_hooks.values import number

CARRIES_ENVIRONMENT = True
SIGNALS_REACH_COMMAND = True
TAKES_OPTIONS = True
KILL_WAIT_S = 30.0  # slurm.conf(5), KillWait
CONFIGURATIONS = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")
_LONGEST_CONFIGURATION = 1 << 20

# --overlap: beside the steps that are there. --no-kill, --kill-on-bad-exit, --wait: what ends when is not srun's
# business. --input: a task that reads gets an end of file. --mem: all that the job has on a host. NoPack: a site's
# CR_PACK_NODES would put two tasks on the first host.
_ALWAYS = (
    *("--overlap", "--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--input=none", "--export=ALL", "--mem=0"),
    "--distribution=block,NoPack",
)
# One on a host gets all that the job has there, and is no task of an MPI program: COMMAND may start one.
_PER_NODE = ("--mem-bind=none", "--mpi=none")
# What they do to a step that is not a user's: labels cut lines, a limit or a file name would end or hide it.
_NEVER = (
    *("SLURM_LABELIO", "SLURM_UNBUFFEREDIO", "SLURM_TIMELIMIT", "SLURM_SRUN_MULTI", "SLURM_BCAST"),
    "SRUN_SEGMENT_SIZE",  # what a part of the hosts need not be a multiple of
    # A share of the processors only, or an error beside --overlap.
    *("SLURM_EXACT", "SLURM_EXCLUSIVE", "SLURM_EXTERNAL_LAUNCHER"),
    # Errors beside --ntasks-per-node, or more GPUs than some of the hosts have.
    *("SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_TRES", "SLURM_GPUS"),
)
# What is one task's: -c and --threads-per-core imply --exact.
_OF_A_TASK = (
    *("SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_THREADS_PER_CORE", "SLURM_HINT", "SLURM_NTASKS_PER_CORE"),
    *("SLURM_TRES_PER_TASK", "SLURM_TRES_BIND", "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_NODE"),
    *("SLURM_GRES", "SLURM_CPUS_PER_GPU", "SLURM_GPU_BIND", "SLURM_NSOCKETS_PER_NODE", "SLURM_NCORES_PER_SOCKET"),
)
READS = (
    *_NEVER,
    *_OF_A_TASK,
    *("SLURM_CONF", "SLURM_HOSTFILE", "SLURM_DISTRIBUTION", "SLURM_JOB_END_TIME", "SLURM_JOB_ID", "SLURM_HET_SIZE"),
    *("SLURM_GPUS_ON_NODE", "SLURM_JOB_NODELIST_HET_GROUP_", "SLURM_TASKS_PER_NODE_HET_GROUP_"),
)


def launches(job: Allocation, hosts: tuple[str, ...], program: tuple[str, ...]) -> tuple[Launch, ...]:
    """Return one srun for all hosts that are alike: in one component, with as many supervisors and GPUs.

    Raises UsageError where a host is none of the job's, or nobody knows how many GPUs each has.
    """
    alike: dict[tuple[int | None, int, int | None], list[str]] = {}
    slots = dict(zip(job.hosts, job.slots, strict=True))
    components = {host: its for its, names in reversed(_components(job.environ).items()) for host in names}
    for host in hosts:
        if host not in slots:
            raise UsageError("a host of the job", host, "leaving it out")
        each = slots[host] if job.is_per_task else 1
        alike.setdefault((components.get(host), each, _gpus(job, slots[host])), []).append(host)
    return tuple(
        Launch((*_srun(job, its, component, each, gpus), *program), tuple(its))
        for (component, each, gpus), its in alike.items()
    )


def _srun(job: Allocation, hosts: list[str], component: int | None, each: int, gpus: int | None) -> tuple[str, ...]:
    kept = _NEVER if job.is_per_task else (*_NEVER, *_OF_A_TASK)
    given_back = [f"{name}={job.environ[name]}" for name in kept if name in job.environ]
    without = [word for name in kept if name in job.environ for word in ("-u", name)]
    count = len(hosts)
    options = [
        *(() if component is None else (f"--het-group={component}",)),
        *(f"--nodes={count}", f"--nodelist={hostlist.fold(hosts)}"),
        *(f"--ntasks={count * each}", f"--ntasks-per-node={each}"),
        *(_of_tasks(job.environ) if job.is_per_task else (*_PER_NODE, *_unbound(job.environ))),
        *(() if gpus is None else (f"--gpus-per-node={gpus}",)),
        *job.options,
    ]
    env = ("env", *without) if without else ()
    return (*env, "srun", *_ALWAYS, *options, *(("env", *given_back) if given_back else ()))


def _of_tasks(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a task gets: from 22.05 to 24.05 srun does not take it from the batch script."""
    cpus = environ.get("SRUN_CPUS_PER_TASK") or environ.get("SLURM_CPUS_PER_TASK")
    return (f"--cpus-per-task={cpus}",) if cpus else ()


def _unbound(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return what keeps a task on no processors; nothing where srun would only say that the cluster cannot bind."""
    plugins = _setting(environ, "TaskPlugin")
    return ("--cpu-bind=none",) if plugins is None or "affinity" in plugins else ()


def _gpus(job: Allocation, slots: int) -> int | None:
    """Return how many GPUs a host's supervisor is to ask for; None where it gets the job's own without asking.

    A step that asks for none gets what the job asked for, by task, host or in all. By task that is one task's, and
    in all it may be one for the first host and the rest for the others, or more than a part of the hosts have.
    """
    if job.is_per_task:
        return None
    tres = (job.environ.get("SLURM_TRES_PER_TASK") or "").replace("=", ":").replace("/", ":").split(",")
    by_tres = ",".join(its.removeprefix("gres:gpu:") for its in tres if its.startswith("gres:gpu"))
    if per_task := _total(job.environ.get("SLURM_GPUS_PER_TASK") or by_tres):
        return per_task * slots
    asked = _total(job.environ.get("SLURM_GPUS") or "")
    if not asked:
        return None
    here = number(job.environ.get("SLURM_GPUS_ON_NODE") or str(asked // len(job.hosts)), most=MOST_GPUS)
    if here is None or here * len(job.hosts) != asked:
        raise UsageError(
            "as many GPUs on each host",
            f"--gpus={asked} with {here} on one of {len(job.hosts)} hosts",
            "--gpus-per-node in the job's directives",
        )
    return here


def _total(text: str) -> int:
    """Return the sum of ``a100:4,v100:2`` or ``4``; 0 where that is no number of GPUs."""
    counts_of_types = [number(part.rpartition(":")[2], most=MOST_GPUS) for part in text.split(",")]
    return sum(count or 0 for count in counts_of_types)


def completed(job: Allocation) -> Allocation:
    """Return the allocation with what Slurm says beyond its facts. Raises FactsError."""
    slots = _component_slots(job.environ) or _in_order(job)
    end = number(job.environ.get("SLURM_JOB_END_TIME") or "", least=1, most=2**32)
    wait = number(_setting(job.environ, "KillWait") or "", most=10**6)
    wait_s = job.kill_wait_s if wait is None else float(wait)
    return job._replace(hosts=tuple(slots), slots=tuple(slots.values()), end=end, kill_wait_s=wait_s)


def _in_order(job: Allocation) -> dict[str, int]:
    """Return the job's hosts in rank order with their slots: those of the user's own list, if there is one."""
    told = dict(zip(job.hosts, job.slots, strict=True))
    path = job.environ.get("SLURM_HOSTFILE")
    if job.environ.get("SLURM_DISTRIBUTION") != "arbitrary" or not path or not hostlist.is_readable(path):
        return told
    try:
        own = hostlist.read_nodefile(path)
    except FactsError:  # ranges and other words that only srun reads
        return told
    return own if own.keys() == told.keys() else told


def _component_slots(environ: Mapping[str, str]) -> dict[str, int]:
    """Return the hosts of a heterogeneous job with their slots; none of another."""
    slots: dict[str, int] = {}
    for component, hosts in _components(environ).items():
        per_node = hostlist.expand_counts(environ.get(f"SLURM_TASKS_PER_NODE_HET_GROUP_{component}") or "1")
        its = per_node if len(per_node) == len(hosts) else (1,) * len(hosts)
        for host, count in zip(hosts, its, strict=True):
            slots.setdefault(host, count)
    return slots


def _components(environ: Mapping[str, str]) -> dict[int, tuple[str, ...]]:
    """Return the hosts of each component of a heterogeneous job; an ordinary job has none."""
    size = number(environ.get("SLURM_HET_SIZE") or "", most=MOST_COMPONENTS) or 0
    if environ.get("SLURM_JOB_ID") not in {environ.get(f"SLURM_JOB_ID_HET_GROUP_{n}", "") for n in range(size)}:
        return {}  # left over from the job that submitted this one
    return {n: hostlist.expand(environ.get(f"SLURM_JOB_NODELIST_HET_GROUP_{n}") or "") for n in range(size)}


def _setting(environ: Mapping[str, str], name: str) -> str | None:
    """Return a setting of the first slurm.conf that can be read, of two lines the later."""
    for path in (environ.get("SLURM_CONF") or "", *CONFIGURATIONS):
        try:
            with open(path, errors="replace") as file:
                lines = file.read(_LONGEST_CONFIGURATION).splitlines()
        except OSError:
            continue
        pairs = [line.partition("#")[0].partition("=") for line in lines]
        return next((its.strip() for key, _, its in reversed(pairs) if key.strip().lower() == name.lower()), None)
    return None
