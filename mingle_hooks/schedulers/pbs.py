"""OpenPBS and PBS Professional.

Source: the PBS User's Guide (environment variables, pbsdsh, pbs_tmrsh) and recorded environments.

The job script runs on the first host only; the other hosts run only what it starts by pbs_tmrsh or pbsdsh. So the
script of a job with several hosts is not a member (`is_batch`): it would wait for hosts that it has yet to start. It
starts one task on each host, its own included, and these are the members; their `step` is "". pbsdsh starts a task for
each slot instead: with `--scope task` PBS_TASKNUM gives each its slot.

`restarts` is unknown: a rerun job has the same variables, but another PBS_JOBCOOKIE.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from mingle_hooks.files import read_bounded
from mingle_hooks.schedulers.facts import MOST_NODES, JobFacts, Variables, is_readable, of_slots, read_nodefile

CONFIGURATION = "/etc/pbs.conf"
HOME = "/var/spool/pbs"
# 0.ctl, 2[4].ctl: no slash, so that it can stand in a path.
JOB_ID = r"[0-9]{1,12}(\[[0-9]{0,10}\]|-[0-9]{1,10})?(\.[A-Za-z0-9._-]{1,200})?"
COOKIE = r"[0-9A-Za-z._-]{16,255}"
TASK = "[0-9A-Fa-f]{1,8}"
# Tasks of pbsdsh and pbs_tmrsh have eight hexadecimal digits, the job script a short decimal number.
TASK_DIGITS = 8


def facts(environ: Mapping[str, str], configuration: str = CONFIGURATION) -> JobFacts:
    """Return PBS's facts.

    `configuration` has PBS_HOME, which a task on the first host without PBS_NODEFILE needs.
    Raises FactsError for an invalid variable or node file.
    """
    read = Variables(environ)
    job_id = read.text("job_id", "PBS_JOBID", pattern=JOB_ID) or ""
    node_rank = read.number("node_rank", "PBS_NODENUM", most=MOST_NODES)
    path = read.raw("hosts", "PBS_NODEFILE") or _spooled_nodefile(read, job_id, configuration)
    slots = read_nodefile(path) if path else {}
    task = read.text("slot", "PBS_TASKNUM", pattern=TASK)
    is_script = task is not None and len(task) < TASK_DIGITS
    found = _placed(read, of_slots("pbs", job_id, slots, read.sources), node_rank, is_script=is_script)
    if task is None or is_script or found.local_count is None:
        return found
    return found._replace(slot=_slot(int(task, 16), node_rank or 0, found.local_count, sum(slots.values())))


def _placed(read: Variables, job: JobFacts, node_rank: int | None, *, is_script: bool) -> JobFacts:
    """Return a job's facts with those of this process; its hosts may be unknown. Raises FactsError."""
    is_batch = is_script and len(job.hosts) > 1 and node_rank in (0, None)
    if len(job.hosts) == 1 and node_rank is None:
        node_rank = 0
    here, per_node = 0 if is_batch else node_rank, job.tasks_per_node
    for fact in ("nodes", "task_count", "tasks_per_node", "local_count"):
        read.sources[fact] = read.sources.get("hosts", "PBS_NODEFILE")
    return job._replace(
        node_rank=None if is_batch else node_rank,
        local_count=per_node[here] if here is not None and here < len(per_node) else None,
        cpus=read.number("cpus", "NCPUS", least=1),
        is_batch=is_batch,
        host=job.hosts[0] if is_batch else None,
        cookie=read.text("cookie", "PBS_JOBCOOKIE", pattern=COOKIE, secret=True),
    )


def _slot(task: int, node_rank: int, local_count: int, slots: int) -> int:
    """Return a task's slot on its host; the tasks of one pbsdsh have consecutive numbers.

    The upper bits of a task's number identify the host, as many as the job's number of slots has; on the first host
    the job script is task 1.
    """
    number = task & ((1 << (32 - slots.bit_length())) - 1)
    return (number - (1 if node_rank else 2)) % local_count


def _spooled_nodefile(read: Variables, job_id: str, configuration: str) -> str | None:
    """Return the node file in PBS_HOME, which a task on the first host can read without PBS_NODEFILE."""
    path = os.path.join(home(configuration), "aux", job_id)
    if not os.access(path, os.R_OK):
        return None
    read.sources["hosts"] = path
    return path


def home(configuration: str = CONFIGURATION) -> str:
    """Return PBS_HOME, from lines such as ``PBS_HOME=/var/spool/pbs``, with blanks and quotes or without."""
    return next(filter(os.path.isabs, _values(configuration, "PBS_HOME")), HOME)


def programs(configuration: str = CONFIGURATION) -> str | None:
    """Return the directory of qsub, qdel and pbs_tmrsh, below PBS_EXEC; None where nothing names it."""
    found = next(filter(os.path.isabs, _values(configuration, "PBS_EXEC")), None)
    return found and os.path.join(found, "bin")


def starts_mom(configuration: str = CONFIGURATION) -> bool:
    """Return whether this host runs jobs: PBS_START_MOM is not 0."""
    return "0" not in _values(configuration, "PBS_START_MOM")


def _values(configuration: str, key: str) -> list[str]:
    try:
        text = read_bounded(configuration, 65_536).decode(errors="replace")  # a real one has a dozen lines
    except OSError:
        return []
    pairs = [line.partition("=") for line in text.splitlines()]
    return [value.strip().strip("\"'") for name, _, value in pairs if name.strip() == key]


# Torque.
#
# Source: the TORQUE Administrator's Guide, "Job submission" (exported batch environment variables).
def torque(environ: Mapping[str, str]) -> JobFacts | None:
    """Return Torque's facts, or None outside of its jobs.

    As in PBS the job script of several hosts is no member: it is task 1 on node 0, and pbsdsh's tasks have higher
    numbers. On other hosts the node file may be missing; then the number of nodes is PBS_NUM_NODES. Raises FactsError
    for an invalid variable or node file.
    """
    read = Variables(environ)
    job_id = read.text("job_id", "PBS_JOBID", pattern=JOB_ID)
    if job_id is None:
        return None
    node_rank = read.number("node_rank", "PBS_NODENUM", most=MOST_NODES)
    path = read.raw("hosts", "PBS_NODEFILE")
    if node_rank and path and not is_readable(path):
        path = None
    slots = read_nodefile(path) if path else {}
    is_script = not node_rank and read.number("task", "PBS_TASKNUM") in (0, 1)
    found = _placed(read, of_slots("torque", job_id, slots, read.sources), node_rank, is_script=is_script)
    if slots:
        return found._replace(gpus=_torque_gpus(read, found.hosts, 0 if found.is_batch else node_rank))
    return found._replace(
        nodes=read.number("nodes", "PBS_NUM_NODES", least=1, most=MOST_NODES),
        task_count=read.number("task_count", "PBS_NP", least=1),
        local_count=read.number("local_count", "PBS_NUM_PPN", least=1),
    )


def _torque_gpus(read: Variables, hosts: tuple[str, ...], node_rank: int | None) -> int | None:
    """Return the number of this host's lines ``host-gpuN`` in PBS_GPUFILE."""
    path = read.raw("gpus", "PBS_GPUFILE")
    if path is None or node_rank is None or node_rank >= len(hosts) or not is_readable(path):
        return None
    if os.path.getsize(path) == 0:
        return 0
    return sum(gpu.startswith(f"{hosts[node_rank]}-gpu") for gpu in read_nodefile(path))
