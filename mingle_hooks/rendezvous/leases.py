"""How long each member that holds its answer waits for the word: the leader says it only while all of them do.

A lease begins when the leader asks for it, not when the promise arrives: however long that took, or this
process was stopped, the member waits at least as long as the leader believes.
"""

from __future__ import annotations

from collections.abc import Callable

from mingle_hooks.errors import MingleError, MissingError
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.messages import Answer

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


# How, and by when, a rendezvous ends for one member: once, with an answer or with an error.


class Deadline:
    """The time that one member has, by its loop's clock."""

    def __init__(self, loop: Loop, timeout_s: float) -> None:
        self._loop, self._began, self._timeout_s = loop, loop.clock(), timeout_s

    def waited_s(self) -> int:
        """Return for how many seconds it has waited."""
        return round(self._loop.clock() - self._began)

    def left_s(self) -> float:
        """Return for how many seconds it can still wait, once it holds an answer."""
        return self._began + self._timeout_s + CLOSING_S - self._loop.clock()

    def is_before(self, ago_s: float) -> bool:
        """Tell whether what happened so many seconds ago was before it began."""
        return ago_s > self._loop.clock() - self._began


class Outcome:
    """The first answer or error stands. It is over at once, or later, where others are still to be told."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.is_over = False
        self.answer: Answer | None = None
        self._error: MingleError | None = None

    @property
    def is_known(self) -> bool:
        """Whether all that is left is to tell the others."""
        return self.answer is not None or self._error is not None

    def form(self, answer: Answer) -> None:
        """End with this answer."""
        self.answer, self.is_over = answer, True

    def fail(self, error: MingleError, linger_s: float = 0.0) -> None:
        """End with this error, after so many seconds."""
        if self._error is None:
            self._error = error
        if linger_s:
            self._loop.after(linger_s, self.end)
        else:
            self.end()

    def end(self) -> None:
        """Wait for nobody any longer."""
        self.is_over = True

    def result(self) -> Answer:
        """Return the answer, or raise why there is none, a MingleError, once it is over."""
        if self.answer is None:
            raise self._error or MissingError("an answer", "none", "running it again, and please report this")
        return self.answer
