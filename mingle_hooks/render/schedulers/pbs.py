"""Directives for OpenPBS's qsub.

Source: PBS User's Guide; make_argv() and process_opts() in OpenPBS's src/cmds/qsub.c for the quoting,
prepare_path() for paths, parse_at_list() for addresses. All of it was tried on OpenPBS 23.06.
"""

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
_QUEUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}(@[A-Za-z0-9.-]{1,64})?", re.ASCII)
# qsub wants printable ASCII, drops spaces in front, and takes what stands before a colon for a host.
_PATH = re.compile(r"(?:[A-Za-z0-9.-]+:/|[A-Za-z0-9.-]*/)[ -~]*|[!-9;-~][ -9;-~]*", re.ASCII)
_MAIL_USERS = re.compile(
    r"[A-Za-z0-9_.+%=/~'-]+(@[A-Za-z0-9.-]+)?(,[A-Za-z0-9_.+%=/~'-]+(@[A-Za-z0-9.-]+)?)*", re.ASCII
)
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
        *option("-q ", *_queue(job)),
        *option("-J ", "array", job.array and _array(job.array)),
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
        if path and (not _PATH.fullmatch(path) or "%" in path):
            raise refused(
                name, path, "a path in ASCII, with a colon after HOST or a / only, and without Slurm's % patterns"
            )
    mail_user = job.mail_user and matching("mail-user", job.mail_user, _MAIL_USERS, "addresses in ASCII without quotes")
    again = "requeue" if job.requeue else "array" if job.array else ""  # PBS takes no array that it may not rerun
    depend = job.dependency and matching("dependency", job.dependency, _DEPENDENCY, "afterok:123.server")
    return (
        *option("-A ", "account", job.account),
        *option("-o ", "output", job.output),
        *(option("-e ", "error", job.error) if job.error else (Directive("-j oe", "default"),)),
        *option("-M ", "mail-user", mail_user),
        *option("-m ", "mail-type", mail(job)),
        *option("-W depend=", "dependency", depend),
        Directive(f"-r {'y' if again else 'n'}", again or "default"),
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
    """Quote as qsub reads it: nothing is special in either kind of quotes, and one may follow the other."""
    if not value.isprintable() or value == "--" or "\\," in value:  # PBS itself takes the backslash from a comma
        raise refused(field, value, "one printable line, other than --, without a backslash before a comma")
    if _PLAIN.fullmatch(value):
        return value
    return '"' + value.replace('"', '"\'"\'"') + '"'


def _queue(job: Job) -> tuple[str, str | None]:
    field, name = ("reservation", job.reservation) if job.reservation else ("partition", job.partition)
    return field, name and matching(field, name, _QUEUE, "the name of a queue, as a reservation has one too")


def _array(array: str) -> str:
    matching("array", array, _ARRAY, "FIRST-LAST[:STEP][%MOST]")
    first, last = map(int, re.findall("[0-9]+", array)[:2])
    if first >= last:
        raise refused("array", array, "FIRST-LAST with more than one job")
    return array


def _chunk(group: Group) -> str:
    parts = [str(group.nodes), f"ncpus={(group.cpus or 1) * group.ntasks}", f"mpiprocs={group.ntasks}"]
    if group.gpus:
        parts += [f"ngpus={group.gpus.number}"] + ([f"gpu_type={group.gpus.type}"] if group.gpus.type else [])
    if group.mem:
        parts += [f"mem={size(group.mem, ('mb', 'gb'))}"]
    if group.constraint:
        parts += [matching("constraint", group.constraint, _RESOURCE, "RESOURCE=VALUE of a chunk")]
    return ":".join(parts)
