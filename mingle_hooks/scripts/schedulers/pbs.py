"""Directives for OpenPBS's qsub.

Source: PBS User's Guide; make_argv() and process_opts() in OpenPBS's src/cmds/qsub.c for the quoting,
prepare_path() for paths, parse_at_list() for addresses. All of it was tried on OpenPBS 23.06.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mingle_hooks.scripts.fields import (
    as_hms,
    as_size,
    refuse_unless_letters,
    refuse_unless_matching,
    refused,
    refused_array,
    refused_name,
)
from mingle_hooks.scripts.job import Group, Job
from mingle_hooks.scripts.schedulers import Directive
from mingle_hooks.scripts.schedulers.filename import translated

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]{0,229}", re.ASCII)
_RESOURCE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*=[A-Za-z0-9_.-]+(?::[A-Za-z][A-Za-z0-9_-]*=[A-Za-z0-9_.-]+)*", re.ASCII)
_ARRAY = re.compile(r"[0-9]+-[0-9]+(?::[0-9]+)?(?:%[0-9]+)?", re.ASCII)
# qsub(1B), -W depend: what depends on jobs, and on a number of them
ON_JOBS = "(?:after|before)(?:ok|notok|any)?"
ON_COUNTS = "on"
_JOB = r"[0-9]+(?:\[[0-9]*\])?(?:\.[A-Za-z0-9.-]+)?(?:@[A-Za-z0-9.-]+)?"
_QUEUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}(@[A-Za-z0-9.-]{1,64})?", re.ASCII)
# qsub wants printable ASCII, drops spaces in front, and takes what stands before a colon for a host.
_PATH = re.compile(r"(?:[A-Za-z0-9.-]+:/|[A-Za-z0-9.-]*/)[ -~]*|[!-9;-~][ -9;-~]*", re.ASCII)
_MAIL_USERS = re.compile(
    r"[A-Za-z0-9_.+%=/~'-]+(@[A-Za-z0-9.-]+)?(,[A-Za-z0-9_.+%=/~'-]+(@[A-Za-z0-9.-]+)?)*", re.ASCII
)
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./^~-]+", re.ASCII)
_OF_CHUNKS = ("ntasks-per-node", "cpus-per-task", "gpus-per-node", "mem", "constraint")
_INDEX = "^array_index^"  # its server replaces the first only: PBS_FILE_ARRAY_INDEX_TAG
MAIL = {"BEGIN": "b", "END": "e", "FAIL": "a", "ALL": "abe", "NONE": "n"}


def directives(job: Job) -> tuple[Directive, ...]:
    """Return the directives: one chunk for each node, on hosts of their own. Raises UsageError."""
    if job.qos:
        raise refused("qos", job.qos, "nothing, because PBS has none", "leaving --qos out; a queue is --partition")
    if job.partition and job.reservation:
        can = "the only queue, because --partition names one too"
        raise refused("reservation", job.reservation, can, "leaving --partition out")
    chunks = "+".join(_chunk(group) for group in job.groups)
    return (
        *opening(job),
        Directive(f"-l select={chunks}", "nodes", _OF_CHUNKS),
        Directive(f"-l place=scatter{':excl' if job.exclusive else ''}", "exclusive" if job.exclusive else "nodes"),
        *option("-l walltime=", "time", job.time and as_hms(job.time)),
        *option("-q ", *_queue(job)),
        *option("-J ", "array", job.array and _array(job.array)),
        *closing(job, {"x": job.job_name, "a": _INDEX}, dependency(f"{ON_JOBS}|runone", ON_COUNTS)),
    )


def opening(job: Job) -> tuple[Directive, ...]:
    """Return what begins a script for any qsub."""
    if not _NAME.fullmatch(job.job_name):
        raise refused_name(job.job_name, "a letter, then letters, digits and _.+-")
    return (Directive(f"-N {job.job_name}", "job-name"), Directive("-S /bin/bash", "default"))


def dependency(on_jobs: str, on_counts: str) -> re.Pattern[str]:
    """Return the form of a list of dependencies, with the words for those on jobs and for those on counts."""
    one = rf"(?:(?:{on_jobs})(?::{_JOB})+|(?:{on_counts}):0*[1-9][0-9]*)"
    return re.compile(f"{one}(?:,{one})*", re.ASCII)


def closing(job: Job, words: Mapping[str, str], dependencies: re.Pattern[str]) -> tuple[Directive, ...]:
    """Return what PBS and Torque have in common; `words` are for Slurm's patterns in a path. Raises UsageError."""
    if job.requeue and job.array:
        can = "without --array: the script is submitted again, and that is all of the array"
        raise refused("requeue", "true", can, "leaving out --requeue or --array")
    can = "addresses in ASCII without quotes"
    mail_user = job.mail_user and refuse_unless_matching("mail-user", job.mail_user, _MAIL_USERS, can, "me@example.org")
    again = "requeue" if job.requeue else "array" if job.array else ""  # PBS takes no array that it may not rerun
    depend = job.dependency and refuse_unless_matching(
        "dependency", job.dependency, dependencies, "afterok:123.server", "afterok:123.server"
    )
    return (
        *option("-A ", "account", job.account),
        *option("-o ", "output", job.output and _path("output", job.output, words)),
        *(option("-e ", "error", _path("error", job.error, words)) if job.error else (Directive("-j oe", "default"),)),
        *option("-M ", "mail-user", mail_user),
        *option("-m ", "mail-type", refuse_unless_letters(job, MAIL)),
        *option("-W depend=", "dependency", depend),
        Directive(f"-r {'y' if again else 'n'}", again or "default"),
    )


def option(before: str, field: str, value: object) -> tuple[Directive, ...]:
    """Return the directive, or none where there is no value. Raises UsageError."""
    return (Directive(before + quoted(field, str(value)), field),) if value not in (None, "") else ()


def quoted(field: str, value: str) -> str:
    """Quote as qsub reads it: nothing is special in either kind of quotes, and one may follow the other.

    Raises UsageError.
    """
    if not value.isprintable() or value == "--" or "\\," in value:  # PBS itself takes the backslash from a comma
        raise refused(field, value, "one printable line, other than --, without a backslash before a comma")
    if _PLAIN.fullmatch(value):
        return value
    return '"' + value.replace('"', '"\'"\'"') + '"'


def _queue(job: Job) -> tuple[str, str | None]:
    field, name = ("reservation", job.reservation) if job.reservation else ("partition", job.partition)
    return field, name and refuse_unless_matching(
        field, name, _QUEUE, "the name of a queue, as a reservation has one too"
    )


def _path(field: str, path: str, words: Mapping[str, str]) -> str:
    can, nearest = "a path in ASCII, with a colon after HOST or a / only", re.sub("[^!-9;-~]", "_", path)
    found = translated(field, refuse_unless_matching(field, path, _PATH, can, nearest), words)
    if found.count(_INDEX) > 1:
        works = f"--{field} {path.partition('%a')[0]}%a"
        raise refused(field, path, "a path with one %a, because PBS inserts the index once", works)
    return found


def _array(array: str) -> str:
    if not _ARRAY.fullmatch(array):
        raise refused_array(array, "FIRST-LAST[:STEP][%MOST]", 0)
    first, last = map(int, re.findall("[0-9]+", array)[:2])
    if first >= last:
        raise refused_array(array, "FIRST-LAST with more than one job", 0)
    return array


def _chunk(group: Group) -> str:
    parts = [str(group.nodes), f"ncpus={(group.cpus or 1) * group.ntasks}", f"mpiprocs={group.ntasks}"]
    if group.gpus:
        parts += [f"ngpus={group.gpus.number}"] + ([f"gpu_type={group.gpus.type}"] if group.gpus.type else [])
    if group.mem:
        parts += [f"mem={as_size(group.mem, ('mb', 'gb'))}"]
    if group.constraint:
        parts += [
            refuse_unless_matching("constraint", group.constraint, _RESOURCE, "RESOURCE=VALUE of a chunk", "arch=linux")
        ]
    return ":".join(parts)
