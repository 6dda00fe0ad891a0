"""The schedulers that scripts are made for: one module with `directives(job)` each, and one template for all."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

from mingle_hooks.errors import UsageError
from mingle_hooks.scripts.fields import refused
from mingle_hooks.scripts.job import Job
from mingle_hooks.values import nearest


class Directive(NamedTuple):
    """One directive without its marker, and the field of the description that it comes from; it may carry others."""

    text: str
    field: str
    also: tuple[str, ...] = ()


class Scheduler(NamedTuple):
    """A scheduler, the command that takes its scripts, and what its jobs find in their environment."""

    name: str
    submit: str
    marker: str  # what begins a directive
    help: str
    runs_tasks: bool = False  # it can start every training process itself, not only one on each node
    again: str = ""  # a word of shell: the line that queues the job again
    submitted_in: str = ""  # the variable with the directory that the job was submitted in
    runs_pyxis: bool = False  # its own starter knows enroot's images
    also: tuple[str, ...] = ()  # what else people call it


# Only operators may rerun a job of PBS, so this is a new one from the same script.
_NEW = """"$(printf 'cd %q && qsub %q' "$PBS_O_WORKDIR" "$0")\""""

TABLE = (
    Scheduler(
        "slurm",
        "sbatch",
        "#SBATCH",
        "Slurm",
        runs_tasks=True,
        again='"scontrol requeue $SLURM_JOB_ID"',
        runs_pyxis=True,
        also=("sbatch",),
    ),
    Scheduler("pbs", "qsub", "#PBS", "OpenPBS and PBS Professional", again=_NEW, submitted_in="PBS_O_WORKDIR"),
    Scheduler("torque", "qsub", "#PBS", "Torque", again=_NEW, submitted_in="PBS_O_WORKDIR"),
    Scheduler("lsf", "bsub", "#BSUB", "LSF", again='"brequeue $LSB_JOBID"', submitted_in="LS_SUBCWD"),
    # Grid Engine queues a job with this status again.
    Scheduler("sge", "qsub", "#$", "Grid Engine", again='"exit 99"', submitted_in="SGE_O_WORKDIR"),
)
SCHEDULERS = {name: scheduler for scheduler in TABLE for name in (scheduler.name, *scheduler.also)}


def scheduler(name: str) -> Scheduler:
    """Return the scheduler of this name. Raises UsageError."""
    if name not in SCHEDULERS:
        raise UsageError(f"a scheduler out of {', '.join(SCHEDULERS)}", name, nearest(name, SCHEDULERS))
    return SCHEDULERS[name]


# What a job may ask for, and what it may on each node: a directive has to carry it, or it is refused.
_OF_JOB = (
    *("time", "partition", "account", "qos", "reservation", "exclusive", "output", "error", "mail_user", "array"),
    *("dependency", "requeue"),
)
_OF_NODE = {"gpus": "gpus-per-node", "cpus": "cpus-per-task", "mem": "mem", "constraint": "constraint"}


def directives(scheduler: Scheduler, job: Job) -> tuple[Directive, ...]:
    """Return the job's directives in order. Raises UsageError that names a field that they cannot carry."""
    made: tuple[Directive, ...] = import_module(f"{__name__}.{scheduler.name}").directives(job)
    carried = {field for directive in made for field in (directive.field, *directive.also)}
    for field, value in _asked(job):
        if field not in carried:
            can = f"nothing, because scripts for {scheduler.help} have no directive for it"
            raise refused(field, value, can, f"leaving it out, or a --directive of {scheduler.help}'s own")
    return (*made, *(Directive(free(text), "directive") for text in job.directive))


def _asked(job: Job) -> Iterator[tuple[str, object]]:
    """Yield each field that somebody has to carry, with its value."""
    for attribute in _OF_JOB:
        if value := getattr(job, attribute):
            yield attribute.replace("_", "-"), value
    for group in job.groups:
        for attribute, field in _OF_NODE.items():
            if value := getattr(group, attribute):
                yield field, value
        if group.ntasks > 1 and job.launcher.starts != "node":  # else the script's own line says it
            yield "ntasks-per-node", group.ntasks


def free(text: str) -> str:
    """Return a directive that the user wrote, as it is: one line, and no other can begin in it. Raises UsageError."""
    if not text.isprintable() or text.rstrip().endswith("\\"):  # qsub looks for it before trailing spaces
        raise refused(
            "directive", text, "one printable line that no backslash ends", "another --directive for each line"
        )
    return text
