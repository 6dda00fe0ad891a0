"""How, and by when, a rendezvous ends for one member: once, with an answer or with an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.errors import MissingError
from mingle_hooks.rendezvous.protocol.leases import CLOSING_S

if TYPE_CHECKING:
    from mingle_hooks.errors import MingleError
    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.rendezvous.protocol.answer import Answer


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
