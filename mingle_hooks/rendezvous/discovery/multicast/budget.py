"""A bound on how much is sent in any span of time, whoever asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Budget:
    """At most `burst` at once, and `per_second` on average after that."""

    def __init__(self, burst: int, per_second: float, clock: Callable[[], float]) -> None:
        self._left: float = burst
        self._burst, self._per_second, self._clock = burst, per_second, clock
        self._since = clock()

    def spend(self) -> bool:
        """Take one, if there is one."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._since) * self._per_second)
        self._since = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
