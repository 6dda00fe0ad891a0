"""The end of all descendants: TERM, a grace, and KILL until the kernel says that no child is left."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from mingle_hooks.supervise.node import processes

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.loop import Loop, Timer

# After KILL, in seconds: at first soon, for those that were forked meanwhile; then patiently, for those that the
# kernel holds.
_AGAIN_S, _AGAIN_AT_MOST_S = 0.005, 1.0


class Tree:
    """All that runs below this process, which adopts orphans.

    `on_ended(reaped)` comes for each child, `on_empty()` whenever none is left.
    """

    def __init__(self, loop: Loop, on_ended: Callable[[processes.Reaped], None], on_empty: Callable[[], None]) -> None:
        self._loop, self._on_ended, self._on_empty = loop, on_ended, on_empty
        self._kill: Timer | None = None
        self._kill_at = 0.0
        self._killed: set[int] = set()

    @property
    def is_ending(self) -> bool:
        """Whether an end has begun."""
        return self._kill is not None

    @property
    def killed(self) -> int:
        """How many had to be killed since the last time that none was left."""
        return len(self._killed)

    def end(self, grace_s: float) -> None:
        """TERM to all, once; KILL after the grace, the shortest that was asked for."""
        kill_at = self._loop.clock() + grace_s
        if self._kill is None:
            found = processes.descendants()
            processes.send(found, signal.SIGTERM)
            processes.send(found, signal.SIGCONT)  # one that is stopped hears nothing
        elif kill_at < self._kill_at:
            self._kill.cancel()
        else:
            return
        self._kill_at = kill_at
        self._kill = self._loop.after(grace_s, lambda: self._kill_all(_AGAIN_S))
        self.reap()

    def signal(self, number: int) -> None:
        """Pass a signal on to those that catch it; TERM to all."""
        found = processes.descendants()
        if number != signal.SIGTERM:
            found = [pid for pid in found if processes.catches(pid, number)]
        processes.send(found, number)

    def reap(self) -> None:
        """Take note of the children that have ended."""
        found, is_empty = processes.reap()
        if is_empty and self._kill is not None:
            self._kill.cancel()
            self._kill = None
        for child in found:
            self._on_ended(child)
        if is_empty:
            self._on_empty()
            self._killed.clear()

    def _kill_all(self, again_s: float) -> None:
        found = processes.descendants()
        self._killed.update(found)
        processes.send(found, signal.SIGKILL)
        self._kill_at = self._loop.clock()
        self._kill = self._loop.after(again_s, lambda: self._kill_all(min(2 * again_s, _AGAIN_AT_MOST_S)))
        self.reap()
