"""Directives for LSF's bsub. Source: IBM Spectrum LSF command reference, bsub."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mingle_hooks.render.quantities import size
from mingle_hooks.render.schedulers import Directive, refused

if TYPE_CHECKING:
    from mingle_hooks.render.job import Job

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,4094}", re.ASCII)  # a name may not hold what an array or a path is made of
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./~-]+", re.ASCII)


def directives(job: Job) -> tuple[Directive, ...]:
    """Return the directives: slots are processes, and `span[ptile=…]` puts them on nodes."""
    if len(job.groups) > 1:
        raise refused("nodes", "+".join(str(group.nodes) for group in job.groups), "one group of nodes")
    if not _NAME.fullmatch(job.job_name):
        raise refused("job-name", job.job_name, "letters, digits and _.-")
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
        (any(event in ("BEGIN", "ALL") for event in job.mail_type) and "-B", "mail-type"),
        (any(event in ("END", "FAIL", "ALL") for event in job.mail_type) and "-N", "mail-type"),
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
        "output": ("-o", job.output),
        "error": ("-e", job.error),
        "mail-user": ("-u", job.mail_user),
        "dependency": ("-w", job.dependency),
    }
    return [(f"{letter} {_quoted(field, value)}", field) for field, (letter, value) in options.items() if value]


def _array(job: Job) -> str:
    ranges, _, most = (job.array or "").partition("%")
    return (f"[{ranges}]" + (f"%{most}" if most else "")) if ranges else ""


def _within(field: str, value: str) -> str:
    if not value.isprintable() or any(char in value for char in '"\\[]'):
        raise refused(field, value, 'one printable line without ", \\, [ and ]')
    return value


def _quoted(field: str, value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    if not value.isprintable() or '"' in value or "\\" in value:
        raise refused(field, value, 'one printable line without " and \\, which a #BSUB directive cannot carry')
    return f'"{value}"'
