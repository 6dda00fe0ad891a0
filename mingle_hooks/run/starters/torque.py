"""Torque: a pbsdsh to each host, which takes words as they are and hands on nothing else.

Source: pbsdsh(1) of Torque: -h names a host, -o leaves the output to who started it.
"""

from __future__ import annotations

from mingle_hooks.run.starters import limit
from mingle_hooks.run.starters.allocation import Allocation
from mingle_hooks.run.starters.launch import Launch

CARRIES_ENVIRONMENT = False
SIGNALS_REACH_COMMAND = False
KILL_WAIT_S = 2.0  # kill_delay of a queue
KEEPS = (
    *("PBS_NODENUM", "PBS_VNODENUM", "PBS_TASKNUM", "PBS_MOMPORT", "TMPDIR", "HOSTNAME"),
    *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
)
READS = ("PBS_WALLTIME",)


def launches(job: Allocation, hosts: tuple[str, ...], program: tuple[str, ...]) -> tuple[Launch, ...]:  # noqa: ARG001
    """Return a pbsdsh to each host, by the names of the node file."""
    return tuple(Launch(("pbsdsh", "-o", "-h", host, *program), (host,)) for host in hosts)


def completed(job: Allocation) -> Allocation:
    """Return the allocation with its end."""
    return job._replace(end=limit.end(job.environ.get("PBS_WALLTIME", "")))
