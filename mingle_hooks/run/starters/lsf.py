"""IBM Spectrum LSF: a blaunch to each host.

Source: blaunch(1). Sites differ in what it hands on, and in whether a shell reads its words once more.
"""

from __future__ import annotations

from mingle_hooks.run.starters import plain
from mingle_hooks.run.starters.allocation import Allocation
from mingle_hooks.run.starters.launch import Launch

CARRIES_ENVIRONMENT = False
SIGNALS_REACH_COMMAND = False
KILL_WAIT_S = 10.0  # lsb.params, JOB_TERMINATE_INTERVAL
KEEPS = ("LSF_PM_", "LS_JOBPID", "TMPDIR", "HOSTNAME", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def launches(job: Allocation, hosts: tuple[str, ...], program: tuple[str, ...]) -> tuple[Launch, ...]:  # noqa: ARG001
    """Return a blaunch to each host. Raises UsageError for words that a shell would read otherwise."""
    return tuple(Launch(("blaunch", host, *plain.words(program)), (host,)) for host in hosts)
