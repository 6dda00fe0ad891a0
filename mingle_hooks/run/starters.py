"""Starters: how each scheduler starts a program on the hosts of a job, a row each in the table at the end.

It also finds a run's hosts, and packs its agents' environment: as bytes, and in a file that only this user can read
for starters that pass no environment on.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from shutil import which
from typing import Literal, NamedTuple

from mingle_hooks.errors import FactsError, PlaceError, UsageError, reason
from mingle_hooks.files import network_type, write_new
from mingle_hooks.net.addresses import HOST_CHARACTERS, hostname
from mingle_hooks.schedulers import pbs
from mingle_hooks.schedulers.facts import JobFacts, expand, expand_counts, fold, is_readable, read_nodefile
from mingle_hooks.schedulers.slurm import MOST_COMPONENTS, MOST_GPUS
from mingle_hooks.values import number

# The grace period is this much shorter than the scheduler's own wait, to leave time to report the end.
_MARGIN_S = 2.0
# How long squeue and qstat may take, in seconds.
_ASK_S = 2.0
# For a run that nobody else ends.
KILL_WAIT_S = 30.0


class Place(NamedTuple):
    """Where one agent runs: a host, and its number among those there."""

    host: str
    local: int


def places_on(hosts: Iterable[str], counts: Iterable[int]) -> tuple[Place, ...]:
    """Return so many places on each of these hosts, host by host."""
    return tuple(Place(host, local) for host, count in zip(hosts, counts, strict=True) for local in range(count))


class Allocation(NamedTuple):
    """The hosts of a run in rank order, with their slots; with `is_per_task` each slot gets an agent.

    `end` is when the scheduler ends the job, in seconds since 1970; `kill_wait_s` how long it waits between TERM and
    KILL; `own` this host's name among `hosts`; `environ` those variables that the scheduler's starter reads, none
    of them secret.
    """

    hosts: tuple[str, ...]
    slots: tuple[int, ...]
    job_id: str | None = None
    end: int | None = None
    kill_wait_s: float = KILL_WAIT_S
    own: str | None = None
    is_per_task: bool = False
    environ: Mapping[str, str] = {}
    options: tuple[str, ...] = ()  # a person's own, for the scheduler's starter

    @property
    def grace_s(self) -> float:
        """How long TERM may take before KILL, so that this is over before the scheduler's own KILL."""
        return max(self.kill_wait_s - _MARGIN_S, self.kill_wait_s / 2)

    @property
    def agents(self) -> tuple[int, ...]:
        """How many agents each host gets."""
        return self.slots if self.is_per_task else (1,) * len(self.hosts)


class Launch(NamedTuple):
    """A process to start here, with the caller's environment, which starts the program on `hosts`.

    Nothing in `argv` is secret: everybody on a host can read the command lines of its processes.
    """

    argv: tuple[str, ...]
    hosts: tuple[str, ...]
    stdin: bytes | None = None


# From a job, hosts and a program's argv, the processes that start it on these hosts.
Launches = Callable[[Allocation, tuple[str, ...], tuple[str, ...]], tuple[Launch, ...]]


class Starter(NamedTuple):
    """How one scheduler starts a program; `help` names for people what starts it.

    `kill_wait_s` is how long the scheduler waits between TERM and KILL, where nothing else tells; `keeps` are prefixes
    of the variables that are each host's own, where they do not travel by themselves; `reads` those of the variables,
    none secret, that the starter needs to know; `completed` adds what the scheduler knows beyond its facts.
    """

    name: str
    help: str
    start: Launches
    kill_wait_s: float
    # How a program gets the caller's environment: as its own, from its stdin, or from a file.
    environment: Literal["own", "stdin", "file"] = "file"
    # One call starts it on all hosts, and each finds its own place: SLURMD_NODENAME, SLURM_LOCALID.
    is_at_once: bool = False
    signals_reach_command: bool = False  # the scheduler's signals reach COMMAND's processes, not the agent alone
    takes_options: bool = False  # it knows `Allocation.options`
    cancel: tuple[str, ...] = ()  # what ends a job, before the job's id
    # A scheduler's program by its name or path, from the environment that should find it.
    found: Callable[[str, Mapping[str, str]], str] = lambda name, _: name
    keeps: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    completed: Callable[[Allocation], Allocation] = lambda job: job
    # When it ends the job, where no variable says so: to ask takes 20 ms and more.
    asked_end: Callable[[Allocation], int | None] = lambda _: None

    def launches(self, job: Allocation, hosts: tuple[str, ...], program: tuple[str, ...]) -> tuple[Launch, ...]:
        """Return what starts a program once on each of these hosts, with no arguments or variables but its own."""
        return self.start(job._replace(is_per_task=False), hosts, program)

    def agent_launches(
        self, job: Allocation, hosts: tuple[str, ...], program: tuple[str, ...], environ: bytes, file: str | None
    ) -> tuple[Launch, ...]:
        """Return what starts an agent on all places of these hosts, each with an environment (see packed).

        The processes here get that environment, too. `file` holds it if the starter needs one.
        """
        if self.is_at_once:
            return self.start(job, hosts, program)
        launches: list[Launch] = []
        keeps = ("--keep", ",".join(self.keeps)) if self.keeps else ()
        is_stdin = self.environment == "stdin"
        source = ("--stdin", *keeps) if is_stdin else ("--environ", file, *keeps) if file else ()
        for host, local in places_on(job.hosts, job.agents):
            argv = (*program, "--host", host, "--local", str(local))
            if host == job.own and host in hosts:
                launches.append(Launch(argv, (host,)))
            elif host in hosts:
                found = self.launches(job, (host,), (*argv, *source))
                launches += [launch._replace(stdin=environ if is_stdin else None) for launch in found]
        return tuple(launches)


_SCRIPT = "the job's script, or its interactive shell"
_INSTEAD = "`mingle exec COMMAND` in its place, or `mingle run` in the job's script, with nothing in front of it"
_ON_EACH = "`mingle exec COMMAND` on each of its hosts, or --hosts node1,node2"


def listed(text: str) -> tuple[str, ...]:
    """Return the hosts of --hosts in its order, such as ``a,b`` and ``node[1-4]``. Raises UsageError."""
    try:
        hosts = expand(text)
    except FactsError as error:
        raise UsageError("hosts such as node1,node2 or node[1-4]", error.seen, "--hosts node1,node2") from None
    if len(set(hosts)) != len(hosts):
        twice = next(host for host in hosts if hosts.count(host) > 1)
        raise UsageError("each host once in --hosts", f"{twice} more than once", "--hosts with each name once")
    return hosts


def _check_script(facts: JobFacts, environ: Mapping[str, str]) -> None:
    """Raise FactsError unless this is the script of a job whose scheduler starts programs on its hosts."""
    if facts.scheduler not in _BY_NAME:
        raise _no_starter(facts)
    if facts.step:
        raise FactsError(_SCRIPT, f"a task of step {facts.step}", _INSTEAD)
    if facts.task_rank is not None:
        raise FactsError(_SCRIPT, f"its task {facts.task_rank}", _INSTEAD)
    if not facts.hosts:
        without = ("the job's hosts", "no list of them here", "--hosts node1,node2")
        raise FactsError(*(facts.without_nodes or without))
    # Scripts run on the first host, where there may be tasks, too: PBS marks its own.
    is_task = facts.node_rank != 0 or bool(environ.get("PBS_TASKNUM"))
    if len(facts.hosts) > 1 and not facts.is_batch and facts.node_rank is not None and is_task:
        raise FactsError(_SCRIPT, f"a task on host {facts.node_rank + 1} of {len(facts.hosts)}", _INSTEAD)


def _no_starter(facts: JobFacts) -> FactsError:
    expected = "a job of a scheduler that starts programs on its hosts, or --hosts"
    if facts.scheduler == "none":
        return FactsError(expected, "no job here", "--hosts node1,node2, or --hosts localhost for this machine alone")
    is_launched = "+" in facts.scheduler  # by a launcher such as mpirun, in a job's script
    return FactsError(expected, f"a process that {facts.scheduler} started", _INSTEAD if is_launched else _ON_EACH)


# The environment holds the run's key, so it is never on a command line. Every host has to see the file.
_PREFIX = ".mingle."
_RANDOM_BYTES = 8


def packed(environ: Mapping[str, str]) -> bytes:
    """Return an environment as ``NAME=VALUE`` with a NUL after each, as /proc/PID/environ has it."""
    return b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environ.items())


def directories(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return directories that all hosts may share, best first: the working directory and the home.

    A network file system comes first, then a path that any shell reads as it is.
    """
    places = [environ.get("HOME", "")]
    with suppress(OSError):  # it has been removed
        places.insert(0, os.getcwd())
    absolute = dict.fromkeys(filter(os.path.isabs, places))
    return tuple(sorted(absolute, key=lambda place: (not network_type(place), not _is_plain(place))))


def write_environ(environ: Mapping[str, str], within: tuple[str, ...]) -> str:
    """Write the environment to a new file in the first of these directories that takes it, and return its path.

    Raises PlaceError.
    """
    wrong = "no directory that all hosts see"
    for directory in within:
        path = os.path.join(directory, f"{_PREFIX}{os.urandom(_RANDOM_BYTES).hex()}")
        try:
            write_new(path, packed(environ))
        except OSError as error:
            wrong = f"{directory}: {error.strerror}"
        else:
            return path
    raise PlaceError(
        "to write a file that all hosts of the job see",
        wrong,
        "`mingle run` in a directory of your own that they share",
    )


# Sites differ in whether a shell on the host expands arguments once more: these are the same either way.
_PLAIN = HOST_CHARACTERS + "/@%+=:,"


def _is_plain(text: str) -> bool:
    """Return whether a shell reads this as one argument, unchanged."""
    return bool(text) and not text.strip(_PLAIN)


def _plain_argv(program: tuple[str, ...]) -> tuple[str, ...]:
    """Return argv as it is. Raises UsageError for an argument that a shell might change."""
    for argument in program:
        if not _is_plain(argument):
            raise UsageError(
                "paths of letters, digits and /._-, because this scheduler's shells may expand them again",
                repr(argument),
                "mingle, its Python and the working directory at paths without other characters",
            )
    return program


_LONGEST_S = 10 * 365 * 24 * 3600


def end_of_job(seconds: str) -> int | None:
    """Return when a job of so many seconds ends, in seconds since 1970; None where nobody can tell.

    The script is the session's leader, or an interactive shell is, and begins with the job. proc(5): field 22 of
    /proc/PID/stat counts from the boot, whose time is in /proc/stat.
    """
    allowed = number(seconds, least=1, most=_LONGEST_S)
    # hidepid=2, or the session's leader is of another pid namespace.
    with suppress(OSError, StopIteration), open(f"/proc/{os.getsid(0)}/stat") as leader, open("/proc/stat") as file:
        ticks = int(leader.read().rpartition(")")[2].split()[19])
        boot = next(int(line.split()[1]) for line in file if line.startswith("btime "))
        return None if allowed is None else boot + ticks // os.sysconf("SC_CLK_TCK") + allowed
    return None


def _ends_by(name: str) -> Callable[[Allocation], Allocation]:
    """Return a function that adds a job's end, by the variable that holds how long it may run."""
    return lambda job: job._replace(end=end_of_job(job.environ.get(name, "")))


def _each(argv: Callable[[Allocation, str, tuple[str, ...]], tuple[str, ...]]) -> Launches:
    """Return what starts a program on each host by a command line of its own."""
    return lambda job, hosts, program: tuple(Launch(argv(job, host, program), (host,)) for host in hosts)


# PBS's programs are on PATH only where a login shell has read /etc/profile.d/pbs.sh: not in a job script of every
# shell, nor where a user's own start-up file sets PATH. The configuration names their place everywhere.
# Source: pbs.conf, in the PBS Administrator's Guide.
_PBS_READS = ("PATH", "PBS_CONF_FILE")


def _of_pbs(name: str, environ: Mapping[str, str]) -> str:
    """Return one of PBS's programs: its name where PATH has it, else its path below PBS_EXEC of pbs.conf, if any."""
    if which(name, path=environ.get("PATH", os.defpath)):
        return name
    place = pbs.programs(environ.get("PBS_CONF_FILE") or pbs.CONFIGURATION)
    return os.path.join(place, name) if place else name


def _pbs_end(job: Allocation) -> int | None:
    """Return when PBS ends a job by its walltime, which no variable has. Source: qstat(1B)."""
    said = _asked(_of_pbs("qstat", job.environ), "-f", job.job_id or "")
    found = re.search(r"^\s*Resource_List\.walltime = (\d{1,6}):(\d\d):(\d\d)$", said, re.MULTILINE)
    if found is None:  # no limit, or no answer
        return None
    hours, minutes, seconds = map(int, found.groups())
    return end_of_job(str((hours * 60 + minutes) * 60 + seconds))


def _asked(*argv: str) -> str:
    """Return what a scheduler's command prints; nothing where it does not answer in time."""
    import subprocess

    environ = {**os.environ, "SLURM_TIME_FORMAT": "standard"}
    try:
        return subprocess.run(  # noqa: S603 - no words of others
            argv, env=environ, capture_output=True, text=True, errors="replace", timeout=_ASK_S, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


# Flux: a `flux exec` to each host of the instance that a batch script or `flux start` has for itself. It has this
# process's environment and directory, takes argv as it is, and does not wait for resources.
# Source: flux-exec(1), flux-broker-attributes(7), hostlist, flux-environment(7), and src/cmd/flux-exec.c.
_FLUX_HOSTS = ("flux", "getattr", "hostlist")
_FLUX_S = 30.0


def _flux_hosts(job: Allocation) -> Allocation:
    """Return the allocation with the hosts of the instance, one slot each. Raises FactsError."""
    import subprocess  # 10 ms, which members of other schedulers need not wait

    try:
        done = subprocess.run(_FLUX_HOSTS, stdin=subprocess.DEVNULL, capture_output=True, timeout=_FLUX_S, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise FactsError("an answer of `flux getattr hostlist`", reason(error), "to run it yourself") from None
    hosts = expand(done.stdout.decode("ascii", "backslashreplace").strip())
    name = job.environ.get("FLUX_ENCLOSING_ID", "").replace("\u0192", "f")
    return job._replace(hosts=hosts, slots=(1,) * len(hosts), own=None, job_id=name or None)


# Slurm: one srun for all hosts, beside whatever else runs in the job. srun reads the variables of the batch script as
# options of its own, made for the job's tasks: they would give an agent the processors, GPUs and memory of one
# task. So those that an agent needs otherwise are options here, and those that no option can undo are kept from
# srun, and given back to the program.
# Source: srun(1); env_vars in src/srun/opt.c, the checks in src/common/slurm_opt.c and _copy_job_tres_to_step() of
# slurmctld, of Slurm 22.05.8 and 26.05.3.
_SLURM_CONFIGURATIONS = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")
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
# These harm a step that is not the user's own: labels cut lines, a limit would end it, a file name would hide it.
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
_SLURM_READS = (
    *_NEVER,
    *_OF_A_TASK,
    *("SLURM_CONF", "SLURM_HOSTFILE", "SLURM_DISTRIBUTION", "SLURM_JOB_END_TIME", "SLURM_JOB_ID", "SLURM_HET_SIZE"),
    *("SLURM_GPUS_ON_NODE", "SLURM_JOB_NODELIST_HET_GROUP_", "SLURM_TASKS_PER_NODE_HET_GROUP_"),
)


def slurm(job: Allocation, hosts: tuple[str, ...], program: tuple[str, ...]) -> tuple[Launch, ...]:
    """Return one srun for all hosts that are alike: in one component, with as many agents and GPUs.

    Raises UsageError for a host that is not the job's, and where it is unknown how many GPUs each has.
    """
    alike: dict[tuple[int | None, int, int | None], list[str]] = {}
    slots = dict(zip(job.hosts, job.slots, strict=True))
    components = {host: number for number, names in reversed(_components(job.environ).items()) for host in names}
    for host in hosts:
        if host not in slots:
            raise UsageError("a host of the job", host, "leaving it out")
        each = slots[host] if job.is_per_task else 1
        alike.setdefault((components.get(host), each, _gpus(job, slots[host])), []).append(host)
    return tuple(
        Launch((*_srun(job, some, component, each, gpus), *program), tuple(some))
        for (component, each, gpus), some in alike.items()
    )


def _srun(job: Allocation, hosts: list[str], component: int | None, each: int, gpus: int | None) -> tuple[str, ...]:
    hidden = _NEVER if job.is_per_task else (*_NEVER, *_OF_A_TASK)
    given_back = [f"{name}={job.environ[name]}" for name in hidden if name in job.environ]
    without = [argument for name in hidden if name in job.environ for argument in ("-u", name)]
    count = len(hosts)
    options = [
        *(() if component is None else (f"--het-group={component}",)),
        *(f"--nodes={count}", f"--nodelist={fold(hosts)}"),
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
    plugins = _slurm_setting(environ, "TaskPlugin")
    return ("--cpu-bind=none",) if plugins is None or "affinity" in plugins else ()


def _gpus(job: Allocation, slots: int) -> int | None:
    """Return how many GPUs a host's agent is to ask for; None if it gets the job's own without asking.

    A step that asks for none gets what the job asked for, by task, host or in all. By task that is one task's, and
    in all it may be one for the first host and the rest for the others, or more than a part of the hosts have.
    """
    if job.is_per_task:
        return None
    tres = (job.environ.get("SLURM_TRES_PER_TASK") or "").replace("=", ":").replace("/", ":").split(",")
    by_tres = ",".join(part.removeprefix("gres:gpu:") for part in tres if part.startswith("gres:gpu"))
    if per_task := _total(job.environ.get("SLURM_GPUS_PER_TASK") or by_tres):
        return per_task * slots
    total = _total(job.environ.get("SLURM_GPUS") or "")
    if not total:
        return None
    here = number(job.environ.get("SLURM_GPUS_ON_NODE") or str(total // len(job.hosts)), most=MOST_GPUS)
    if here is None or here * len(job.hosts) != total:
        raise UsageError(
            "as many GPUs on each host",
            f"--gpus={total} with {here} on one of {len(job.hosts)} hosts",
            "--gpus-per-node in the job's directives",
        )
    return here


def _total(text: str) -> int:
    """Return the sum of ``a100:4,v100:2`` or ``4``; 0 where that is no number of GPUs."""
    counts_of_types = [number(part.rpartition(":")[2], most=MOST_GPUS) for part in text.split(",")]
    return sum(count or 0 for count in counts_of_types)


def _slurm_completed(job: Allocation) -> Allocation:
    """Return the allocation with what Slurm knows beyond its facts. Raises FactsError."""
    slots = _component_slots(job.environ) or _slots_in_order(job)
    end = number(job.environ.get("SLURM_JOB_END_TIME") or "", least=1, most=2**32)
    return job._replace(hosts=tuple(slots), slots=tuple(slots.values()), end=end)


def _slurm_end(job: Allocation) -> int | None:
    """Return when Slurm ends a job, in seconds since 1970, as squeue says: before 23.02 no variable has it."""
    running = "--states=RUNNING"  # the end of a job that is being cancelled is the time of that
    try:
        said = _asked("squeue", "--noheader", "--format=%e", running, f"--jobs={job.job_id}").split()[0]
        return int(time.mktime(time.strptime(said, "%Y-%m-%dT%H:%M:%S")))
    except (ValueError, IndexError, OverflowError):  # no limit, or no answer
        return None


def _slots_in_order(job: Allocation) -> dict[str, int]:
    """Return the job's hosts in rank order with their slots: those of the user's own list, if there is one."""
    usual = dict(zip(job.hosts, job.slots, strict=True))
    path = job.environ.get("SLURM_HOSTFILE")
    if job.environ.get("SLURM_DISTRIBUTION") != "arbitrary" or not path or not is_readable(path):
        return usual
    try:
        own = read_nodefile(path)
    except FactsError:  # ranges and other words that only srun reads
        return usual
    return own if own.keys() == usual.keys() else usual


def _component_slots(environ: Mapping[str, str]) -> dict[str, int]:
    """Return the hosts of a heterogeneous job with their slots; none of another."""
    slots: dict[str, int] = {}
    for component, hosts in _components(environ).items():
        per_node = expand_counts(environ.get(f"SLURM_TASKS_PER_NODE_HET_GROUP_{component}") or "1")
        counts = per_node if len(per_node) == len(hosts) else (1,) * len(hosts)
        for host, count in zip(hosts, counts, strict=True):
            slots.setdefault(host, count)
    return slots


def _components(environ: Mapping[str, str]) -> dict[int, tuple[str, ...]]:
    """Return the hosts of each component of a heterogeneous job; an ordinary job has none."""
    size = number(environ.get("SLURM_HET_SIZE") or "", most=MOST_COMPONENTS) or 0
    if environ.get("SLURM_JOB_ID") not in {environ.get(f"SLURM_JOB_ID_HET_GROUP_{n}", "") for n in range(size)}:
        return {}  # left over from the job that submitted this one
    return {n: expand(environ.get(f"SLURM_JOB_NODELIST_HET_GROUP_{n}") or "") for n in range(size)}


def _slurm_setting(environ: Mapping[str, str], name: str) -> str | None:
    """Return a setting of the first slurm.conf that can be read, of two lines the later."""
    for path in (environ.get("SLURM_CONF") or "", *_SLURM_CONFIGURATIONS):
        try:
            with open(path, errors="replace") as file:
                lines = file.read(_LONGEST_CONFIGURATION).splitlines()
        except OSError:
            continue
        pairs = [line.partition("#")[0].partition("=") for line in lines]
        return next((value.strip() for key, _, value in reversed(pairs) if key.strip().lower() == name.lower()), None)
    return None


# Plain hosts, by OpenSSH's client: user, port and keys are those of ssh_config. Nobody is there to type a password. No
# connection is shared by a master process that would be left behind, but one that the user has opened serves. Any login
# shell reads the quoted line as the program's argv, and becomes it.
# Source: ssh(1), ssh_config(5).
_SSH = ("ssh", "-T", "-x", "-o", "BatchMode=yes", "-o", "ControlMaster=no", "-o", "LogLevel=ERROR")


TABLE = (
    # This host alone: the program is started here.
    Starter("local", "this host alone", _each(lambda _job, _host, program: program), 30.0, environment="own"),
    Starter(
        "flux",
        "flux exec",
        # The broker's rank is the host's place in the instance's list.
        _each(lambda job, host, program: ("flux", "exec", "--noinput", f"--rank={job.hosts.index(host)}", *program)),
        kill_wait_s=5.0,  # flux-config-exec(5), kill-timeout
        cancel=("flux", "cancel"),
        environment="own",
        reads=("FLUX_ENCLOSING_ID",),
        completed=_flux_hosts,
    ),
    Starter(
        "slurm",
        "srun",
        slurm,
        kill_wait_s=30.0,  # slurm.conf(5), KillWait
        cancel=("scancel",),
        environment="own",
        is_at_once=True,
        signals_reach_command=True,
        takes_options=True,
        reads=_SLURM_READS,
        completed=_slurm_completed,
        asked_end=_slurm_end,
    ),
    # It takes argv as it is. Source: pbsdsh(1) of Torque: -h names a host, -o hands the output to its caller.
    Starter(
        "torque",
        "pbsdsh",
        _each(lambda _, host, program: ("pbsdsh", "-o", "-h", host, *program)),
        kill_wait_s=2.0,  # kill_delay of a queue
        cancel=("qdel",),
        keeps=(
            *("PBS_NODENUM", "PBS_VNODENUM", "PBS_TASKNUM", "PBS_MOMPORT", "TMPDIR", "HOSTNAME"),
            *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
        ),
        reads=("PBS_WALLTIME",),
        completed=_ends_by("PBS_WALLTIME"),
    ),
    # OpenPBS and PBS Professional. It takes argv as it is. Source: pbs_tmrsh(8), and a real OpenPBS 23.06: the
    # status is the program's, 254 and 255 where it could not begin. qdel and the time limit reach the sessions of the
    # first host's tasks only; COMMAND has one of its own.
    Starter(
        "pbs",
        "pbs_tmrsh",
        _each(lambda job, host, program: (_of_pbs("pbs_tmrsh", job.environ), host, *program)),
        kill_wait_s=10.0,  # kill_delay of a queue
        cancel=("qdel",),
        found=_of_pbs,
        # A task's own. PBS_NODEFILE is not: on the first host a task has none, and its path is the same everywhere.
        keeps=(
            *("PBS_NODENUM", "PBS_TASKNUM", "PBS_MOMPORT", "PBS_JOBDIR", "NCPUS", "TMPDIR", "HOSTNAME"),
            # Set by the hook that gives each job its GPUs, by ids that differ between hosts.
            *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"),
        ),
        reads=_PBS_READS,
        asked_end=_pbs_end,
    ),
    # Source: blaunch(1). Sites differ in what it hands on.
    Starter(
        "lsf",
        "blaunch",
        _each(lambda _, host, program: ("blaunch", host, *_plain_argv(program))),
        kill_wait_s=10.0,  # lsb.params, JOB_TERMINATE_INTERVAL
        cancel=("bkill",),
        keeps=("LSF_PM_", "LS_JOBPID", "TMPDIR", "HOSTNAME", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    ),
    # OpenSSH's client with the job's key. Source: OAR's user documentation, oarsh(1).
    Starter(
        "oar",
        "oarsh",
        _each(lambda _, host, program: ("oarsh", host, f"exec {shlex.join(program)}")),
        kill_wait_s=10.0,
        cancel=("oardel",),
        environment="stdin",
        keeps=("SSH_", "XDG_", "OAR_CPUSET", "OAR_TASK", "DBUS_SESSION_BUS_ADDRESS", "HOSTNAME", "TMPDIR"),
        reads=("OAR_JOB_WALLTIME_SECONDS",),
        completed=_ends_by("OAR_JOB_WALLTIME_SECONDS"),
    ),
    # Grid Engine, for parallel environments with `control_slaves TRUE`. Source: qrsh(1), sge_pe(5).
    Starter(
        "sge",
        "qrsh -inherit",
        _each(lambda _, host, program: ("qrsh", "-inherit", host, *_plain_argv(program))),
        kill_wait_s=10.0,  # qdel sends KILL at once, or after the queue's `notify`
        cancel=("qdel",),
        keeps=("TMP", "SGE_JOB_SPOOL_DIR", "HOSTNAME", "SGE_HGR_", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    ),
    Starter(
        "ssh",
        "ssh, for --hosts",
        _each(lambda _, host, program: (*_SSH, host, f"exec {shlex.join(program)}")),
        kill_wait_s=30.0,  # nobody else waits
        environment="stdin",
        # What the login on the other host makes: a user may have another name there.
        keeps=(
            *("SSH_", "XDG_", "DBUS_SESSION_BUS_ADDRESS", "HOME", "LOGNAME", "USER", "SHELL", "MAIL", "HOSTNAME"),
            "TMPDIR",
        ),
    ),
)
_BY_NAME = {starter.name: starter for starter in TABLE}


def cancel_argv(scheduler: str, job: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command that ends a job; none where there is no such command, or no job."""
    row = _BY_NAME.get(scheduler)
    if row is None or not row.cancel or not job[:1].isalnum():
        return ()
    program, *options = row.cancel
    return (row.found(program, environ), *options, job)


def kill_wait_s(starter: Starter, environ: Mapping[str, str]) -> float:
    """Return how long a scheduler waits between TERM and KILL; Slurm's administrators choose it."""
    said = _slurm_setting(environ, "KillWait") if starter.name == "slurm" else None
    wait = number(said or "", most=65533)  # slurm.conf(5)
    return starter.kill_wait_s if wait is None else float(wait)


def is_alone(facts: JobFacts) -> bool:
    """Return whether nothing has to be started elsewhere: no job, or one node's of a scheduler that has no starter."""
    is_one = facts.nodes == 1 and facts.task_rank is None and facts.scheduler not in _BY_NAME
    return facts.scheduler == "none" or is_one


def find(
    facts: JobFacts, environ: Mapping[str, str], hosts_option: str | None = None, *, is_per_task: bool = False
) -> tuple[Starter, Allocation]:
    """Return the starter of this job, or of the hosts that a person names, and what the run may use.

    Raises FactsError where the job has none, or this is not its script; UsageError for `hosts_option`.
    """
    if hosts_option is not None:
        hosts = listed(hosts_option)
        name = hostname()
        own = next((host for host in hosts if host in ("localhost", name, name.split(".")[0])), None)
        starter = _BY_NAME["local" if len(hosts) == 1 and own else "ssh"]
        return starter, Allocation(hosts, (1,) * len(hosts), own=own)
    # The script of a Flux instance, which may run in a job of another scheduler.
    is_in_flux = bool(environ.get("FLUX_URI")) and not environ.get("FLUX_JOB_ID")
    if not is_in_flux:
        _check_script(facts, environ)
    starter = _BY_NAME["flux" if is_in_flux else facts.scheduler]
    own = facts.host if facts.host in facts.hosts else None
    if facts.host is None and facts.node_rank is not None and facts.hosts:
        own = facts.hosts[facts.node_rank]
    count = len(facts.hosts)
    job = Allocation(
        hosts=facts.hosts,
        slots=facts.tasks_per_node if len(facts.tasks_per_node) == count else (1,) * count,
        job_id=facts.job_id,
        kill_wait_s=kill_wait_s(starter, environ),
        own=own,
        is_per_task=is_per_task,
        environ={name: value for name, value in environ.items() if name.startswith(starter.reads)},
    )
    is_here = not is_in_flux and count == 1 and not starter.is_at_once and own is not None
    local = _BY_NAME["local"]._replace(asked_end=starter.asked_end)
    return (local if is_here else starter), starter.completed(job)
