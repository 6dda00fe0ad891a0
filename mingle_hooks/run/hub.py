"""The hub of a run: the agents that are connected and alive."""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress

from mingle_hooks.rendezvous.connection import READ, Loop
from mingle_hooks.rendezvous.wire import Body, Secret, WireError, parse
from mingle_hooks.run import messages
from mingle_hooks.run.launching import IP_PKTINFO, Sockets
from mingle_hooks.run.machine import Alive, Event, Isolated, Joined, Lost, Paused, Quiet, Received
from mingle_hooks.run.messages import JOIN, RUNNER, Join, Leave, Link, RunnerMessage, Silence, Welcome
from mingle_hooks.run.starters import Place

Address = tuple[object, ...]

# Of more than a few agents, each gets its heartbeat in another of so many parts of the interval.
_FEW, _PARTS = 64, 10
# struct in_pktinfo is interface, source, destination; struct in6_pktinfo is address, interface.
_V4, _V6 = struct.Struct("@I4s4s"), struct.Struct("@16sI")


class Heartbeats:
    """Sends heartbeats to all agents that have sent one.

    The runner sends on its own and not in answer: where packets are lost, fewer answers than heartbeats come through.
    """

    def __init__(self, loop: Loop, sockets: Sockets, secret: Secret, interval_s: float) -> None:
        self._loop, self._interval_s, self._part = loop, interval_s, 0
        self._secret = secret
        self._expected: dict[int, Callable[[], None]] = {}
        self._latest: dict[int, int] = {}  # number -> sequence of its last heartbeat
        self._peers: dict[int, tuple[socket.socket, Address, messages.Control]] = {}
        self._sent = 0
        for sock in sockets.datagrams:
            loop.watch(sock, READ, lambda _events, sock=sock: self._take(sock))  # type: ignore[misc]
        self._beat()

    def expect(self, number: int, on_heartbeat: Callable[[], None]) -> None:
        """Call `on_heartbeat()` for each new heartbeat of this number, until it is forgotten."""
        self._expected[number], self._latest[number] = on_heartbeat, 0

    def forget(self, number: int) -> None:
        """Expect no more heartbeats of a number, and send none."""
        del self._expected[number], self._latest[number]
        self._peers.pop(number, None)

    def probe(self, number: int) -> None:
        """Send a heartbeat to an agent that is quiet, which it may answer."""
        if number in self._peers:
            self._send(number)

    def _take(self, sock: socket.socket) -> None:
        for (number, sequence), control, address in messages.heartbeats(sock, self._secret, messages.AGENT):
            if sequence <= self._latest.get(number, sequence):  # an old one, or of an agent that has been dropped
                continue
            is_first = number not in self._peers
            self._latest[number] = sequence
            self._peers[number] = (sock, address, _from_same_address(control))
            if is_first:
                self._send(number)
            self._expected[number]()

    def _beat(self) -> None:
        """Send a heartbeat to each; to many of them not all at once."""
        parts = _PARTS if len(self._peers) > _FEW else 1
        self._part += 1
        for number in [number for number in self._peers if number % parts == self._part % parts]:
            self._send(number)
        self._loop.after(self._interval_s / parts, self._beat)

    def _send(self, number: int) -> None:
        sock, address, control = self._peers[number]
        self._sent += 1
        heartbeat = messages.Heartbeat(number, self._sent)
        with suppress(OSError):  # the next may get through
            sock.sendmsg([messages.pack_heartbeat(self._secret, RUNNER, heartbeat)], control, 0, address)


def _from_same_address(control: messages.Control) -> messages.Control:
    """Return the control messages by which an answer comes from the address that a heartbeat was sent to."""
    for level, kind, data in control:
        if level == socket.IPPROTO_IP and kind == IP_PKTINFO and len(data) == _V4.size:
            _, local, _ = _V4.unpack(data)
            return [(level, kind, _V4.pack(0, local, bytes(4)))]
        if level == socket.IPPROTO_IPV6 and kind == socket.IPV6_PKTINFO and len(data) == _V6.size:
            return [(level, kind, data)]
    return []


# Silent agents are looked for so often in the longest silence, and at least each second; also at the moment when a
# silence has lasted that long, though not for each of a thousand hosts that a switch has lost.
_LOOKS, _LONGEST_LOOK_S, _SHORTEST_LOOK_S = 6, 1.0, 0.1


class Agent:
    """An agent that has connected: its number, its two connections, and when it last sent something."""

    def __init__(self, number: int, control: Link, now: float) -> None:
        self.number, self.control, self.heard_at = number, control, now
        self.output: Link | None = None
        self.is_quiet = self.is_paused = False


class Hub:
    """The connected agents; `on_event(event)` gets their messages, `on_output(place, kind, data)` their output."""

    def __init__(
        self, loop: Loop, sockets: Sockets, secret: Secret, places: Sequence[Place], silence: Silence, own: str
    ) -> None:
        self._loop, self._sockets, self._silence = loop, sockets, silence
        self._places, self._own = places, own
        self.on_event: Callable[[Event], None] = lambda _event: None
        self.on_output: Callable[[int, int, bytes], None] = lambda _place, _kind, _data: None
        self._numbers = {place: number for number, place in enumerate(places)}
        self._next_number = itertools.count()  # a late heartbeat of a place's earlier agent has another number
        self._is_held = False
        self.here: dict[int, Agent] = {}
        interval_s = messages.heartbeat_interval_s(silence.host_s)
        self.heartbeats = Heartbeats(loop, sockets, secret, interval_s)
        self._reception = messages.Reception(loop, self._introduced, messages.MOST_STRANGERS)
        self._reception.listen(sockets.listeners, secret)
        self._reception.on_end = self._ended
        self._limit_strangers()
        self._look_s = min(silence.host_s / _LOOKS, _LONGEST_LOOK_S)
        self._looked_at = loop.clock()
        self._look()

    def send(self, place: int, message: RunnerMessage) -> None:
        """Send a message to an agent, if it is here."""
        if place in self.here:
            self.here[place].control.send_record(message)

    def hold(self, *, wanted: bool) -> None:
        """Stop reading output, or go on."""
        self._is_held = wanted
        for agent in self.here.values():
            if agent.output is not None:
                agent.output.listen(wanted=not wanted)

    def drop(self, place: int) -> None:
        """Forget an agent; another may come in its place."""
        agent = self.here.pop(place, None)
        if agent is None:
            return
        self._limit_strangers()
        self.heartbeats.forget(agent.number)
        for link in (agent.control, agent.output):
            if link is not None:
                link.close()

    def _limit_strangers(self) -> None:
        self._reception.most = messages.MOST_STRANGERS + 2 * (len(self._places) - len(self.here))

    def dismiss(self, status: int) -> None:
        """Have all agents exit."""
        for place in self.here:
            self.send(place, Leave(status))

    def _ended(self, link: Link, _reason: str) -> None:
        for place, agent in [*self.here.items()]:
            if link in (agent.control, agent.output):
                self._lost(place, None)

    def _introduced(self, link: Link, kind: int, body: Body) -> None:
        """Take in an agent, which holds the key. Raises WireError for one that has no place here."""
        self._reception.admit(link)
        join = parse(Join, body)
        place = self._numbers.get(Place(join.host, join.local))
        if kind != JOIN or place is None:
            raise WireError("no place")
        agent = self.here.get(place)
        if join.is_output and agent is not None and agent.output is None:
            agent.output = link
            link.on_output = lambda kind, data: self._wrote(place, kind, data)
            link.listen(wanted=not self._is_held)
            self.on_event(Joined(place))
        elif not join.is_output and agent is None:
            number = next(self._next_number)
            self.here[place] = Agent(number, link, self._loop.clock())
            self._limit_strangers()
            self.heartbeats.expect(number, lambda: self._heard(place))
            link.on_message = lambda kind, body: self._take(place, link, kind, body)
            link.probe_peer(self._silence.probe_s)
            silences_ms = (int(silence_s * 1000) for silence_s in self._silence)
            link.send_record(Welcome(number, self._sockets.port, *silences_ms))
        else:
            raise WireError("a second one")

    def _wrote(self, place: int, kind: int, data: bytes) -> None:
        self._heard(place)
        self.on_output(place, kind, data)

    def _take(self, place: int, link: Link, kind: int, body: Body) -> None:
        self._heard(place)
        if link.takes_ping(kind):
            return
        if kind not in messages.AGENT_MESSAGES:
            raise WireError("not an agent's message")
        self.on_event(Received(place, parse(messages.AGENT_MESSAGES[kind], body)))

    def _heard(self, place: int) -> None:
        agent = self.here.get(place)
        if agent is not None:
            agent.heard_at = self._loop.clock()
            if agent.is_quiet:
                agent.is_quiet = agent.is_paused = False
                self.on_event(Alive(place))

    def _lost(self, place: int, silent_s: float | None) -> None:
        was_joined = self.here[place].output is not None
        self.drop(place)
        if was_joined:
            self.on_event(Lost(place, silent_s))

    def _silent(self, place: int, agent: Agent, silent_s: float) -> None:
        """Give an agent up, or wait longer where its host answers: then it is stopped."""
        if self._silence.is_over(silent_s, agent.control.unacknowledged_s):
            if self._is_isolated():
                self.on_event(Isolated(self._own, silent_s))
            self._lost(place, silent_s)
            return
        self.heartbeats.probe(agent.number)
        if not agent.is_paused:
            agent.is_paused = True
            self.on_event(Paused(place, silent_s))

    def _is_isolated(self) -> bool:
        """Return whether this host is cut off: neither agents nor kernels of several other hosts answer."""
        others = [
            (self._places[at].host, agent) for at, agent in self.here.items() if self._places[at].host != self._own
        ]
        answered_s = self._silence.probe_s + 0.5
        return len({host for host, _ in others}) > 1 and all(
            agent.is_quiet and agent.control.unacknowledged_s > answered_s for _, agent in others
        )

    def _look(self) -> None:
        """Look for silent agents; the time for which this process was stopped does not count."""
        now = self._loop.clock()
        late_s = max(now - self._looked_at - 2 * self._look_s, 0.0)
        self._looked_at = now
        next_s = self._look_s
        for place, agent in [*self.here.items()]:
            if self.here.get(place) is not agent:  # dropped by what followed from another's loss
                continue
            agent.heard_at += late_s
            silent_s = now - agent.heard_at
            if silent_s >= self._silence.host_s:
                self._silent(place, agent, silent_s)
                continue
            next_s = min(next_s, self._silence.host_s - silent_s)
            if silent_s > self._silence.quiet_s / 2:
                agent.control.ping()
            if silent_s > self._silence.quiet_s:
                self.heartbeats.probe(agent.number)
                if not agent.is_quiet:
                    agent.is_quiet = True
                    self.on_event(Quiet(place))
        self._loop.after(max(next_s, _SHORTEST_LOOK_S), self._look)
