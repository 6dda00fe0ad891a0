"""Since when nobody has written: the clock of --stall, which stands still where nobody could know."""

from __future__ import annotations


class Stall:
    """Counts from the moment at which an attempt's world has formed, and anew from each word of a member's."""

    def __init__(self, after_s: float | None) -> None:
        self._after_s = after_s
        self._since: float | None = None  # None outside of an attempt that runs
        self._is_held = False  # output is not read, as the run's own reader does not read

    @property
    def due(self) -> float | None:
        """Return when it is a stall."""
        if self._after_s is None or self._since is None or self._is_held:
            return None
        return self._since + self._after_s

    def begin(self, now: float) -> None:
        """Begin to count."""
        self._since = now

    def end(self) -> None:
        """Count no more."""
        self._since = None

    def wrote(self, now: float) -> None:
        """Take note that a member has written."""
        if self._since is not None:
            self._since = now

    def hold(self, now: float, *, is_held: bool) -> None:
        """Stand still while nothing is read, and begin anew afterwards."""
        self._is_held = is_held
        self.wrote(now)
