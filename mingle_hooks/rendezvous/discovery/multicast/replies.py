"""Questions that a leader has heard: many are answered by one beacon, and each by two, as one may be lost."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from mingle_hooks.rendezvous.discovery.multicast.beacon import MOST_NONCES

if TYPE_CHECKING:
    from collections.abc import Iterable

# Questions that are remembered, so that nobody can have one answered twice: one of each member of the largest world.
MOST_REMEMBERED = 16_384
# Questions that wait for an answer on one link; beyond that the oldest go, and are asked again.
MOST_WAITING = 1024


class Replies:
    """Nonces by the link on which they came. The newest goes first: an old one is no longer open."""

    def __init__(self) -> None:
        self._seen: dict[bytes, None] = {}  # oldest first
        self._waiting: dict[Any, deque[bytes]] = {}
        self._taken: dict[Any, tuple[bytes, ...]] = {}  # by the last beacon of a link

    def add(self, link: object, nonces: Iterable[bytes]) -> bool:
        """Note a question; False where it has been asked before."""
        new = [nonce for nonce in nonces if nonce not in self._seen]
        for nonce in new:
            self._seen[nonce] = None
            self._waiting.setdefault(link, deque(maxlen=MOST_WAITING)).append(nonce)
        while len(self._seen) > MOST_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return bool(new)

    def links(self) -> list[Any]:
        """Return the links on which questions wait."""
        return list(self._waiting)

    def take(self, link: object) -> tuple[bytes, ...]:
        """Return what the next beacon on this link answers, with what the last one did as far as there is room."""
        waiting = self._waiting.get(link, deque())
        new = tuple(waiting.pop() for _ in range(min(len(waiting), MOST_NONCES)))
        if not waiting:
            self._waiting.pop(link, None)
        again = self._taken.pop(link, ())[: MOST_NONCES - len(new)]
        self._taken[link] = new
        return new + again
