"""One `mingle run` from its beginning to its exit status, and what queues it again."""

from __future__ import annotations

import os
import signal

from mingle_hooks.errors import MissingError, UsageError
from mingle_hooks.rendezvous.loop import Loop
from mingle_hooks.supervise.runner.causes import INFRASTRUCTURE, SIGNALLED
from mingle_hooks.supervise.runner.fruitless import MOST, Fruitless
from mingle_hooks.supervise.runner.runner import NODE, Runner
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from mingle_hooks.supervise.runner.request import Request


def run(request: Request) -> int:
    """Return the exit status of a run.

    Raises what opening ports, files and directories raises, UsageError, and MissingError where --again has had enough.
    """
    if not os.path.isfile(f"{NODE}/start.py"):
        raise UsageError("an installed mingle, of which each host starts a program", NODE, "`pip install` of the wheel")
    with Loop() as loop:
        runner = Runner(loop, request)
        try:
            runner.begin()
            loop.run(lambda: runner.is_over)
        finally:
            runner.close()
    return _again(request, runner) if request.again else runner.status


def _again(request: Request, runner: Runner) -> int:
    """Run the line that queues the job again, where that makes sense; its own status, if it has one, is the job's.

    Raises MissingError where it has been queued again too often without a world.
    """
    fruitless = Fruitless(request, os.environ)
    if runner.had_world:
        fruitless.forget()
    is_cut_short = runner.was_warned and runner.status != SIGNALLED + signal.SIGINT  # and not stopped by a person
    if runner.status != INFRASTRUCTURE and not is_cut_short:
        return runner.status
    if not runner.had_world and not fruitless.may_go_on():
        fruitless.forget()  # whoever queues it now has seen why it ended
        raise MissingError(
            "a world", f"none, {MOST + 1} times in a row: the job is not queued again", "what is said above"
        )
    import subprocess

    status = subprocess.run(["/bin/sh", "-c", str(request.again)], check=False).returncode  # noqa: S603 - the user's own
    return max(status, 0) or INFRASTRUCTURE
