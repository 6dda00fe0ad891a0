"""The way to the runner: all of its addresses at once, until one has proved that it holds the run's key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.rendezvous.protocol.connection import dial
from mingle_hooks.supervise.protocol.link import Link
from mingle_hooks.supervise.protocol.messages import JOIN, WELCOME, Join, Welcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.rendezvous.protocol.attempt import Secret
    from mingle_hooks.rendezvous.protocol.wire import Body
    from mingle_hooks.supervise.node.options import Where


# Dial again after so long, in seconds, where it was refused.
_AGAIN_S = 0.5
# One that has greeted and says nothing more is not waited for longer, where another has greeted.
_PATIENCE_S = 3.0


class Approach:
    """Dials; `on_welcome(where, link, welcome)` comes once, with the control connection, `on_end(reason)` with its end.

    Whoever gets the link sets its `on_message`.
    """

    def __init__(
        self,
        loop: Loop,
        secret: Secret,
        places: Sequence[Where],
        join: Join,
        on_welcome: Callable[[Where, Link, Welcome], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._loop, self._secret, self._join = loop, secret, join
        self._on_welcome, self._on_end = on_welcome, on_end
        self._links: dict[Where, Link] = {}
        self._greeted: list[Where] = []  # in order; the first has been told who this is
        self.is_over = False
        for where in places:
            self._dial(where)

    def close(self, but: Link | None = None) -> None:
        """Give up, but for one link."""
        self.is_over = True
        for link in self._links.values():
            if link is not but:
                link.close()

    def _dial(self, where: Where) -> None:
        if self.is_over:
            return
        try:
            sock = dial(*where)
        except OSError as error:
            self._loop.missed(error)
            self._loop.after(_AGAIN_S, lambda: self._dial(where))
            return
        link = Link(self._loop, sock, self._secret, is_runner=False, on_end=lambda reason: self._lost(where, reason))
        link.on_proved = lambda: self._proved(where)
        link.on_message = lambda kind, body: self._said(where, kind, body)
        self._links[where] = link

    def _proved(self, where: Where) -> None:
        self._greeted.append(where)
        if self._greeted[0] == where:
            self._introduce()

    def _introduce(self) -> None:
        """Tell the first that greeted who this is."""
        if not self._greeted:
            return
        first = self._greeted[0]
        self._links[first].send(JOIN, self._join.body())
        self._loop.after(_PATIENCE_S, lambda: self._overdue(first))

    def _overdue(self, where: Where) -> None:
        if not self.is_over and self._greeted[:1] == [where] and len(self._greeted) > 1:
            self._links[where].close()
            self._lost(where, "it does not answer")

    def _lost(self, where: Where, reason: str) -> None:
        if self.is_over:
            self._on_end(reason)
            return
        was_first = self._greeted[:1] == [where]
        if where in self._greeted:
            self._greeted.remove(where)
        self._loop.after(_AGAIN_S, lambda: self._dial(where))
        if was_first:
            self._introduce()

    def _said(self, where: Where, kind: int, body: Body) -> None:
        if kind != WELCOME or self.is_over:
            return
        welcome, link = Welcome.parse(body), self._links[where]
        self.close(but=link)
        self._on_welcome(where, link, welcome)
