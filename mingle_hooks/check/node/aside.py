"""A question to the kernel that may hang, asked in a child: a thread that hangs there could not be left behind."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from mingle_hooks import jsontext
from mingle_hooks.check.node.patience import LOOK_S, Patience
from mingle_hooks.rendezvous.poller import READ
from mingle_hooks.supervise.node.descriptor import Descriptor

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mingle_hooks.rendezvous.loop import Loop

_READ_BYTES = 64 * 1024
_REAP_S = 0.05
# A host that stands still may take so many times as long by the clock.
_MOST_TIMES = 10


class Aside:
    """Calls `question()` in a child, and `on_answer(value)` here with what it returns; None where that takes longer."""

    def __init__(
        self, loop: Loop, question: Callable[[], object], limit_s: float, on_answer: Callable[[Any], None]
    ) -> None:
        self._loop, self._on_answer, self._said = loop, on_answer, b""
        reading, writing = os.pipe2(os.O_CLOEXEC)
        self._pid = os.fork()
        if not self._pid:
            _answer(question, writing)
        os.close(writing)
        self._pipe = Descriptor(reading)
        loop.watch(self._pipe, READ, lambda _events: self._read())
        self._patience = Patience(loop.clock, limit_s, limit_s * _MOST_TIMES)
        self._timer = loop.after(LOOK_S, self._look)

    def _look(self) -> None:
        self._patience.look()
        if self._patience.is_over:
            self._end(is_late=True)
        else:
            self._timer = self._loop.after(LOOK_S, self._look)

    def _read(self) -> None:
        data = os.read(self._pipe.fileno(), _READ_BYTES)
        self._said += data
        if not data:
            self._end(is_late=False)

    def _end(self, *, is_late: bool) -> None:
        self._timer.cancel()
        self._loop.unwatch(self._pipe)
        self._pipe.close()
        if is_late:
            os.kill(self._pid, signal.SIGKILL)
        self._reap()
        try:
            self._on_answer(jsontext.loads(self._said))
        except (ValueError, RecursionError):
            self._on_answer(None)

    def _reap(self) -> None:
        """Take note of its end; one that hangs in the kernel ends some time, or stays behind."""
        if os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            self._loop.after(_REAP_S, self._reap)


def _answer(question: Callable[[], object], writing: int) -> None:
    """Write the answer, and end; whatever goes wrong is none."""
    try:
        data = jsontext.dumps(question()).encode()
        while data:
            data = data[os.write(writing, data) :]
    finally:
        os._exit(0)
