"""The end of a run: all output is in, the supervisors leave, what started them ends, readers take the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.supervise.runner.hub import Hub
    from mingle_hooks.supervise.runner.output import Output
    from mingle_hooks.supervise.runner.starting import Processes

_LOOK_S = 0.005
# Without any progress, output is waited for so long; then those that are here; then what started them, which may wait
# for hosts that are lost; then that, once it was told to end.
DRAIN_S, LEAVE_S, ALONE_S, END_S = 5.0, 5.0, 2.0, 1.0


class Finish:
    """Goes from step to step, each as long as it makes progress; then `on_over()` comes."""

    def __init__(
        self,
        loop: Loop,
        hub: Hub,
        output: Output,
        processes: Processes,
        is_drained: Callable[[], bool],
        on_over: Callable[[], None],
    ) -> None:
        self._loop, self._hub, self._output, self._processes = loop, hub, output, processes
        self._is_drained, self._on_over = is_drained, on_over
        self._status, self._reader_s = 0, 0.0
        self._since, self._seen = 0.0, -1

    def begin(self, status: int, reader_s: float) -> None:
        """Begin with the output; a reader that takes nothing for `reader_s` is given up."""
        self._status, self._reader_s = status, reader_s
        self._output.is_last = True
        self._hub.hold(wanted=False)
        self._enter(self._draining)

    def _enter(self, step: Callable[[], None]) -> None:
        self._since = self._loop.clock()
        step()

    def _later(self, step: Callable[[], None]) -> None:
        self._loop.after(_LOOK_S, step)

    def _is_over(self, progress: int, longest_s: float) -> bool:
        """Tell whether nothing has changed for too long."""
        now = self._loop.clock()
        if progress != self._seen:
            self._seen, self._since = progress, now
        return now - self._since > longest_s

    def _draining(self) -> None:
        came = self._output.taken_bytes + self._output.waiting_bytes
        if self._is_drained() or self._is_over(came, DRAIN_S):
            self._hub.dismiss(self._status)
            self._enter(self._leaving)
        else:
            self._later(self._draining)

    def _leaving(self) -> None:
        here = len(self._hub.here)
        if self._processes.running and not self._is_over(here, LEAVE_S if here else ALONE_S):
            self._later(self._leaving)
            return
        self._processes.kill(at_once=False)
        self._enter(self._ending)

    def _ending(self) -> None:
        if self._processes.running and not self._is_over(len(self._processes.running), END_S):
            self._later(self._ending)
            return
        self._processes.kill(at_once=True)
        self._enter(self._reading)

    def _reading(self) -> None:
        if not self._output.waiting_bytes:
            self._on_over()
        elif self._is_over(self._output.taken_bytes, self._reader_s):
            left = self._output.give_up()
            self._output.say(f"mingle run: {left} bytes of output are lost: not read for {self._reader_s:.0f} s\n")
            self._output.give_up()
            self._on_over()
        else:
            self._later(self._reading)
