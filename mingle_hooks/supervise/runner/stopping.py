"""What ends a run from outside: a person, the scheduler, or the time limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.supervise.runner.causes import INFRASTRUCTURE, SIGNALLED

if TYPE_CHECKING:
    from mingle_hooks.supervise.runner.words import Plan

HUP, INT, PIPE, TERM = 1, 2, 13, 15
ENDS = (HUP, INT, TERM)
# At the limit all has to be over; the grace, and this long for the rest.
BEFORE_LIMIT_S = 5.0
# A scheduler's own warning may come so much earlier than ours, or later.
NEAR_S = 60.0


class Asked(NamedTuple):
    """The first that asked for the end: the signal that COMMAND gets, and the status of the run."""

    number: int
    status: int


class Stopping:
    """Holds who asked for the end, and when what is due."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.began = 0.0
        self.asked: Asked | None = None
        self.by: float | None = None  # COMMAND may end by itself until then
        self.is_hurried = False
        self.was_warned = self._by_clock = self._limited = False

    @property
    def due(self) -> float | None:
        """Return when something is to be done at the latest."""
        times = (self.by, self._warn_at(), self._limit_at())
        return min((time for time in times if time is not None), default=None)

    def ask(self, number: int, status: int | None = None) -> bool:
        """Take note of who wants the end; tell whether that is the first. After the warning TERM means the limit."""
        if self.asked is not None:
            return False
        usual = INFRASTRUCTURE if self.was_warned and number == TERM else SIGNALLED + number
        self.asked = Asked(number, usual if status is None else status)
        return True

    def is_warning_due(self, now: float) -> bool:
        """Tell once when the warning is due."""
        at = self._warn_at()
        if at is None or now < at:
            return False
        self.was_warned = self._by_clock = True
        return True

    def is_warning(self, number: int, now: float) -> bool:
        """Tell whether a signal is the warning; one that asks for the end otherwise is it about that time only."""
        is_warning = number == self._plan.warn_signal and (number not in ENDS or self._is_near(now))
        self.was_warned |= is_warning
        return is_warning

    def is_repeated(self, number: int, now: float) -> bool:
        """Tell whether a signal is the warning that our clock has given."""
        return self._by_clock and number == self._plan.warn_signal and self._is_near(now)

    def _is_near(self, now: float) -> bool:
        at = self._plan.warn_at_s
        return at is not None and abs(now - self.began - at) <= NEAR_S

    def is_limit_due(self, now: float) -> bool:
        """Tell once when the time has come to end."""
        at = self._limit_at()
        if at is None or now < at:
            return False
        self._limited = True
        return True

    def _warn_at(self) -> float | None:
        at = self._plan.warn_at_s
        return None if at is None or self.was_warned else self.began + at

    def _limit_at(self) -> float | None:
        at = self._plan.limit_at_s
        if at is None or self._limited:
            return None
        return self.began + max(at - self._plan.grace_s - BEFORE_LIMIT_S, at / 2)  # of a short time half is COMMAND's
