"""The hub: which agents are here and alive."""

import math
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.gathering import no_descriptor_left

from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.wire import Secret
from mingle_hooks.run import agent as agents, hub, messages
from mingle_hooks.run.hub import Hub
from mingle_hooks.run.launching import IP_PKTINFO, Sockets
from mingle_hooks.run.machine import Alive, Event, Isolated, Joined, Lost, Paused, Quiet
from mingle_hooks.run.messages import AGENT, WELCOME, Join, Link, Silence
from mingle_hooks.run.starters import Place

SECRET = Secret(b"s" * 32)
# The second is as short as the first: kernels here acknowledge by the real clock, and not by the test's.
SILENCE = Silence(15.0, 15.0)


class Scene:
    """A hub with one place, and a clock that the test turns."""

    def __init__(self, silence: Silence = SILENCE, hosts: str = "a") -> None:
        self.now = 100.0
        self.drops_all = False  # at the first agent that is lost
        self.loop = Loop(clock=lambda: self.now)
        self.sockets = Sockets(is_local=True)
        self.events: list[Event] = []
        self.numbers: list[int] = []  # that WELCOME gave
        self.links: list[Link] = []
        places = [Place(host, 0) for host in hosts]
        self.hub = Hub(self.loop, self.sockets, SECRET, places, silence, "a")
        self.hub.on_event = self.take

    def take(self, event: Event) -> None:
        """Take an event, as the runner does, which may drop agents at once."""
        self.events.append(event)
        if self.drops_all and isinstance(event, Lost):
            for place in [*self.hub.here]:
                self.hub.drop(place)

    def link(self, secret: Secret = SECRET) -> Link:
        """Connect as an agent does."""
        sock = socket.create_connection(("127.0.0.1", self.sockets.port))
        sock.settimeout(0)
        self.ended = False

        def end(_reason: str) -> None:
            self.ended = True

        self.links.append(Link(self.loop, sock, secret, is_runner=False, on_end=end))
        return self.links[-1]

    def kinds(self) -> list[type]:
        """Return the kinds of all events."""
        return [type(event) for event in self.events]

    def turn(self, count: int = 20) -> None:
        """Serve what is ready."""
        for _ in range(count):
            self.loop.turn(0.002)

    def join(self, host: str = "a", *, output: bool = False) -> Link:
        """Connect, and say who this is."""
        link = self.link()
        link.on_message = lambda kind, body: self.numbers.append(body["number"]) if kind == WELCOME else None
        self.turn()
        link.send_record(Join(host, 0, 1, is_output=output))
        self.turn()
        return link

    def agent(self, host: str = "a") -> tuple[Link, Link]:
        """Connect as a whole agent, for messages and for output."""
        return self.join(host), self.join(host, output=True)

    def passes(self, seconds: float, step_s: float = 1.0) -> None:
        """Let time go by, second by second."""
        for _ in range(int(seconds / step_s)):
            self.now += step_s
            self.turn(3)


@pytest.fixture
def scenes() -> Iterator[Callable[..., Scene]]:
    """Make scenes, and close them."""
    made: list[Scene] = []

    def make(*how: Any) -> Scene:
        made.append(Scene(*how))
        return made[-1]

    yield make
    for scene in made:
        for place in [*scene.hub.here]:
            scene.hub.drop(place)
        scene.sockets.close()
        for link in scene.links:
            link.close()
        scene.loop.poller.close()


@pytest.fixture
def scene(scenes: Callable[..., Scene]) -> Scene:
    """Give a scene with one place."""
    return scenes()


def test_an_agent_is_here_with_both_connections_and_lost_once_it_is_silent(scene: Scene) -> None:
    scene.join()
    assert scene.events == []
    scene.join(output=True)
    assert scene.kinds() == [Joined]
    scene.passes(5)
    assert scene.kinds() == [Joined, Quiet]
    scene.passes(11)
    assert scene.kinds() == [Joined, Quiet, Lost]
    assert not scene.hub.here


def test_an_agent_whose_host_answers_is_paused_and_lost_only_after_minutes(scenes: Callable[..., Scene]) -> None:
    scene = scenes(Silence(15.0, 60.0))
    _, output = scene.agent()
    scene.passes(58)
    assert scene.kinds() == [Joined, Quiet, Paused]
    output.send_output(32, b"line\n")
    scene.turn()
    assert scene.kinds() == [Joined, Quiet, Paused, Alive]
    scene.passes(61)
    assert scene.kinds()[4:] == [Quiet, Paused, Lost]


@pytest.mark.parametrize("hole", ["both ways", "to the runner", "to the agent"])
def test_a_firewall_that_drops_udp_makes_nobody_silent(
    scenes: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch, hole: str
) -> None:
    """The second and the third begin in the middle of a run, and drop one way only."""
    scene = scenes(Silence(15.0, 60.0))
    if hole == "to the agent":
        monkeypatch.setattr(hub.Heartbeats, "_send", lambda *_args: None)
    task = agents.Task(b"s" * 32, (("127.0.0.1", scene.sockets.port),), "a", 0)
    lost: list[str] = []
    agent = agents.Runner(scene.loop, task, lambda *_message: None, lost.append)
    scene.turn()
    scene.passes(3 if hole == "to the runner" else 0)
    for sock in scene.sockets.datagrams if hole != "to the agent" else ():
        scene.loop.unwatch(sock)
    scene.passes(130)
    agent.close()
    assert (scene.kinds(), lost) == ([Joined], [])


@pytest.mark.parametrize(("unacknowledged_s", "count"), [(math.inf, 1), (1.0, 0)], ids=["cut off", "stopped"])
def test_the_runners_host_is_cut_off_if_no_other_host_answers(
    scenes: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch, unacknowledged_s: float, count: int
) -> None:
    """Where hosts answer, a file system that all of them use may have stopped their agents."""
    monkeypatch.setattr(Link, "unacknowledged_s", unacknowledged_s)
    scene = scenes(SILENCE, "abc")
    (_, own), *_ = [scene.agent(host) for host in "abc"]
    for _ in range(40):
        scene.passes(1)
        own.send_output(32, b"line\n")
        scene.turn(3)
    assert scene.kinds().count(Isolated) == count
    assert [event.place for event in scene.events if isinstance(event, Lost)] == [1, 2]


def test_what_is_dropped_when_another_is_lost_is_no_more_looked_at(scenes: Callable[..., Scene]) -> None:
    scene = scenes(SILENCE, "ab")
    scene.drops_all = True
    for host in "ab":
        scene.agent(host)
    scene.passes(40)
    assert scene.kinds().count(Lost) == 1


@pytest.mark.parametrize(
    ("silent_s", "unacknowledged_s", "is_over"),
    [(14.9, 15.0, False), (15.0, 15.0, True), (15.0, 11.0, False), (599.9, 5.0, False), (600.0, 5.0, True)],
)
def test_a_host_that_acknowledges_has_longer(silent_s: float, unacknowledged_s: float, *, is_over: bool) -> None:
    assert Silence().is_over(silent_s, unacknowledged_s) == is_over
    assert [Silence(host_s=seconds).probe_s for seconds in (1.0, 6.5, 60.0)] == [1, 2, 5]


def test_a_silence_is_over_in_its_time_and_not_at_the_next_look(scene: Scene) -> None:
    _, output = scene.agent()
    scene.now += 0.5
    output.send_output(32, b"line\n")
    scene.turn()
    scene.passes(14.75, step_s=0.25)
    assert Lost not in scene.kinds()
    scene.passes(0.25, step_s=0.25)
    assert scene.events[-1] == Lost(0, 15.0)


def test_a_stop_of_the_runner_is_nobodys_silence(scene: Scene) -> None:
    scene.agent()
    scene.now += 600
    scene.turn()
    assert scene.kinds() == [Joined]


def test_the_next_agent_of_a_place_counts_its_heartbeats_anew_and_no_earlier_one_counts(scene: Scene) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", scene.sockets.port))

        def beat(agent: int, sequence: int) -> None:
            heartbeat = messages.Heartbeat(scene.numbers[agent], sequence)
            sock.send(messages.pack_heartbeat(SECRET, AGENT, heartbeat))
            scene.turn()

        control, _ = scene.agent()
        beat(0, 9)
        control.close()
        scene.turn()
        beat(0, 10)  # the earlier agent was stopped, and goes on
        scene.agent()
        beat(0, 11)
        scene.passes(5)
        beat(0, 12)
        assert scene.kinds() == [Joined, Lost, Joined, Quiet]
        assert scene.events[1] == Lost(0, None)
        beat(1, 1)
        assert scene.kinds()[4:] == [Alive]
        scene.passes(5)
        beat(1, 1)  # an old one, which somebody has kept
        assert scene.kinds()[5:] == [Quiet]


@pytest.mark.parametrize(("count", "parts"), [(64, 1), (65, 10)])
def test_heartbeats_to_many_agents_are_spread_over_the_interval(count: int, parts: int) -> None:
    """Each agent's first heartbeat is answered at once."""
    now, heard, numbers = [100.0], list[int](), [*range(count)]
    with Loop(lambda: now[0]) as loop, ExitStack() as stack:
        ours, theirs = (stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2))
        for sock in (ours, theirs):
            sock.bind(("127.0.0.1", 0))
            sock.settimeout(0)
        its = hub.Heartbeats(loop, cast("Any", SimpleNamespace(datagrams=[ours])), SECRET, 1.0)

        def answers(*beats: tuple[int, int], after_s: float = 0.0) -> list[int]:
            for beat in beats:
                theirs.sendto(messages.pack_heartbeat(SECRET, AGENT, messages.Heartbeat(*beat)), ours.getsockname())
            now[0] += after_s
            loop.turn(0)
            return [number for (number, _), *_ in messages.heartbeats(theirs, SECRET, messages.RUNNER)]

        for number in numbers:
            its.expect(number, lambda number=number: heard.append(number))  # type: ignore[misc]
        assert answers(*((number, 7) for number in numbers)) == heard == numbers
        assert answers((0, 7), (0, 6), (0, 8), (count, 1)) == []
        assert heard == [*numbers, 0]
        answers(after_s=1.0)  # the first beat was before any came
        rounds = [answers(after_s=1 / parts) for _ in range(parts)]
        assert sorted(chain(*rounds)) == numbers
        assert {number % parts == beat[0] % parts for beat in rounds for number in beat} == {True}
        its.probe(3)
        its.probe(count)
        assert answers() == [3]
        its.forget(3)
        assert 3 not in chain(*(answers((3, 9), after_s=1 / parts) for _ in range(parts)))


def test_an_answer_comes_from_the_address_that_was_asked() -> None:
    """The kernel chooses the interface itself for IPv4; IPv6's may be of one link."""
    local, there = bytes((192, 0, 2, 1)), bytes((192, 0, 2, 9))
    four = (socket.IPPROTO_IP, IP_PKTINFO, struct.pack("@I", 7) + local + there)
    six = (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, bytes(15) + b"\1" + struct.pack("@I", 7))
    other = (socket.IPPROTO_IP, IP_PKTINFO + 1, four[2])
    for control, expected in (
        ([other, four, six], [(*four[:2], bytes(4) + local + bytes(4))]),
        ([(socket.SOL_SOCKET, *four[1:]), six, four], [six]),
        ([(*four[:2], four[2] + b"x"), (*six[:2], six[2][1:]), (six[0], six[1] + 1, six[2]), other], []),
    ):
        assert hub._from_same_address(control) == expected


def test_a_caller_without_place_or_key_or_that_comes_twice_is_dropped(scene: Scene) -> None:
    scene.join("b")
    assert scene.ended
    other = scene.link(Secret(b"t" * 32))
    scene.turn()
    other.send_record(Join("a", 0, 1, is_output=False))
    scene.turn()
    assert scene.ended
    scene.join()
    scene.join()
    assert scene.ended
    assert 0 in scene.hub.here


def test_welcome_has_the_number_and_the_port_for_heartbeats(scene: Scene) -> None:
    link = scene.link()
    said: list[tuple[int, dict[str, object]]] = []
    link.on_message = lambda kind, body: said.append((kind, body))
    scene.turn()
    link.send_record(Join("a", 0, 1, is_output=False))
    scene.turn()
    assert said == [(WELCOME, {"number": 0, "port": scene.sockets.port, "silence": 15000, "pause": 15000})]


def test_idle_callers_leave_descriptors_to_agents_starters_and_logs(scenes: Callable[..., Scene]) -> None:
    """Beside a few they get those of agents that are not here, whose calls would else push each other out."""
    count = 300

    def held() -> int:
        return len(os.listdir("/proc/self/fd")) - before - count

    scene = scenes(SILENCE, "ab")
    scene.agent("a")
    before = len(os.listdir("/proc/self/fd"))
    with ExitStack() as callers:
        for _ in range(count):
            callers.enter_context(socket.create_connection(("127.0.0.1", scene.sockets.port)))
            scene.turn(1)
        assert held() == messages.MOST_STRANGERS + 2
        scene.agent("b")
        assert held() <= messages.MOST_STRANGERS + 4  # both sides of two connections
    scene.turn()
    assert held() == 4 - count


def test_agents_wait_while_the_runner_is_out_of_descriptors(scene: Scene) -> None:
    link = scene.link()
    with no_descriptor_left(256):
        scene.turn()
        assert not {listener.fileno() for listener in scene.sockets.listeners} & {*scene.loop.poller.watched}
    scene.passes(1)
    scene.turn()
    link.send_record(Join("a", 0, 1, is_output=False))
    scene.turn()
    assert [*scene.hub.here] == [0]


def test_output_is_read_once_it_is_wanted_also_of_an_agent_that_joins_meanwhile(scene: Scene) -> None:
    """A reader that has stopped reading holds up all output, and nothing else."""
    lines: list[bytes] = []
    scene.hub.on_output = lambda _place, _kind, data: lines.append(data)
    scene.hub.hold(wanted=True)
    _, output = scene.agent()
    output.send_output(messages.OUT, b"early\n")
    scene.turn()
    assert lines == []
    scene.hub.hold(wanted=False)
    scene.turn()
    assert lines == [b"early\n"]
