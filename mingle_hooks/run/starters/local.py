"""This host alone: the program is started here, and gets this process's environment."""

from __future__ import annotations

from mingle_hooks.run.starters.allocation import Allocation
from mingle_hooks.run.starters.launch import Launch

CARRIES_ENVIRONMENT = True
SIGNALS_REACH_COMMAND = False
KILL_WAIT_S = 30.0  # nobody else's: that of a supervisor


def launches(job: Allocation, hosts: tuple[str, ...], program: tuple[str, ...]) -> tuple[Launch, ...]:  # noqa: ARG001
    """Return the program itself."""
    return tuple(Launch(program, (host,)) for host in hosts)
