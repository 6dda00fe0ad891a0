"""How long each member that holds its answer waits for the word: the leader says it only while all of them do.

A lease begins when the leader asks for it, not when the promise arrives: however long that took, or this
process was stopped, the member waits at least as long as the leader believes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# A member promises at most this long, in seconds. So long it asks for the word, and nobody else, when it has lost
# its leader, and so long a leader stays to answer it.
LEASE_S = 30.0
# The word takes up to this long, two lost packets included: it is not said where a lease ends sooner.
LAST_WORD_S = 5.0
# Leases are renewed after this long, while the last members are awaited.
RENEW_S = 10.0
# A member that holds its answer waits this much longer for the word, and a leader for all to be ready.
CLOSING_S = LEASE_S
# After a contradiction the leader stays this long, to tell members that come late why there is no world.
LINGER_S = 10.0


class Leases:
    """The members' promises of one epoch, by the leader's clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._asked: dict[bytes, float] = {}  # member -> when it was asked, where it has not answered yet
        self._ends: dict[bytes, float] = {}

    def __len__(self) -> int:
        return len(self._ends)

    def ask(self, member: bytes) -> bool:
        """Note that a member is asked now; False where it still owes an answer, which would be taken for this one's."""
        if member in self._asked:
            return False
        self._asked[member] = self._clock()
        return True

    def owes(self, member: bytes) -> bool:
        """Tell whether a member was asked and has not answered."""
        return member in self._asked

    def promised(self, member: bytes, lease_s: float) -> None:
        """Note a member's promise; one that was not asked for is none."""
        asked = self._asked.pop(member, None)
        if asked is not None:
            self._ends[member] = asked + lease_s

    def renewed(self, member: bytes) -> None:
        """Note that a member has come back for the word: it waits again, for as long as one may that promises."""
        self._ends[member] = self._clock() + LEASE_S

    def ending(self, within_s: float) -> list[bytes]:
        """Return the members whose lease ends within so many seconds."""
        latest = self._clock() + within_s
        return [member for member, ends in self._ends.items() if ends < latest]

    def left_s(self) -> float:
        """Return for how many seconds some member still waits."""
        return max(max(self._ends.values(), default=0.0) - self._clock(), 0.0)
