"""Which failure of an attempt was the first, and whether it is the same again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mingle_hooks.supervise.runner.causes import Cause
    from mingle_hooks.supervise.runner.roster import Roster

# What was begun again so often, and failed in the same way each time, is not begun once more.
MOST_SAME_RESTARTS = 3


class Blame:
    """Holds the cause, and the places that were quiet when it came: one that turns out to be lost was the first."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self.cause: Cause | None = None
        self.progress: object = None  # what the program gets further by, as whoever runs this sees it
        self._quiet: dict[int, float] = {}  # place -> since when
        self.suspects: dict[int, float] = {}
        self._is_told = True
        self._seen: object = None
        self._same = 0

    def forget(self) -> None:
        """Begin an attempt, of which nothing is known yet."""
        self.cause, self._is_told = None, True
        self.suspects.clear()

    def quiet(self, place: int, since: float) -> None:
        """Take note that a place gives no signs."""
        self._quiet[place] = since

    def heard(self, place: int) -> None:
        """Take note of a sign."""
        self._quiet.pop(place, None)
        self.suspects.pop(place, None)

    def suspect(self, places: Iterable[int]) -> None:
        """Wait with the word on the cause for those of the places that are quiet now."""
        self.suspects = {place: self._quiet[place] for place in places if place in self._quiet}

    def on(self, cause: Cause) -> None:
        """Make this the cause, in the place of the one before."""
        if self.cause is not None and self.cause.is_of_host:
            self._roster.failures[self.cause.host] -= 1
        self.cause, self._is_told = cause, False
        if cause.is_of_host:
            self._roster.failures[cause.host] += 1

    def to_tell(self) -> Cause | None:
        """Return the cause once it is certain, and only once."""
        if self._is_told or self.suspects:
            return None
        self._is_told = True
        return self.cause

    def is_same_again(self) -> bool:
        """Count the cause; tell whether beginning again has not got the program further for too long."""
        seen = None if self.cause is None or self.cause.likeness is None else (self.cause.likeness, self.progress)
        self._same = self._same + 1 if seen is not None and seen == self._seen else 0
        self._seen = seen
        return self._same >= MOST_SAME_RESTARTS
