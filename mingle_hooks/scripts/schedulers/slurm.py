"""Directives for sbatch. Source: sbatch(1); get_argument() in Slurm's src/sbatch/opt.c for the quoting."""

from __future__ import annotations

import re

from mingle_hooks.scripts.fields import as_hms, as_size, refused
from mingle_hooks.scripts.job import Group, Job
from mingle_hooks.scripts.schedulers import Directive

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./&|\[\]^~-]+", re.ASCII)
# _validate_job_desc() in slurmctld's job_mgr.c refuses what is longer.
_LONGEST_BYTES = {"output": 4095, "error": 4095, "array": 4096, "dependency": 131_072}
_LONGEST_OTHERS = 1024


def directives(job: Job) -> tuple[Directive, ...]:
    """Return the directives; for several groups of nodes those of a heterogeneous job. Raises UsageError."""
    if len(job.groups) > 1 and job.array:
        can = "nothing, because Slurm has no arrays of heterogeneous jobs"
        raise refused("array", job.array, can, "leaving --array out, or one group of nodes")
    found = [_option("job-name", job.job_name)]
    for number, group in enumerate(job.groups):
        found += [Directive("hetjob", "nodes")] if number else []
        found += _group(job, group)
        found += _whole(job) if not number else []
    return tuple(found)


def _group(job: Job, group: Group) -> list[Directive]:
    by_node = job.launcher.starts == "node"  # then Slurm starts one task, and that the others
    found = [
        _option("nodes", group.nodes),
        _option("ntasks-per-node", 1 if by_node else group.ntasks),
        _option("cpus-per-task", group.cpus and group.cpus * (group.ntasks if by_node else 1)),
        _option("gpus-per-node", group.gpus),
        _option("mem", group.mem and as_size(group.mem, ("M", "G"))),
        _option("constraint", group.constraint),
        _option("partition", job.partition),
    ]
    return [*(its for its in found if its.text), *([Directive("--exclusive", "exclusive")] if job.exclusive else [])]


def _whole(job: Job) -> list[Directive]:
    found = [
        _option("time", job.time and as_hms(job.time)),
        _option("account", job.account),
        _option("qos", job.qos),
        _option("reservation", job.reservation),
        _option("output", job.output),
        _option("error", job.error),
        _option("mail-user", job.mail_user),
        _option("mail-type", ",".join(job.mail_type)),
        _option("array", job.array),
        _option("dependency", job.dependency),
        # To `mingle run`, which is the batch script, and not to all processes: a launcher would die of it.
        _option("signal", f"B:{job.signal.name}@{job.signal.before_s}"),
    ]
    if job.requeue:
        found += [Directive("--requeue", "requeue"), Directive("--open-mode=append", "requeue")]
    return [its for its in found if its.text]


def _option(name: str, value: object) -> Directive:
    return Directive("" if value in (None, "") else f"--{name}={_quoted(name, str(value))}", name)


def _quoted(name: str, value: str) -> str:
    """Quote as sbatch reads it: a backslash escapes, also within quotes; a line feed cannot be escaped."""
    if "\n" in value or "\r" in value:
        raise refused(name, value, "one line, which a #SBATCH directive is", f"--{name} without the line feed")
    longest = _LONGEST_BYTES.get(name, _LONGEST_OTHERS)
    if len(value.encode("utf-8", "surrogateescape")) > longest:
        raise refused(name, value, f"at most {longest} bytes, which is Slurm's own limit", f"a shorter --{name}")
    if name in ("output", "error") and "\\" in value:
        raise refused(
            name, value, "a path without a backslash, which Slurm drops", f"--{name} {value.replace(chr(92), '_')}"
        )
    if _PLAIN.fullmatch(value):
        return value
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'
