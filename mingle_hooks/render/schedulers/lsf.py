"""Directives for LSF's bsub. Source: IBM Spectrum LSF command reference, bsub.

How it reads quotes is taken from parseLine() in lsbatch/cmd/cmd.sub.c of OpenLava, which comes from LSF. What the
two may read differently is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mingle_hooks.render.quantities import size
from mingle_hooks.render.refusals import letters, refused, refused_groups, refused_name
from mingle_hooks.render.schedulers import Directive
from mingle_hooks.render.schedulers.filename import translated

if TYPE_CHECKING:
    from mingle_hooks.render.job import Job

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,4094}", re.ASCII)  # a name may not hold what an array or a path is made of
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./~%-]+", re.ASCII)
# bsub takes words apart at spaces before it looks at quotes, and joins them with one space each.
_QUOTED = re.compile(r"[^ \"'`$#\\]+(?: [^ \"'`$#\\]+)*")
_ARRAY = re.compile(r"0*[1-9][0-9]*(?:-[0-9]+(?::[0-9]+)?)?(?:,0*[1-9][0-9]*(?:-[0-9]+(?::[0-9]+)?)?)*", re.ASCII)
_SLURMS = re.compile(r"after(?:|ok|any|notok)(?::[0-9]+)+(?:,after(?:|ok|any|notok)(?::[0-9]+)+)*", re.ASCII)
_DEPENDENCY = re.compile(
    r"[a-z]+\([A-Za-z0-9_.*,<>=!\[\] -]+\)(?: ?(?:&&|\|\|) ?[a-z]+\([A-Za-z0-9_.*,<>=!\[\] -]+\))*"
)
_CONDITIONS = {"afterok": "done", "afterany": "ended", "afternotok": "exit", "after": "started"}
_MAIL = {"BEGIN": "B", "END": "N", "FAIL": "N", "ALL": "BN", "NONE": ""}


def directives(job: Job) -> tuple[Directive, ...]:
    """Return the directives: slots are processes, and `span[ptile=…]` puts them on nodes. Raises UsageError."""
    if len(job.groups) > 1:
        raise refused_groups(job)
    if not _NAME.fullmatch(job.job_name):
        raise refused_name(job.job_name, "letters, digits and _.-")
    group = job.groups[0]
    needs = [f"span[ptile={group.ntasks}]"] + ([f"affinity[core({group.cpus})]"] if group.cpus else [])
    if group.mem:
        needs += [f"rusage[mem={size(group.mem, ('MB', 'GB'))}/host]"]
    if group.constraint:
        needs.insert(0, f"select[{_within('constraint', group.constraint)}]")
    gpu = group.gpus and f"num={group.gpus.number}/host" + (f":gmodel={group.gpus.type}" if group.gpus.type else "")
    found = [
        (f"-J {_quoted('job-name', job.job_name + _array(job))}", "array" if job.array else "job-name"),
        (f"-n {group.nodes * group.ntasks}", "nodes"),
        (f'-R "{" ".join(needs)}"', "ntasks-per-node"),
        (gpu and f'-gpu "{gpu}"', "gpus-per-node"),
        (job.time and f"-W {-(-job.time // 60) // 60}:{-(-job.time // 60) % 60:02}", "time"),
        *_texts(job),
        (job.exclusive and "-x", "exclusive"),
        (job.requeue and "-r", "requeue"),
        *((f"-{letter}", "mail-type") for letter in sorted(letters(job, _MAIL))),
        # LSF counts in minutes.
        (job.time and f"-wa {job.signal.name} -wt {-(-job.signal.before_s // 60)}", "signal"),
    ]
    return tuple(Directive(text, field) for text, field in found if text)


def _texts(job: Job) -> list[tuple[str, str]]:
    options = {
        "partition": ("-q", job.partition),
        "account": ("-P", job.account),
        "qos": ("-sla", job.qos),
        "reservation": ("-U", job.reservation),
        "output": ("-o", job.output and _path("output", job.output, job.job_name)),
        "error": ("-e", job.error and _path("error", job.error, job.job_name)),
        "mail-user": ("-u", job.mail_user),
        "dependency": ("-w", job.dependency and _dependency(job.dependency)),
    }
    return [(f"{letter} {_quoted(field, value)}", field) for field, (letter, value) in options.items() if value]


def _array(job: Job) -> str:
    ranges, _, most = (job.array or "").partition("%")
    if ranges and not _ARRAY.fullmatch(ranges):
        more = re.sub("(?<![:0-9])[0-9]+", lambda number: str(int(number[0]) + 1), ranges)
        works = f"--array {more}{'%' * bool(most)}{most}, which is one more for each"
        raise refused("array", job.array, "numbers from 1, as LSF counts", works)
    return (f"[{ranges}]" + (f"%{most}" if most else "")) if ranges else ""


def _dependency(value: str) -> str:
    if _DEPENDENCY.fullmatch(value):
        return value
    if not _SLURMS.fullmatch(value):
        can = "afterok:123 or one of LSF's conditions, such as done(123)"
        raise refused("dependency", value, can, "--dependency afterok:123")
    parts = [part.split(":") for part in value.split(",")]
    return " && ".join(f"{_CONDITIONS[kind]}({job})" for kind, *jobs in parts for job in jobs)


def _path(field: str, value: str, job_name: str) -> str:
    """Return a path with LSF's own %J, the job's number, and %I, the array's index."""
    if re.search("%%[%JI]", value):
        can = "a path without %% before J, I and %, as bsub has no other way to write them"
        raise refused(field, value, can, f"--{field} {value.replace('%%', '')}")
    return translated(field, value, {"j": "%J", "A": "%J", "J": "%J", "a": "%I", "x": job_name})


def _within(field: str, value: str) -> str:
    if not value.isprintable() or not _QUOTED.fullmatch(value) or re.search(r"[\[\]]", value):
        raise refused(field, value, "one printable line without quotes, \\, $, # and []")
    return value


def _quoted(field: str, value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    if not value.isprintable() or not _QUOTED.fullmatch(value):
        raise refused(field, value, "one printable line without quotes, \\, $, # and double spaces")
    return f'"{value}"'
