"""Grid Engine: a `qrsh -inherit` to each host, for parallel environments with `control_slaves TRUE`.

Source: qrsh(1), sge_pe(5). A shell reads its words once more, unless a site says otherwise.
"""

from __future__ import annotations

from mingle_hooks.run.starters import plain
from mingle_hooks.run.starters.allocation import Allocation
from mingle_hooks.run.starters.launch import Launch

CARRIES_ENVIRONMENT = False
SIGNALS_REACH_COMMAND = False
KILL_WAIT_S = 10.0  # qdel sends KILL at once, or after the queue's `notify`
KEEPS = ("TMP", "SGE_JOB_SPOOL_DIR", "HOSTNAME", "SGE_HGR_", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def launches(job: Allocation, hosts: tuple[str, ...], program: tuple[str, ...]) -> tuple[Launch, ...]:  # noqa: ARG001
    """Return a qrsh to each host. Raises UsageError for words that a shell would read otherwise."""
    return tuple(Launch(("qrsh", "-inherit", host, *plain.words(program)), (host,)) for host in hosts)
