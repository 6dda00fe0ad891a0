"""When a leader's world may close, and which of its addresses that world uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.leader.roster import Roster
    from mingle_hooks.rendezvous.leader.terms import Terms
    from mingle_hooks.rendezvous.loop import Loop, Timer

# While somebody who may lead as well is asked, look this much later, in seconds, whether it has answered.
ASKED_S = 0.1
# With all in, wait this long for the best address to be reached by all before taking the next best:
# a connection whose first two packets are lost still comes through.
SETTLE_S = 3.5


class AddressChoice:
    """Calls `close` with the index of the address, while `gathers` is true; the owner calls stop()."""

    def __init__(
        self, loop: Loop, roster: Roster, terms: Terms, gathers: Callable[[], bool], close: Callable[[int], None]
    ) -> None:
        self._loop, self._roster, self._terms, self._gathers, self._close = loop, roster, terms, gathers, close
        self._settled = False
        self._quiet_until = loop.clock()
        self._refuses: Callable[[int], bool] = lambda _: False
        self._is_alone: Callable[[], bool] = lambda: True
        self._timers: dict[str, Timer] = {"first": loop.after(0.0, self.consider)}  # the leader may be all there is

    def stop(self) -> None:
        """Choose no more."""
        for timer in self._timers.values():
            timer.cancel()

    def listen_for(self, quiet_s: float) -> None:
        """Choose nothing for so many seconds, in which others of this id that are too many can be heard."""
        self._quiet_until = self._loop.clock() + quiet_s
        self._timers["quiet"] = self._loop.after(quiet_s, self.consider)

    def ask_first(self, is_alone: Callable[[], bool]) -> None:
        """Choose only once this says that nobody who may lead as well is being asked."""
        self._is_alone = is_alone

    def compare_first(self, refuses: Callable[[int], bool]) -> None:
        """Close only where this does not tell everybody why there is no world."""
        self._refuses = refuses

    def start_over(self) -> None:
        """Somebody has left: wait for the best address anew when all are in again."""
        self._settled = False
        if (timer := self._timers.pop("settle", None)) is not None:
            timer.cancel()

    def consider(self) -> None:
        """Look whether it is time."""
        if not self._gathers() or not self._roster.complete or self._loop.clock() < self._quiet_until:
            return
        if "settle" not in self._timers:
            self._timers["settle"] = self._loop.after(SETTLE_S, self._settle)
        if (offer := self._best()) is None:
            return
        if self._is_alone():
            if not self._refuses(offer):
                self._close(offer)
        else:
            self._timers["asked"] = self._loop.after(ASKED_S, self.consider)

    def _best(self) -> int | None:
        """Return the best address that may serve all, once they have reached it; later the best that they have."""
        for index, offer in enumerate(self._terms.advertised):
            if offer.loopback and not self._roster.one_machine:
                continue
            if self._roster.reached_by_all(index):
                return index
            if not self._settled:
                return None
        return None

    def _settle(self) -> None:
        self._settled = True
        self.consider()
