"""What names are on this host, a few at a time, and no longer than anybody waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.errors import MingleError
from mingle_hooks.rendezvous.discovery.resolver import Lookup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mingle_hooks.rendezvous.loop import Loop

_AT_ONCE = 4


class Names:
    """Looks up; `found` has what was answered by now."""

    def __init__(self, loop: Loop, names: Sequence[str]) -> None:
        self._loop, self._waiting = loop, list(dict.fromkeys(names))[::-1]
        self._asked: dict[str, Lookup] = {}
        self.found: dict[str, list[str]] = {}
        for _ in range(_AT_ONCE):
            self._next()

    @property
    def is_done(self) -> bool:
        """Whether all have been answered."""
        return not self._asked and not self._waiting

    def close(self) -> None:
        """Wait for no more answers."""
        self._waiting.clear()
        for lookup in self._asked.values():
            lookup.close()

    def _next(self) -> None:
        if not self._waiting:
            return
        name = self._waiting.pop()
        try:
            self._asked[name] = Lookup(self._loop, name, self._answered)
        except (OSError, MingleError):  # no descriptor, or no thread: as if nobody had answered
            self._waiting.clear()

    def _answered(self, name: str, addresses: list[str]) -> None:
        del self._asked[name]
        self.found[name] = addresses
        self._next()
