"""The runner, as a supervisor sees it: two connections and signs of life, which are lost together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.rendezvous.protocol.connection import dial
from mingle_hooks.supervise.node.approach import Approach
from mingle_hooks.supervise.node.pulse import Pulse
from mingle_hooks.supervise.protocol.link import Link
from mingle_hooks.supervise.protocol.messages import JOIN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.rendezvous.protocol.attempt import Secret
    from mingle_hooks.rendezvous.protocol.wire import Body
    from mingle_hooks.supervise.node.options import Where
    from mingle_hooks.supervise.protocol.messages import Join, Welcome

# A runner that does not answer for so long is none, in seconds.
_APPROACH_S = 30.0


class Runner:
    """`on_message(kind, body)` gets its words, none before output can be sent; `on_lost(reason)` comes once."""

    def __init__(
        self,
        loop: Loop,
        secret: Secret,
        places: Sequence[Where],
        join: Join,
        on_message: Callable[[int, Body], None],
        on_lost: Callable[[str], None],
        on_idle: Callable[[], None],
    ) -> None:
        self._loop, self._secret, self._join = loop, secret, join
        self._on_message, self._on_lost, self._on_idle = on_message, on_lost, on_idle
        self._early: list[tuple[int, Body]] = []  # said before there was a way for output
        self._control: Link | None = None
        self._pulse: Pulse | None = None
        self._is_lost = self._is_open = False
        self.output: Link | None = None
        self._approach = Approach(loop, secret, places, join, self._welcome, self._lose)
        loop.after(_APPROACH_S, self._overdue)

    @property
    def is_found(self) -> bool:
        """Whether it has said who this is."""
        return self._control is not None

    def send(self, kind: int, body: Body) -> None:
        """Tell it something."""
        if self._control is not None:
            self._control.send(kind, body)

    def close(self) -> None:
        """Say no more; what the kernel has taken still arrives."""
        self._is_lost = True
        self._approach.close()
        for part in (self._control, self.output, self._pulse):
            if part is not None:
                part.close()

    def _overdue(self) -> None:
        if not self.is_found:
            self._lose("none answers")

    def _welcome(self, where: Where, link: Link, welcome: Welcome) -> None:
        self._control, link.on_message = link, self._said
        self._pulse = Pulse(self._loop, self._secret, where[0], welcome, lambda: self._lose("it is silent"))
        try:
            sock = dial(*where)
        except OSError as error:
            self._lose(error.strerror or "no second connection")
            return
        output = self.output = Link(self._loop, sock, self._secret, is_runner=False, on_end=self._lose)
        output.on_proved = self._open
        output.on_message = lambda _kind, _body: self._hear()

    def _open(self) -> None:
        if self.output is not None:
            self.output.send(JOIN, self._join._replace(is_output=True).body())
        self._is_open = True
        early, self._early = self._early, []
        for kind, body in early:
            self._on_message(kind, body)
        if not early:
            self._loop.after(0.0, self._on_idle)

    def _hear(self) -> None:
        if self._pulse is not None:
            self._pulse.heard()

    def _said(self, kind: int, body: Body) -> None:
        self._hear()
        if self._is_open:
            self._on_message(kind, body)
        else:
            self._early.append((kind, body))

    def _lose(self, reason: str) -> None:
        if not self._is_lost:
            self.close()
            self._on_lost(reason)
