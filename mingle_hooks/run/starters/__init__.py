"""Starters: how each scheduler starts a program on the hosts of a job. One line and one file each.

A starter's module has::

    CARRIES_ENVIRONMENT      what it starts has the environment of who starts it
    TAKES_STDIN              what it starts reads the stdin of who starts it; else the environment travels by a file
    KEEPS                    prefixes of the variables that are each host's own, where they do not travel by themselves
    SIGNALS_REACH_COMMAND    what the scheduler tells a supervisor, it tells the processes of COMMAND, too
    KILL_WAIT_S              how long the scheduler waits between TERM and KILL, where nothing else tells
    TAKES_OPTIONS            it knows `Allocation.options`
    READS                    prefixes of the variables, none secret, that the module needs to know
    launches(job, hosts, program) -> tuple[Launch, ...]
    completed(job) -> Allocation    with what the scheduler tells beyond its facts

TAKES_STDIN, KEEPS, TAKES_OPTIONS, READS and `completed` may be left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from mingle_hooks.errors import UsageError
from mingle_hooks.run.starters import files, local
from mingle_hooks.run.starters import hosts as hosts_hosts
from mingle_hooks.run.starters.allocation import Allocation, Place
from mingle_hooks.run.starters.launch import Launch
from mingle_hooks.schedulers.facts import JobFacts

__all__ = ["TABLE", "Allocation", "Launch", "Place", "Starter", "allocation", "environ_file", "find", "supervisors"]


class Starter(NamedTuple):
    """How one scheduler starts a program: the module in this folder, and what starts it in words."""

    name: str
    help: str
    # One call starts it on all hosts, and what it starts finds its own place: SLURMD_NODENAME, SLURM_LOCALID.
    is_at_once: bool = False

    def module(self) -> Any:
        """Return the module."""
        return import_module(f"{__name__}.{self.name}")

    @property
    def needs_file(self) -> bool:
        """Whether what it starts gets its environment from a file."""
        return not self.module().CARRIES_ENVIRONMENT and not self.takes_stdin

    @property
    def takes_stdin(self) -> bool:
        """Whether what it starts gets its environment from stdin."""
        return getattr(self.module(), "TAKES_STDIN", False)

    @property
    def signals_reach_command(self) -> bool:
        """Whether the scheduler's signals reach all of COMMAND's processes, not the supervisor alone."""
        return bool(self.module().SIGNALS_REACH_COMMAND)

    @property
    def kill_wait_s(self) -> float:
        """How long the scheduler waits between TERM and KILL, where nothing else tells."""
        return float(self.module().KILL_WAIT_S)

    def launches(self, job: Allocation, hosts: tuple[str, ...], program: tuple[str, ...]) -> tuple[Launch, ...]:
        """Return what starts a program once on each of these hosts, with no words or variables but its own."""
        made: tuple[Launch, ...] = self.module().launches(job._replace(is_per_task=False), hosts, program)
        return made


TABLE = (
    Starter("local", "this host alone"),
    Starter("flux", "flux exec"),
    Starter("slurm", "srun", is_at_once=True),
    Starter("torque", "pbsdsh"),
    Starter("pbs", "pbs_tmrsh"),
    Starter("lsf", "blaunch"),
    Starter("oar", "oarsh"),
    Starter("sge", "qrsh -inherit"),
    Starter("ssh", "ssh, for --hosts"),
)
_BY_NAME = {starter.name: starter for starter in TABLE}


def is_alone(facts: JobFacts) -> bool:
    """Tell whether nothing has to be started elsewhere: no job, or one node's of a scheduler that has no starter."""
    is_one = facts.nodes == 1 and facts.task_rank is None and facts.scheduler not in _BY_NAME
    return facts.scheduler == "none" or is_one


def find(facts: JobFacts, environ: Mapping[str, str], hosts_option: str | None = None) -> Starter:
    """Return the starter of this job, or of the hosts that a person names.

    Raises FactsError where the job has none, or this is not its script; UsageError for `hosts_option`.
    """
    if hosts_option is not None:
        hosts = hosts_hosts.listed(hosts_option)
        return _BY_NAME["local" if len(hosts) == 1 and hosts_hosts.own_among(hosts) else "ssh"]
    if hosts_hosts.is_in_flux(environ):
        return _BY_NAME["flux"]
    hosts = hosts_hosts.of_job(facts, environ, _BY_NAME)
    starter = _BY_NAME[facts.scheduler]
    is_here = len(hosts) == 1 and not starter.is_at_once and hosts_hosts.own_of(facts) is not None
    return _BY_NAME["local"] if is_here else starter


def allocation(
    facts: JobFacts, environ: Mapping[str, str], hosts_option: str | None = None, *, is_per_task: bool = False
) -> Allocation:
    """Return what the run may use, for the starter that `find` gives. Raises as `find` does."""
    starter = find(facts, environ, hosts_option)
    if hosts_option is not None:
        hosts = hosts_hosts.listed(hosts_option)
        return Allocation(starter.name, hosts, (1,) * len(hosts), own=hosts_hosts.own_among(hosts))
    scheduler = "flux" if hosts_hosts.is_in_flux(environ) else facts.scheduler
    module = _BY_NAME[scheduler].module()
    reads = tuple(getattr(module, "READS", ()))
    count = len(facts.hosts)
    found = Allocation(
        scheduler=scheduler,
        hosts=facts.hosts,
        slots=facts.tasks_per_node if len(facts.tasks_per_node) == count else (1,) * count,
        job_id=facts.job_id,
        restarts=facts.restarts,
        kill_wait_s=module.KILL_WAIT_S,
        own=hosts_hosts.own_of(facts),
        is_per_task=is_per_task,
        environ={name: value for name, value in environ.items() if name.startswith(reads)},
    )
    completed: Allocation = module.completed(found) if hasattr(module, "completed") else found
    return completed


def with_options(starter: Starter, job: Allocation, options: tuple[str, ...]) -> Allocation:
    """Return the allocation with a person's own options for the starter's program. Raises UsageError."""
    if not getattr(starter.module(), "TAKES_OPTIONS", False):
        raise UsageError("a starter that takes options, which is srun", starter.help, "leaving --start-option out")
    return job._replace(options=options)


def environ_file(starter: Starter, environ: Mapping[str, str]) -> str | None:
    """Write the file of the environment, where the starter needs one; who calls this removes it. Raises PlaceError."""
    return files.write(environ, files.directories(environ)) if starter.needs_file else None


def supervisors(
    starter: Starter,
    job: Allocation,
    hosts: tuple[str, ...],
    program: tuple[str, ...],
    environ: Mapping[str, str],
    file: str | None = None,
) -> tuple[Launch, ...]:
    """Return what starts a supervisor on all places of these hosts; `environ` is what each is to have.

    The processes here get that environment, too. `file` is what `environ_file` returned.
    """
    if starter.is_at_once:
        module = starter.module()
        at_once: tuple[Launch, ...] = module.launches(job, hosts, program)
        return at_once
    made: list[Launch] = []
    wanted = set(hosts)
    for place in job.places:
        if place.host in wanted:
            made += _supervisor(starter, job, place, program, environ, file)
    return tuple(made)


def _supervisor(
    starter: Starter,
    job: Allocation,
    place: Place,
    program: tuple[str, ...],
    environ: Mapping[str, str],
    file: str | None,
) -> tuple[Launch, ...]:
    words = (*program, "--host", place.host, "--local", str(place.local))
    if place.host == job.own:
        return local.launches(job, (place.host,), words)
    keeps = [word for prefix in getattr(starter.module(), "KEEPS", ()) for word in ("--keep", prefix)]
    if starter.takes_stdin:
        made = starter.launches(job, (place.host,), (*words, "--stdin", *keeps))
        return tuple(launch._replace(stdin=files.packed(environ)) for launch in made)
    carried = ("--environ", file, *keeps) if file else ()
    return starter.launches(job, (place.host,), (*words, *carried))
