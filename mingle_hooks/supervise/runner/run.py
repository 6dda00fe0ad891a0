"""One `mingle run` from its beginning to its exit status, and what queues it again."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from mingle_hooks import preflight
from mingle_hooks.errors import MissingError
from mingle_hooks.rendezvous.loop import Loop
from mingle_hooks.supervise.runner import signals
from mingle_hooks.supervise.runner.launching import START, Launching

if TYPE_CHECKING:
    from mingle_hooks.supervise.runner.request import Request
    from mingle_hooks.supervise.runner.runner import Runner


def run(request: Request) -> int:
    """Return the exit status of a run.

    Raises what opening ports, files and directories raises, PlaceError without an output or a working directory,
    UsageError, and MissingError where --again has had enough.
    """
    preflight.check_runner()
    with Loop() as loop:
        launching = Launching(
            loop,
            request.starter,
            request.job,
            START,
            iface=request.iface,
            port_range=request.port_range,
            agreed=request.agreed,
        )
        try:
            heard = signals.listen()
            launching.start_ahead(request.plan.hosts)
            runner = _ran(loop, request, launching, heard)
        finally:
            launching.close()
    return _again(request, runner) if request.again else runner.status


def _ran(loop: Loop, request: Request, launching: Launching, heard: int) -> Runner:
    """Return a runner whose run is over."""
    from mingle_hooks.supervise.runner.runner import Runner

    runner = Runner(loop, request, launching)
    try:
        runner.begin(heard)
        loop.run(lambda: runner.is_over)
    finally:
        runner.close()
    return runner


def _again(request: Request, runner: Runner) -> int:
    """Run the line that queues the job again, where that makes sense; its own status, if it has one, is the job's.

    Raises MissingError where it has been queued again too often without a world.
    """
    from mingle_hooks.supervise.runner.causes import INFRASTRUCTURE, SIGNALLED
    from mingle_hooks.supervise.runner.fruitless import MOST, Fruitless

    fruitless = Fruitless(request, os.environ)
    if runner.had_world:
        fruitless.forget()
    is_cut_short = runner.was_warned and runner.status != SIGNALLED + signal.SIGINT  # and not stopped by a person
    if runner.status != INFRASTRUCTURE and not is_cut_short:
        return runner.status
    if not runner.had_world and not fruitless.may_go_on():
        fruitless.forget()  # whoever queues it now has seen why it ended
        raise MissingError(
            "a world", f"none, {MOST + 1} times in a row: the job is not requeued", "what mingle printed above"
        )
    import subprocess

    status = subprocess.run(["/bin/sh", "-c", str(request.again)], check=False).returncode  # noqa: S603 - the user's own
    return max(status, 0) or INFRASTRUCTURE
