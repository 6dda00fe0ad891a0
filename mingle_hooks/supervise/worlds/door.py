"""Where a runner is asked: a port for those who hold one key of its user's.

Strangers cost it next to nothing: they are few at a time, and each has a few seconds. Nothing is said to them but a
random number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.errors import NetworkError
from mingle_hooks.rendezvous.callers import Callers
from mingle_hooks.supervise.protocol.doors import opened
from mingle_hooks.supervise.protocol.link import Link

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from mingle_hooks.rendezvous.loop import Loop, Timer
    from mingle_hooks.rendezvous.protocol.attempt import Secret
    from mingle_hooks.rendezvous.protocol.wire import Body

# So many callers at once, each for so long, unless it waits for the end; with one more the first of them goes.
MOST_CALLERS, CALLER_S = 64, 10.0
_TRIES = 16


class Door:
    """`on_question(link, kind, body)` gets what those ask who hold the key, and may raise WireError.

    Raises NetworkError where no port can be opened.
    """

    def __init__(self, loop: Loop, secret: Secret, on_question: Callable[[Link, int, Body], None]) -> None:
        self._loop, self._secret, self._on_question = loop, secret, on_question
        self._callers: dict[Link, float] = {}  # and since when it is here; oldest first
        self._sweeper: Timer | None = None
        self.port, listeners = opened((0,) * _TRIES)
        if not self.port:
            raise NetworkError("a free port for questions", "none", "an end of what listens on this host")
        self._door = Callers(loop, listeners, self._take_in)

    def close(self) -> None:
        """Close all. What has been said is still delivered."""
        self._door.close()
        for link in self._callers:
            link.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._callers.clear()

    def _take_in(self, sock: socket.socket, _where: str) -> None:
        link = Link(self._loop, sock, self._secret, is_runner=True, on_end=lambda _reason: self._forget(link))
        link.on_message = lambda kind, body: self._on_question(link, kind, body)
        self._callers[link] = self._loop.clock()
        if len(self._callers) > MOST_CALLERS:
            self._turn_away(next(iter(self._callers)))
        if self._sweeper is None:
            self._sweep()

    def _sweep(self) -> None:
        """Turn those away who have been here for too long, and look again when the next will have been."""
        now = self._loop.clock()
        for link in [link for link, since in self._callers.items() if since <= now - CALLER_S]:
            self._turn_away(link)
        oldest = next(iter(self._callers.values()), None)
        self._sweeper = None if oldest is None else self._loop.after(oldest + CALLER_S - now, self._sweep)

    def keep(self, link: Link) -> None:
        """Leave a caller who has proved to hold the key to its owner: it may wait for the end."""
        self._forget(link)

    def _forget(self, link: Link) -> None:
        self._callers.pop(link, None)

    def _turn_away(self, link: Link) -> None:
        if link in self._callers:
            self._forget(link)
            link.close()
