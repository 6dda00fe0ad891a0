"""The supervisor's parent: where either of the two is killed, the other ends all that is left.

Both are subreapers. A pipe from the warden tells the supervisor of each signal, and by its end of the warden's.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mingle_hooks.errors import MingleError
from mingle_hooks.supervise.node import kernel, processes, signals
from mingle_hooks.supervise.node.options import Options, Task

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_RUNNER = 75  # EX_TEMPFAIL: trying again makes sense
_STDERR = 2


def run(arguments: Sequence[str]) -> int:
    """Return the exit status of a supervisor, with nothing of it left."""
    _fill_standard_descriptors()
    try:
        options = Options.parse(arguments)
        if options.environ or options.is_stdin:
            from mingle_hooks.supervise.node import environ

            environ.become("supervise/node/start.py", options)
        task = Task.find(options, os.environ)
    except MingleError as wrong:
        os.write(_STDERR, f"mingle run: {wrong}\n".encode())
        return wrong.exit_code
    return _begin(task)


def _begin(task: Task) -> int:
    """Fork the supervisor: it has a small parent, and what it loads is its own."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    kernel.adopt_orphans()
    signals.hold()
    child = os.fork()
    if not child:
        os.close(writing)
        return _supervise(task, reading)
    return _guard(child, writing)  # the other end stays open: a signal after the supervisor's end breaks no pipe


def _guard(child: int, pipe: int) -> int:
    """Wait for the supervisor, and end what it left."""
    signals.write_to(pipe)
    signals.release()
    _, status = os.waitpid(child, 0)
    processes.kill_all()
    return max(os.waitstatus_to_exitcode(status), 0) if os.WIFEXITED(status) else NO_RUNNER


def _supervise(task: Task, warden: int) -> int:
    from mingle_hooks.supervise.node import supervisor

    os.setsid()  # PBS, at a job's end, kills the whole session that it began: one of the two has to see that
    kernel.adopt_orphans()
    try:
        return supervisor.run(task, warden)
    except Exception:  # noqa: BLE001 - a bug: what runs must end, and the report needs the trace
        import traceback

        os.write(_STDERR, f"mingle run: {traceback.format_exc()}".encode())
        return NO_RUNNER


def _fill_standard_descriptors() -> None:
    """Put something in the place of a standard stream that is closed, so that no pipe of ours gets its number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(descriptor)
