"""OpenPBS and PBS Professional: a pbs_tmrsh to each host, which takes words as they are and hands on nothing else.

Source: pbs_tmrsh(8), and a real OpenPBS 23.06: the status is the program's, 254 and 255 where it could not begin.
"""

from __future__ import annotations

from mingle_hooks.run.starters.allocation import Allocation
from mingle_hooks.run.starters.launch import Launch

CARRIES_ENVIRONMENT = False
# qdel and the time limit reach the sessions of the first host's tasks only; COMMAND has one of its own.
SIGNALS_REACH_COMMAND = False
KILL_WAIT_S = 10.0  # kill_delay of a queue
# A task's own. PBS_NODEFILE is not: on the first host a task has none, and its path is the same everywhere.
KEEPS = (
    *("PBS_NODENUM", "PBS_TASKNUM", "PBS_MOMPORT", "PBS_JOBDIR", "NCPUS", "TMPDIR", "HOSTNAME"),
    # Of the hook that gives each job its GPUs: by their ids, which are others on each host.
    *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"),
)


def launches(job: Allocation, hosts: tuple[str, ...], program: tuple[str, ...]) -> tuple[Launch, ...]:  # noqa: ARG001
    """Return a pbs_tmrsh to each host, by the names of the node file."""
    return tuple(Launch(("pbs_tmrsh", host, *program), (host,)) for host in hosts)
