"""Directives for LSF's bsub. Source: IBM Spectrum LSF command reference, bsub.

How it reads quotes is taken from parseLine() in lsbatch/cmd/cmd.sub.c of OpenLava, which comes from LSF. What the
two may read differently is refused.
"""

from __future__ import annotations

import re
from itertools import accumulate

from mingle_hooks.scripts.fields import (
    as_size,
    refuse_unless_letters,
    refuse_unless_matching,
    refuse_unless_shorter,
    refused,
    refused_groups,
    refused_name,
)
from mingle_hooks.scripts.job import Job
from mingle_hooks.scripts.schedulers import Directive
from mingle_hooks.scripts.schedulers.filename import translated

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,4094}", re.ASCII)  # a name may not hold what an array or a path is made of
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./~%-]+", re.ASCII)
# bsub takes words apart at spaces before it looks at quotes, and joins them with one space each.
_QUOTED = re.compile(r"[^ \"'`$#\\]+(?: [^ \"'`$#\\]+)*")
_ARRAY = re.compile(r"0*[1-9][0-9]*(?:-[0-9]+(?::[0-9]+)?)?(?:,0*[1-9][0-9]*(?:-[0-9]+(?::[0-9]+)?)?)*", re.ASCII)
_LONGEST_ARRAY = 255  # "Job Arrays": of the name and its indices together
_QUEUE = re.compile(r"(?!default$)[A-Za-z0-9_-]{1,59}", re.ASCII)  # lsb.queues, QUEUE_NAME
_WORD = re.compile(r"[^\s,]+")
_PROJECT = re.compile(r".{1,511}")
_MAIL_USER = re.compile(r"[^\s@]+(?:@[A-Za-z0-9.-]+)?", re.ASCII)
_LONGEST_ADDRESSES = 511
_LONGEST_PATH = 4094
# "Select string": names and numbers, compared and joined; whether parentheses come out even is checked by itself.
_OPERAND = r"[!( ]*(?:defined\([A-Za-z_]\w*\)|[A-Za-z_][\w.]*|[0-9]+(?:\.[0-9]+)?[KMGTkmgt]?[Bb]?)[) ]*"
_SELECTION = re.compile(rf"{_OPERAND}(?:(?:&&|\|\||[=!]=|[<>]=?|[-+*/]){_OPERAND})*", re.ASCII)
_SLURMS = re.compile(r"after(?:|ok|any|notok)(?::[0-9]+)+(?:,after(?:|ok|any|notok)(?::[0-9]+)+)*", re.ASCII)
# bsub -w. A job's name that begins with a digit would need quotes, which a directive cannot carry.
_JOB = r"(?:[0-9]+|[A-Za-z_.][A-Za-z0-9_.-]*\*?)(?:\[[0-9,:-]+\])?"
_NUMBER = ", ?(?:(?:[<>]=?|[=!]=) ?)?[0-9]+"
_CONDITION = (
    rf"(?:(?:done|ended|started|post_done|post_err)\({_JOB}\)|exit\({_JOB}(?:{_NUMBER})?\)"
    rf"|num(?:done|ended|exit|hold|pend|run|start)\({_JOB}(?:{_NUMBER}|, ?\*)\))"
)
_DEPENDENCY = re.compile(rf"{_CONDITION}(?: ?(?:&&|\|\|) ?{_CONDITION})*", re.ASCII)
_CONDITIONS = {"afterok": "done", "afterany": "ended", "afternotok": "exit", "after": "started"}
_NEEDS = ("cpus-per-task", "mem", "constraint")  # said by -R, beside ntasks-per-node
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
        needs += [f"rusage[mem={as_size(group.mem, ('MB', 'GB'))}/host]"]
    if group.constraint:
        needs.insert(0, f"select[{_selection(group.constraint)}]")
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
        *((f"-{letter}", "mail-type") for letter in sorted(refuse_unless_letters(job, _MAIL))),
        (_warning(job), "signal"),
    ]
    return tuple(Directive(text, field, _NEEDS if field == "ntasks-per-node" else ()) for text, field in found if text)


def _minutes(duration_s: int) -> int:
    """Return a duration in LSF's unit, rounded up."""
    return -(-duration_s // 60)


def _warning(job: Job) -> str:
    """Return the warning, or none where whole minutes would put it at the start: the script has a timer too."""
    if not job.time or _minutes(job.signal.before_s) >= _minutes(job.time):
        return ""
    return f"-wa {job.signal.name} -wt {_minutes(job.signal.before_s)}"


def _texts(job: Job) -> list[tuple[str, str]]:
    options = {
        "partition": ("-q", job.partition and _queues(job.partition)),
        "account": (
            "-P",
            job.account and refuse_unless_matching("account", job.account, _PROJECT, "at most 511 characters"),
        ),
        "qos": ("-sla", job.qos and refuse_unless_matching("qos", job.qos, _WORD, "one word")),
        "reservation": (
            "-U",
            job.reservation and refuse_unless_matching("reservation", job.reservation, _WORD, "one word"),
        ),
        "output": ("-o", job.output and _path("output", job.output, job.job_name)),
        "error": ("-e", job.error and _path("error", job.error, job.job_name)),
        "mail-user": ("-u", job.mail_user and _addresses(job.mail_user)),
        "dependency": ("-w", job.dependency and _dependency(job.dependency)),
    }
    return [(f"{letter} {_quoted(field, value)}", field) for field, (letter, value) in options.items() if value]


def _array(job: Job) -> str:
    ranges, _, most = refuse_unless_shorter(job.array or "").partition("%")
    if ranges and not _ARRAY.fullmatch(ranges):
        more = re.sub("(?<![:0-9])[0-9]+", lambda number: str(int(number[0]) + 1), ranges)
        works = f"--array {more}{'%' * bool(most)}{most}, which is one more for each"
        raise refused("array", job.array, "numbers from 1, as LSF counts", works)
    indices = f"[{ranges}]{'%' * bool(most)}{most}" if ranges else ""
    if indices and len(job.job_name + indices) > _LONGEST_ARRAY:
        can = f"at most {_LONGEST_ARRAY} characters together with the indices of the array"
        raise refused("job-name", job.job_name, can, "a shorter one, or fewer ranges")
    return indices


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
        can = "a path without %% before J, I and %, because bsub cannot represent them"
        raise refused(field, value, can, f"--{field} {value.replace('%%', '')}")
    if len(value) > _LONGEST_PATH:
        raise refused(field, value, f"a path of at most {_LONGEST_PATH} characters")
    return translated(field, value, {"j": "%J", "A": "%J", "J": "%J", "a": "%I", "x": job_name})


def _queues(value: str) -> str:
    """Return the queues, one of which runs the job, as LSF lists them."""
    can, queues = "queues of letters, digits, _ and -", re.split("[ ,]", value)
    return " ".join(refuse_unless_matching("partition", queue, _QUEUE, can) for queue in queues)


def _addresses(value: str) -> str:
    addresses = [
        refuse_unless_matching("mail-user", its, _MAIL_USER, "addresses", "me@example.org") for its in value.split(",")
    ]
    if len(" ".join(addresses)) > _LONGEST_ADDRESSES:
        raise refused("mail-user", value, f"at most {_LONGEST_ADDRESSES} characters", "fewer addresses")
    return " ".join(addresses)


def _selection(value: str) -> str:
    """Return an expression for `select`: Slurm's single & and | are LSF's double ones."""
    depths = [*accumulate((char == "(") - (char == ")") for char in value)]
    if not _SELECTION.fullmatch(value) or min(depths) < 0 or depths[-1]:
        works = re.sub(r"(?<!&)&(?!&)", "&&", re.sub(r"(?<!\|)\|(?!\|)", "||", value))
        remedy = f"--constraint {works!r}" if works != value and _SELECTION.fullmatch(works) else ""
        raise refused("constraint", value, "an expression of LSF, such as 'ib && maxmem>64000'", remedy)
    return value


def _quoted(field: str, value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    if not value.isprintable() or not _QUOTED.fullmatch(value):
        raise refused(field, value, "one printable line without quotes, \\, $, # and double spaces")
    return f'"{value}"'
