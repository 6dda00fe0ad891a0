"""Directives for Torque's qsub. Source: Torque Administrator Guide, "Requesting resources".

Quoting is make_argv()'s in its src/cmds/qsub_functions.c, and paths are prepare_path()'s.
"""

from __future__ import annotations

import re

from mingle_hooks.scripts.fields import Gpus, as_hms, as_size, refuse_unless_matching, refuse_unless_shorter, refused
from mingle_hooks.scripts.job import Group, Job
from mingle_hooks.scripts.schedulers import Directive, pbs

_LONGEST_NAME = 15  # qsub(1B), -N
_FEATURE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*(:[A-Za-z][A-Za-z0-9_.-]*)*", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9_.@-]+", re.ASCII)
_QUEUE = re.compile(r"[A-Za-z0-9_.-]+(@[A-Za-z0-9.-]+)?|@[A-Za-z0-9.-]+", re.ASCII)
# Torque's own, beside those of PBS.
_ON_JOBS = f"{pbs.ON_JOBS}|syncwith|(?:after|before)(?:start|ok|notok|any)array"
_ON_COUNTS = f"{pbs.ON_COUNTS}|synccount"
# What stands before a colon is a host, and qsub takes $HOME in front, but not ${HOME}, for the submitter's.
_PATH = re.compile(r"(?:[A-Za-z0-9.-]+:/|\$HOME/|(?!\$HOME|\$\{HOME\})[!-9;-~])[!-9;-~]*", re.ASCII)

_OF_NODES = ("ntasks-per-node", "cpus-per-task", "gpus-per-node", "constraint")


def directives(job: Job) -> tuple[Directive, ...]:
    """Return the directives. Raises UsageError."""
    for group in job.groups:
        if group.mem and len(job.groups) > 1:
            raise refused(
                "mem", group.mem, "one size for the whole job, so without groups of nodes", "leaving --mem out"
            )
    for name, path in (("output", job.output), ("error", job.error)):
        if path:
            works = re.sub("[^!-9;-~]", "_", re.sub(r"^\$\{?HOME\}?/*", "$HOME/", path))
            refuse_unless_matching(
                name, path, _PATH, "a path in ASCII without spaces, with a colon after HOST only", works
            )
    if len(job.job_name) > _LONGEST_NAME and job.job_name.isascii():
        works = f"--job-name {job.job_name[:_LONGEST_NAME]}"
        raise refused("job-name", job.job_name, f"at most {_LONGEST_NAME} characters", works)
    memory = job.groups[0].mem
    return (
        *pbs.opening(job),
        Directive("-l nodes=" + "+".join(_nodes(group) for group in job.groups), "nodes", _OF_NODES),
        *pbs.option("-l mem=", "mem", memory and as_size(memory * job.nodes, ("mb", "gb"))),
        *([Directive("-l naccesspolicy=singlejob", "exclusive")] if job.exclusive else []),
        *pbs.option("-l walltime=", "time", job.time and as_hms(job.time)),
        *pbs.option("-l qos=", "qos", _word("qos", job.qos)),
        *pbs.option("-l advres=", "reservation", _word("reservation", job.reservation)),
        *pbs.option("-q ", "partition", _queue(job.partition)),
        *([Directive(f"-t {_array(job.array)}", "array")] if job.array else []),
        *pbs.closing(job, {"x": job.job_name}, pbs.dependency(_ON_JOBS, _ON_COUNTS)),
    )


def _word(field: str, value: str | None) -> str | None:
    """Return a name that neither a list of resources nor `queue@server` takes apart."""
    return value and refuse_unless_matching(field, value, _WORD, "letters, digits and _.@-")


def _queue(value: str | None) -> str | None:
    return value and refuse_unless_matching("partition", value, _QUEUE, "QUEUE, QUEUE@SERVER or @SERVER")


def _nodes(group: Group) -> str:
    parts = [str(group.nodes), f"ppn={(group.cpus or 1) * group.ntasks}"]
    if group.gpus:
        parts += [f"gpus={group.gpus.number}"] + ([_type(group.gpus)] if group.gpus.type else [])
    if group.constraint:
        parts += [refuse_unless_matching("constraint", group.constraint, _FEATURE, "a property of nodes", "infiniband")]
    return ":".join(parts)


def _type(gpus: Gpus) -> str:
    """Return the type of GPUs, which for Torque is a property of the node."""
    if not _FEATURE.fullmatch(gpus.type):
        can = "a type that is a property of nodes, which begins with a letter"
        raise refused("gpus-per-node", gpus, can, f"--gpus-per-node {gpus.number}, and the property by --constraint")
    return gpus.type


def _array(array: str) -> str:
    if ":" in array:
        raise refused("array", array, "a list of ranges without a step", "each number, as in --array 1,3,5 for 1-5:2")
    return refuse_unless_shorter(array)
