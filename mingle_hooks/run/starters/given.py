"""Hosts that somebody else starts: each runs `mingle exec --together`, and waits for the runner on rank 0's."""

from __future__ import annotations

from mingle_hooks.run.starters.allocation import Allocation
from mingle_hooks.run.starters.launch import Launch

CARRIES_ENVIRONMENT = True
SIGNALS_REACH_COMMAND = False
KILL_WAIT_S = 30.0  # Kubernetes' terminationGracePeriodSeconds


def launches(job: Allocation, hosts: tuple[str, ...], program: tuple[str, ...]) -> tuple[Launch, ...]:  # noqa: ARG001
    """Return nothing: from here no program can be started there."""
    return ()
