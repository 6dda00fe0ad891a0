"""DUMP and STACKS: where nobody writes any more, what COMMAND's Python processes are doing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.rendezvous.protocol.wire import WireError, integer
from mingle_hooks.supervise.protocol.messages import MOST_ATTEMPT, MOST_MS

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.protocol.wire import Body

# Of one supervisor.
MOST_STACKS = 64 * 1024


class Dump(NamedTuple):
    """Take the stacks of an attempt's processes, and answer within this time."""

    attempt: int
    within_ms: int

    def body(self) -> Body:
        """Return what travels."""
        return dict(self._asdict())

    @classmethod
    def parse(cls, body: Body) -> Dump:
        """Return what came. Raises WireError."""
        return cls(integer(body, "attempt", 0, MOST_ATTEMPT), integer(body, "within_ms", 0, MOST_MS))


class Stacks(NamedTuple):
    """The stacks, or where they are, or why there are none."""

    attempt: int
    text: str

    def body(self) -> Body:
        """Return what travels."""
        return {**self._asdict(), "text": self.text[:MOST_STACKS]}

    @classmethod
    def parse(cls, body: Body) -> Stacks:
        """Return what came. Raises WireError."""
        text = body.get("text")
        if not isinstance(text, str) or len(text) > MOST_STACKS:
            raise WireError("text: not stacks")
        return cls(integer(body, "attempt", 0, MOST_ATTEMPT), text)
