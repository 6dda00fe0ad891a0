"""One probe from its start to its end, which comes with that of `mingle check`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mingle_hooks.check.node.probe import Probe
from mingle_hooks.errors import MingleError
from mingle_hooks.rendezvous.loop import Loop
from mingle_hooks.supervise.node.options import Options, Task

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_CHECK = 75  # EX_TEMPFAIL: trying again makes sense
_STDERR = 2
# Who has not found the check by then finds none, and nobody waits longer for one, in seconds: its own host may be gone.
_APPROACH_S, _LONGEST_S = 30.0, 600.0


def run(arguments: Sequence[str]) -> int:
    """Return the exit status."""
    try:
        options = Options.parse(arguments)
        if options.environ or options.is_stdin:
            from mingle_hooks.supervise.node import environ

            environ.become("check/node/start.py", options)
        task = Task.find(options, os.environ)
        with Loop() as loop:
            return _probe(loop, task)
    except MingleError as wrong:
        os.write(_STDERR, f"mingle check: {wrong}\n".encode())
        return wrong.exit_code


def _probe(loop: Loop, task: Task) -> int:
    probe = Probe(loop, task, os.environ)
    loop.after(_APPROACH_S, lambda: None if probe.is_found else probe.leave())
    loop.after(_LONGEST_S, probe.leave)
    loop.run(lambda: probe.is_over)
    return 0 if probe.was_dismissed else NO_CHECK
