"""OAR: an oarsh to each host, which is OpenSSH's client with the job's key.

Source: OAR's user documentation, oarsh(1).
"""

from __future__ import annotations

from mingle_hooks.run.starters import limit, ssh
from mingle_hooks.run.starters.allocation import Allocation
from mingle_hooks.run.starters.launch import Launch

CARRIES_ENVIRONMENT = False
TAKES_STDIN = True
SIGNALS_REACH_COMMAND = False
KILL_WAIT_S = 10.0
KEEPS = ("SSH_", "XDG_", "OAR_CPUSET", "OAR_TASK", "DBUS_SESSION_BUS_ADDRESS", "HOSTNAME", "TMPDIR")
READS = ("OAR_JOB_WALLTIME_SECONDS",)


def launches(job: Allocation, hosts: tuple[str, ...], program: tuple[str, ...]) -> tuple[Launch, ...]:  # noqa: ARG001
    """Return an oarsh to each host; the user's login shell reads the program's words there."""
    return tuple(Launch(("oarsh", host, ssh.remote_line(program)), (host,)) for host in hosts)


def completed(job: Allocation) -> Allocation:
    """Return the allocation with its end."""
    return job._replace(end=limit.end(job.environ.get("OAR_JOB_WALLTIME_SECONDS", "")))
