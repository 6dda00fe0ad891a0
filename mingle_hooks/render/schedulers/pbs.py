"""Directives for OpenPBS's qsub. Source: qsub(1B), PBS User's Guide."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mingle_hooks.render.quantities import hms, size
from mingle_hooks.render.schedulers import Directive, refused

if TYPE_CHECKING:
    from mingle_hooks.render.job import Group, Job

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]{0,229}", re.ASCII)
_RESOURCE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*=[A-Za-z0-9_.-]+(?::[A-Za-z][A-Za-z0-9_-]*=[A-Za-z0-9_.-]+)*", re.ASCII)
_ARRAY = re.compile(r"[0-9]+-[0-9]+(?::[0-9]+)?(?:%[0-9]+)?", re.ASCII)
_DEPENDENCY = re.compile(r"[a-z]+(:[A-Za-z0-9_.\[\]@-]+)+(,[a-z]+(:[A-Za-z0-9_.\[\]@-]+)+)*", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./^~-]+", re.ASCII)
_MAIL = {"BEGIN": "b", "END": "e", "FAIL": "a", "ALL": "abe", "NONE": "n"}


def directives(job: Job) -> tuple[Directive, ...]:
    """Return the directives: one chunk for each node, on hosts of their own."""
    if job.qos:
        raise refused("qos", job.qos, "nothing, as PBS has none")
    if job.partition and job.reservation:
        raise refused("reservation", job.reservation, "the only queue: a reservation is one, and so is --partition")
    chunks = "+".join(_chunk(group) for group in job.groups)
    return (
        *opening(job),
        Directive(f"-l select={chunks}", "nodes"),
        Directive(f"-l place=scatter{':excl' if job.exclusive else ''}", "exclusive" if job.exclusive else "nodes"),
        *option("-l walltime=", "time", job.time and hms(job.time)),
        *option("-q ", "reservation" if job.reservation else "partition", job.reservation or job.partition),
        *option("-J ", "array", job.array and matching("array", job.array, _ARRAY, "FIRST-LAST[:STEP][%MOST]")),
        *closing(job),
    )


def opening(job: Job) -> tuple[Directive, ...]:
    """Return what begins a script for any qsub."""
    name = matching("job-name", job.job_name, _NAME, "a letter, then letters, digits and _.+-")
    return (Directive(f"-N {name}", "job-name"), Directive("-S /bin/bash", "default"))


def closing(job: Job) -> tuple[Directive, ...]:
    """Return what PBS and Torque have in common."""
    if job.requeue and job.array:
        raise refused("requeue", "true", "without --array: the script is submitted again, and that is all of the array")
    for name, path in (("output", job.output), ("error", job.error)):
        if path and "%" in path:
            raise refused(name, path, "a path without Slurm's % patterns")
    depend = job.dependency and matching("dependency", job.dependency, _DEPENDENCY, "afterok:123.server")
    return (
        *option("-A ", "account", job.account),
        *option("-o ", "output", job.output),
        *(option("-e ", "error", job.error) if job.error else (Directive("-j oe", "default"),)),
        *option("-M ", "mail-user", job.mail_user),
        *option("-m ", "mail-type", mail(job)),
        *option("-W depend=", "dependency", depend),
        Directive(f"-r {'y' if job.requeue else 'n'}", "requeue" if job.requeue else "default"),
    )


def mail(job: Job) -> str:
    """Return the events as qsub's letters."""
    for event in job.mail_type:
        if event not in _MAIL:
            raise refused("mail-type", event, ", ".join(_MAIL))
    return "".join(dict.fromkeys("".join(_MAIL[event] for event in job.mail_type)))


def option(before: str, field: str, value: object) -> tuple[Directive, ...]:
    """Return the directive, or none where there is no value."""
    return (Directive(before + quoted(field, str(value)), field),) if value not in (None, "") else ()


def matching(field: str, value: str, pattern: re.Pattern[str], can: str) -> str:
    """Return the value when it has the form that the directive needs."""
    if not pattern.fullmatch(value):
        raise refused(field, value, can)
    return value


def quoted(field: str, value: str) -> str:
    """Quote as qsub reads it: either kind of quotes, in which nothing can be escaped."""
    if _PLAIN.fullmatch(value):
        return value
    if not value.isprintable() or '"' in value or "\\" in value:
        raise refused(field, value, 'one printable line without " and \\, which a #PBS directive cannot carry')
    return f'"{value}"'


def _chunk(group: Group) -> str:
    parts = [str(group.nodes), f"ncpus={(group.cpus or 1) * group.ntasks}", f"mpiprocs={group.ntasks}"]
    if group.gpus:
        parts += [f"ngpus={group.gpus.number}"] + ([f"gpu_type={group.gpus.type}"] if group.gpus.type else [])
    if group.mem:
        parts += [f"mem={size(group.mem, ('mb', 'gb'))}"]
    if group.constraint:
        parts += [matching("constraint", group.constraint, _RESOURCE, "RESOURCE=VALUE of a chunk")]
    return ":".join(parts)
