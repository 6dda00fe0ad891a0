"""What one member of an attempt is told: its place in the world, and how to start COMMAND."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mingle_hooks.supervise.protocol.messages import Start

if TYPE_CHECKING:
    from mingle_hooks.supervise.runner.request import Request
    from mingle_hooks.supervise.runner.words import Begin


def facts(request: Request, begin: Begin, run_id: str) -> dict[str, object]:
    """Return what MINGLE_RUN says: each attempt is a step of its own, so that its world meets no earlier one's."""
    place = request.plan.places[begin.place]
    local_count = begin.slots[begin.rank]
    found: dict[str, object] = {
        "step": f"run.{run_id}.{begin.attempt}",
        "nodes": len(begin.hosts),
        "node_rank": begin.rank,
        "hosts": [*begin.hosts],
        "task_rank": rank(request, begin),
        "task_count": sum(begin.slots),
        "local_rank": place.local,
        "local_count": local_count,
    }
    if request.agreed is not None:  # their names may be no names to others: the scheduler's hosts are asked, if any
        del found["hosts"]
        return found
    return found if request.job.job_id else {**found, "job_id": run_id}


def rank(request: Request, begin: Begin) -> int:
    """Return a member's rank among all members."""
    return sum(begin.slots[: begin.rank]) + request.plan.places[begin.place].local


def start(request: Request, begin: Begin, run_id: str) -> Start:
    """Return what a supervisor is sent."""
    umask = os.umask(0o077)
    os.umask(umask)
    return Start(
        attempt=begin.attempt,
        facts={} if request.is_of_job else facts(request, begin, run_id),
        options=request.options,
        command=request.command,
        environ={} if request.key is None else {"MINGLE_KEY": request.key},
        directory=directory(),
        umask=umask,
    )


def directory() -> str:
    """Return where COMMAND is to run: the caller's way there, as on another host a link may lead elsewhere."""
    said = os.environ.get("PWD", "")
    try:
        if said.startswith("/") and os.path.samefile(said, "."):
            return said
        return os.getcwd()
    except OSError:  # it has been removed
        return "/"


def label(request: Request, begin: Begin, member: int) -> str:
    """Return what stands before each line of a member's; nothing where it is the only one."""
    if not request.is_labelled or sum(begin.slots) == 1:
        return ""
    host = request.plan.places[begin.place].host
    return f"{member} {host}: " if request.is_per_task else f"{host}: "
