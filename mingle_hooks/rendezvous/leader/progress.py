"""Tells waiting members how many are in, at once where that changes what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.errors import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.leader.roster import Roster
    from mingle_hooks.rendezvous.loop import Loop, Timer
    from mingle_hooks.rendezvous.protocol import wire

# At most this often, and then less often, in seconds.
PROGRESS_S = (0.5, 1, 2, 5, 10)
# All are in, and the world still gathers: tell them, for then they try the other addresses too, once nobody has reached
# one for this long, in seconds. Thousands may be about to reach the best, and the rest of the time to settle suffices.
NEEDS_ALL_S = 0.5


def body(roster: Roster, rejected: list[str]) -> wire.Body:
    """Return what is told."""
    return {
        "in": len(roster),
        "of": roster.nodes or 0,
        "missing": printable(roster.missing(), 300),
        "knocks": rejected,
    }


class ProgressReports:
    """Calls `tell` from time to time; the owner calls close()."""

    def __init__(self, loop: Loop, tell: Callable[[], None]) -> None:
        self._loop, self._tell = loop, tell
        self._all_in: Timer | None = None
        self._step = 0
        self._report()

    def close(self) -> None:
        """Tell no more."""
        self._next.cancel()
        self.not_all_in()

    def all_in(self) -> None:
        """All are in: tell them soon, and not before; where that was due already, anew from now on."""
        self.not_all_in()
        self._all_in = self._loop.after(NEEDS_ALL_S, self._tell_all_in)

    def somebody_reached(self) -> None:
        """Somebody has reached an address: wait anew, as others may be about to."""
        if self._all_in is not None:
            self.all_in()

    def not_all_in(self) -> None:
        """Somebody has left."""
        if self._all_in is not None:
            self._all_in.cancel()
            self._all_in = None

    def _tell_all_in(self) -> None:
        self._all_in = None
        self._tell()

    def _report(self) -> None:
        if self._all_in is None:
            self._tell()
        delay_s = PROGRESS_S[min(self._step, len(PROGRESS_S) - 1)]
        self._step += 1
        self._next = self._loop.after(delay_s, self._report)
