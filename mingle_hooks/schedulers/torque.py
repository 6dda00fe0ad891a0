"""Torque.

Source: the TORQUE Administrator's Guide, "Job submission" (exported batch environment variables).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from mingle_hooks.schedulers import hostlist
from mingle_hooks.schedulers.facts import MOST_NODES, JobFacts, Variables
from mingle_hooks.schedulers.pbs import JOB_ID, of_slots


def facts(environ: Mapping[str, str]) -> JobFacts | None:
    """Return what Torque says, or None outside of its jobs.

    As in PBS the job script of several hosts does not take part: it is task 1 on node 0, and pbsdsh's
    tasks have higher numbers. On sister hosts the node file may be missing; then the number of nodes is
    PBS_NUM_NODES. Raises FactsError for a variable or a node file that makes no sense.
    """
    read = Variables(environ)
    job_id = read.text("job_id", "PBS_JOBID", pattern=JOB_ID)
    if job_id is None or not any(environ.get(name) for name in ("PBS_NUM_NODES", "PBS_VNODENUM", "PBS_NP")):
        return None
    node_rank = read.number("node_rank", "PBS_NODENUM", most=MOST_NODES)
    path = read.long("hosts", "PBS_NODEFILE")
    if node_rank and path and not hostlist.is_readable(path):
        path = None
    if path is None:
        return _without_nodefile(read, job_id, node_rank)
    slots = hostlist.read_nodefile(path)
    is_batch = len(slots) > 1 and node_rank in (0, None) and read.number("task", "PBS_TASKNUM") in (0, 1)
    gpus = _gpus(read, tuple(slots), 0 if is_batch else node_rank)
    return of_slots(read, slots, scheduler="torque", job_id=job_id, node_rank=node_rank, is_batch=is_batch, gpus=gpus)


def _without_nodefile(read: Variables, job_id: str, node_rank: int | None) -> JobFacts:
    return JobFacts(
        scheduler="torque",
        job_id=job_id,
        nodes=read.number("nodes", "PBS_NUM_NODES", least=1, most=MOST_NODES),
        node_rank=node_rank,
        task_count=read.number("task_count", "PBS_NP", least=1),
        local_count=read.number("local_count", "PBS_NUM_PPN", least=1),
        sources=read.sources,
    )


def _gpus(read: Variables, hosts: tuple[str, ...], node_rank: int | None) -> int | None:
    """Return this host's lines ``host-gpuN`` in PBS_GPUFILE."""
    path = read.long("gpus", "PBS_GPUFILE")
    if path is None or node_rank is None or node_rank >= len(hosts) or not hostlist.is_readable(path):
        return None
    if os.path.getsize(path) == 0:
        return 0
    return sum(gpu.startswith(f"{hosts[node_rank]}-gpu") for gpu in hostlist.read_nodefile(path))
