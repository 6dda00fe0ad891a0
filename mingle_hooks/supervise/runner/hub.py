"""The runner's supervisors: who is connected, and who is alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.rendezvous.callers import Callers
from mingle_hooks.rendezvous.protocol.wire import WireError
from mingle_hooks.supervise.protocol import life, messages, stacks
from mingle_hooks.supervise.protocol.link import Link
from mingle_hooks.supervise.protocol.messages import (
    CLEAN,
    ENDED,
    FORMED,
    JOIN,
    LEAVE,
    NOTICED,
    STACKS,
    WELCOME,
    Join,
    Leave,
    Welcome,
)
from mingle_hooks.supervise.runner.door import Pulses
from mingle_hooks.supervise.runner.words import Clean, CommandEnded, Formed, Heard, Joined, Lost, Noticed, Quiet, Stacks
from mingle_hooks.supervise.starters.allocation import Place

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.rendezvous.protocol.attempt import Secret
    from mingle_hooks.rendezvous.protocol.wire import Body
    from mingle_hooks.supervise.runner.door import Sockets
    from mingle_hooks.supervise.runner.words import Event

# Who has not said within this time, in seconds, who it is, is no supervisor; and so many may be here at once.
STRANGER_S, MOST_STRANGERS = 10.0, 4096
# Signs are looked for so often in the silence that is allowed, and at least each second; and once a silence has lasted
# as long as it may, though not for each of a thousand hosts that a switch has lost.
_LOOKS, _LONGEST_LOOK_S, _SHORTEST_LOOK_S = 6, 1.0, 0.1


class Supervisor:
    """One that is here: its two connections, and when it was last heard of."""

    __slots__ = ("control", "heard_at", "is_joined", "is_quiet", "output")

    def __init__(self, control: Link, now: float) -> None:
        self.control, self.heard_at = control, now
        self.output: Link | None = None
        self.is_joined = self.is_quiet = False


class Hub:
    """`on_event(event)` gets what supervisors say and what becomes of them, `on_output(place, kind, data)` output."""

    def __init__(
        self,
        loop: Loop,
        sockets: Sockets,
        secret: Secret,
        places: Sequence[Place],
        silence_s: float,
        on_event: Callable[[Event], None],
        on_output: Callable[[int, int, bytes], None],
    ) -> None:
        self._loop, self._sockets, self._secret, self._silence_s = loop, sockets, secret, silence_s
        self._on_event, self._on_output = on_event, on_output
        self._numbers = {place: number for number, place in enumerate(places)}
        self._strangers: dict[Link, float] = {}  # oldest first
        self._is_held = False
        self.here: dict[int, Supervisor] = {}
        self.pulses = Pulses(loop, sockets.datagrams, secret, self._sign, life.interval_s(silence_s))
        Callers(loop, sockets.listeners, self._greet, self._make_room)
        self._look_s = min(silence_s / _LOOKS, _LONGEST_LOOK_S)
        self._looked_at = loop.clock()
        self._look()

    def send(self, place: int, kind: int, body: Body) -> None:
        """Tell a supervisor something, if it is here."""
        if place in self.here:
            self.here[place].control.send(kind, body)

    def hold(self, *, wanted: bool) -> None:
        """Stop reading output, or go on."""
        self._is_held = wanted
        for its in self.here.values():
            if its.output is not None:
                its.output.listen(wanted=not wanted)

    def drop(self, place: int) -> None:
        """Have done with a supervisor; another may come in its place."""
        its = self.here.pop(place, None)
        self.pulses.forget(place)
        for link in (its.control, its.output) if its is not None else ():
            if link is not None:
                link.close()

    def dismiss(self, status: int) -> None:
        """Let all supervisors go; nothing of them counts any more."""
        for place in self.here:
            self.send(place, LEAVE, Leave(status).body())

    def _greet(self, sock: socket.socket, _where: str) -> None:
        link = Link(self._loop, sock, self._secret, is_runner=True, on_end=lambda _reason: self._forget(link))
        link.on_message = lambda kind, body: self._introduced(link, kind, body)
        self._strangers[link] = self._loop.clock()
        if len(self._strangers) > MOST_STRANGERS:
            self._turn_away(next(iter(self._strangers)))

    def _make_room(self) -> bool:
        """Let the stranger go who has said nothing for longest, if there is one."""
        for link in self._strangers:
            self._turn_away(link)
            return True
        return False

    def _turn_away(self, link: Link) -> None:
        del self._strangers[link]
        link.close()

    def _forget(self, link: Link) -> None:
        self._strangers.pop(link, None)
        for place, its in [*self.here.items()]:
            if link in (its.control, its.output):
                self._lost(place, None)

    def _introduced(self, link: Link, kind: int, body: Body) -> None:
        """Take in who holds the key. Raises WireError for one who has no place here."""
        self._strangers.pop(link, None)
        join = Join.parse(body)
        place = self._numbers.get(Place(join.host, join.local))
        if kind != JOIN or place is None:
            raise WireError("no place")
        its = self.here.get(place)
        if join.is_output and its is not None and its.output is None:
            its.output, its.is_joined = link, True
            link.on_output = lambda kind, data: self._wrote(place, kind, data)
            link.listen(wanted=not self._is_held)
            self._on_event(Joined(place))
        elif not join.is_output and its is None:
            self.here[place] = Supervisor(link, self._loop.clock())
            link.on_message = lambda kind, body: self._said(place, kind, body)
            welcome = Welcome(place, self._sockets.port, int(self._silence_s * 1000))
            link.send(WELCOME, welcome.body())
        else:
            raise WireError("a second one")

    def _wrote(self, place: int, kind: int, data: bytes) -> None:
        self._sign(place)
        self._on_output(place, kind, data)

    def _said(self, place: int, kind: int, body: Body) -> None:
        self._sign(place)
        event: Event
        if kind == FORMED:
            event = Formed(place, *messages.Formed.parse(body))
        elif kind == ENDED:
            event = CommandEnded(place, messages.Ended.parse(body))
        elif kind == CLEAN:
            event = Clean(place, messages.Clean.parse(body).attempt)
        elif kind == NOTICED:
            event = Noticed(place, messages.Noticed.parse(body).signal)
        elif kind == STACKS:
            event = Stacks(place, *stacks.Stacks.parse(body))
        else:
            raise WireError("not a supervisor's message")
        self._on_event(event)

    def _sign(self, place: int) -> None:
        its = self.here.get(place)
        if its is not None:
            its.heard_at = self._loop.clock()
            if its.is_quiet:
                its.is_quiet = False
                self._on_event(Heard(place))

    def _lost(self, place: int, silent_s: float | None) -> None:
        was_joined = self.here[place].is_joined
        self.drop(place)
        if was_joined:
            self._on_event(Lost(place, silent_s))

    def _look(self) -> None:
        """Look for those that are silent; a stop of this process is nobody else's silence."""
        now = self._loop.clock()
        late_s = max(now - self._looked_at - 2 * self._look_s, 0.0)
        self._looked_at = now
        next_s = self._look_s
        for place, its in [*self.here.items()]:
            its.heard_at += late_s
            silent_s = now - its.heard_at
            if silent_s >= self._silence_s:
                self._lost(place, silent_s)
                continue
            next_s = min(next_s, self._silence_s - silent_s)
            if silent_s > min(life.ASK_S, self._silence_s / 2):
                self.pulses.ask(place)
                if not its.is_quiet:
                    its.is_quiet = True
                    self._on_event(Quiet(place))
        for link, since in [*self._strangers.items()]:
            if now - since > STRANGER_S:
                self._turn_away(link)
        self._loop.after(max(next_s, _SHORTEST_LOOK_S), self._look)
