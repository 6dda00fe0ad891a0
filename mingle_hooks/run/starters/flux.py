"""Flux: a `flux exec` to each host of the instance that a batch script or `flux start` has for itself.

It has this process's environment and directory, takes words as they are, and does not wait for resources.

Source: flux-exec(1), flux-broker-attributes(7), hostlist, flux-environment(7), and src/cmd/flux-exec.c.
"""

from __future__ import annotations

import subprocess

from mingle_hooks.errors import FactsError, reason
from mingle_hooks.run.starters.allocation import Allocation
from mingle_hooks.run.starters.launch import Launch
from mingle_hooks.schedulers import hostlist

CARRIES_ENVIRONMENT = True
SIGNALS_REACH_COMMAND = False
KILL_WAIT_S = 5.0  # flux-config-exec(5), kill-timeout
READS = ("FLUX_ENCLOSING_ID",)
_ASK = ("flux", "getattr", "hostlist")
_ASK_S = 30.0


def launches(job: Allocation, hosts: tuple[str, ...], program: tuple[str, ...]) -> tuple[Launch, ...]:
    """Return a flux exec to each host: the broker's rank is the host's place in the instance's list."""
    return tuple(
        Launch(("flux", "exec", "--noinput", f"--rank={job.hosts.index(host)}", *program), (host,)) for host in hosts
    )


def completed(job: Allocation) -> Allocation:
    """Return the allocation with the hosts of the instance, one slot each. Raises FactsError."""
    try:
        done = subprocess.run(_ASK, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_S, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise FactsError("an answer of `flux getattr hostlist`", reason(error), "to run it yourself") from None
    hosts = hostlist.expand(done.stdout.decode("ascii", "backslashreplace").strip())
    name = job.environ.get("FLUX_ENCLOSING_ID", "").replace("\u0192", "f")
    return job._replace(hosts=hosts, slots=(1,) * len(hosts), own=None, job_id=name or None)
