"""How long a probe waits: what it could not do while it did not run says nothing of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Whoever waits looks so often whether it is over, in seconds.
LOOK_S = 0.02
# Of the time since the last look no more counts, in seconds: this process, or its host, stood still for the rest.
_COUNTED_S = 2 * LOOK_S


class Patience:
    """Lasts for `limit_s` of the time in which this process comes round, but for no more than `most_s` by the clock.

    `late_s` is for how long it stood still, in seconds.
    """

    def __init__(self, clock: Callable[[], float], limit_s: float, most_s: float) -> None:
        self._clock, self._left_s = clock, limit_s
        self._last = clock()
        self._end = self._last + max(limit_s, most_s)
        self.late_s = 0.0

    @property
    def has_lasted(self) -> bool:
        """Whether what has not come by now does not come."""
        return self._left_s <= 0.0

    @property
    def is_over(self) -> bool:
        """Whether nobody waits any longer."""
        return self.has_lasted or self._last >= self._end

    def look(self) -> None:
        """Take note that the process has come round."""
        now = self._clock()
        passed_s, self._last = now - self._last, now
        self.late_s += max(passed_s - _COUNTED_S, 0.0)
        self._left_s -= min(passed_s, _COUNTED_S)
