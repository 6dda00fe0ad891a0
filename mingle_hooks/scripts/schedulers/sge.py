"""Directives for Grid Engine's qsub. Source: qsub(1), submit(1); parse_script_file() and string_list() for the quoting.

A parallel environment decides how slots are put on nodes, and its name is the site's: `--directive "-pe NAME N"`
replaces the one here.
"""

from __future__ import annotations

import re

from mingle_hooks.scripts.fields import (
    as_hms,
    as_size,
    refuse_unless_letters,
    refuse_unless_matching,
    refuse_unless_shorter,
    refused,
    refused_array,
    refused_groups,
    refused_name,
)
from mingle_hooks.scripts.job import Job
from mingle_hooks.scripts.schedulers import Directive
from mingle_hooks.scripts.schedulers.filename import translated
from mingle_hooks.scripts.schedulers.pbs import MAIL

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.+-]{0,229}", re.ASCII)
_NUMBER = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_ARRAY = re.compile(r"[1-9][0-9]*(?:-[0-9]+(?::[0-9]+)?)?", re.ASCII)
_RESOURCE = re.compile(
    r"[A-Za-z][A-Za-z0-9_]{0,511}(=[A-Za-z0-9_.*|-]+)?(,[A-Za-z][A-Za-z0-9_]{0,511}(=[A-Za-z0-9_.*|-]+)?)*", re.ASCII
)
# sge_types(5): the name of a project, and the expressions of names that choose queues.
_OBJECT = re.compile(r"""(?:(?![/:'\\[\]{}|()@%,"])[!-~]){1,512}""")
_QUEUE = r"""(?:(?![/:'\\{}%",])[!-~])+"""
_QUEUES = re.compile(f"{_QUEUE}(?:,{_QUEUE})*")
_MAIL_USERS = re.compile(r"[^\s@,]+(?:@[A-Za-z0-9.-]+)?(?:,[^\s@,]+(?:@[A-Za-z0-9.-]+)?)*", re.ASCII)
# Grid Engine holds a job until the others have ended, however they did.
_DEPENDENCY = re.compile(r"afterany(?::[0-9]+)+(?:,afterany(?::[0-9]+)+)*|[0-9]+(?:,[0-9]+)*", re.ASCII)
# Within a path, `$` begins one of these, `:` ends a host and `,` the whole path.
_PATH = re.compile(r"(?:[^$:,]|\$(?:USER|HOME|JOB_ID|JOB_NAME|HOSTNAME|TASK_ID)(?![A-Za-z0-9_]))+")
# For expand_path() they need no end: $JOB_NAME_$JOB_ID is train_7.
_PATTERNS = {"j": "$JOB_ID", "A": "$JOB_ID", "a": "$TASK_ID", "x": "$JOB_NAME", "u": "$USER", "N": "$HOSTNAME"}


def directives(job: Job) -> tuple[Directive, ...]:
    """Return the directives. `requeue` is the queue's to do, on the script's exit status 99. Raises UsageError."""
    if len(job.groups) > 1:
        raise refused_groups(job)
    if job.qos:
        can = "nothing, because Grid Engine has none"
        raise refused("qos", job.qos, can, "leaving --qos out; a queue is --partition")
    return (*_asked(job), *_whole(job))


def _asked(job: Job) -> tuple[Directive, ...]:
    """Return what the job needs of its nodes."""
    group = job.groups[0]
    if group.gpus and group.gpus.type:
        can, works = "a number, with the type as a --constraint of the site's", f"--gpus-per-node {group.gpus.number}"
        raise refused("gpus-per-node", group.gpus, can, works)
    if not _NAME.fullmatch(job.job_name):
        raise refused_name(job.job_name, "a letter, then letters, digits and _.+-")
    slots = group.ntasks * (group.cpus or 1)
    of_slots = ("ntasks-per-node", "cpus-per-task")
    has_pe = any(text.startswith("-pe ") for text in job.directive)  # the user's own, with their number
    constraint = group.constraint and refuse_unless_matching(
        "constraint", group.constraint, _RESOURCE, "NAME=VALUE", "arch=lx-amd64"
    )
    return (
        *_option("-N", "job-name", job.job_name),
        Directive("-S /bin/bash", "default", of_slots if has_pe else ()),
        *([] if has_pe else [Directive(f"-pe mpi {group.nodes * slots}", "nodes", of_slots)]),
        *_option("-l", "gpus-per-node", group.gpus and f"gpu={group.gpus.number}"),
        # Grid Engine counts memory for each slot.
        *_option("-l", "mem", group.mem and f"h_vmem={as_size(-(-group.mem // slots), ('M', 'G'))}"),
        *([Directive(f"-l {constraint}", "constraint")] if constraint else []),
        *_option("-l", "exclusive", job.exclusive and "exclusive=true"),
        *_option("-l", "time", job.time and f"h_rt={as_hms(job.time)}"),
    )


def _whole(job: Job) -> tuple[Directive, ...]:
    ranges, _, most = refuse_unless_shorter(job.array or "").partition("%")
    if job.array and not _ARRAY.fullmatch(ranges):
        raise refused_array(job.array, "FIRST-LAST[:STEP] from 1", 1)
    reservation = job.reservation and refuse_unless_matching(
        "reservation", job.reservation, _NUMBER, "the number of one", "12"
    )
    can = "names of queues, such as all.q@@gpus,long.q"
    mail_user = job.mail_user and refuse_unless_matching(
        "mail-user", job.mail_user, _MAIL_USERS, "addresses", "me@example.org"
    )
    return (
        *_option("-q", "partition", job.partition and refuse_unless_matching("partition", job.partition, _QUEUES, can)),
        *_option(
            "-P",
            "account",
            job.account and refuse_unless_matching("account", job.account, _OBJECT, "the name of a project"),
        ),
        *_option("-ar", "reservation", reservation),
        *_option("-t", "array", ranges),
        *_option("-tc", "array", most),
        *_option("-hold_jid", "dependency", job.dependency and _dependency(job.dependency)),
        *_option("-o", "output", job.output and _path("output", job.output)),
        *(_option("-e", "error", _path("error", job.error)) if job.error else (Directive("-j y", "default"),)),
        *_option("-M", "mail-user", mail_user),
        *_option("-m", "mail-type", refuse_unless_letters(job, MAIL)),
        Directive(f"-r {'y' if job.requeue else 'n'}", "requeue" if job.requeue else "default"),
        Directive("-cwd", "default"),
    )


def _option(letter: str, field: str, value: str | int | None) -> tuple[Directive, ...]:
    return (Directive(f"{letter} {_quoted(field, str(value))}", field),) if value else ()


def _quoted(field: str, value: str) -> str:
    """Quote as qsub reads it: it drops every quote, wherever it stands, and takes # for the end of the line."""
    if not value.isprintable() or any(char in value for char in "\"'#"):
        raise refused(field, value, "one printable line without quotes and #, which a #$ directive cannot carry")
    return f'"{value}"' if " " in value else value


def _dependency(value: str) -> str:
    works = "afterany:" + (":".join(re.findall("[0-9]+", value)) or "123")
    given = refuse_unless_matching(
        "dependency", value, _DEPENDENCY, "afterany:123, which is all that Grid Engine has", works
    )
    return ",".join(re.findall("[0-9]+", given))


def _path(field: str, value: str) -> str:
    works = re.sub("[$:,]", "_", value)
    given = refuse_unless_matching(field, value, _PATH, "a path without : , and $, but for $JOB_ID and the like", works)
    return translated(field, given, _PATTERNS)
