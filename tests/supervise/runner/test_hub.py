"""Who is alive, by the runner's own clock."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from typing import TYPE_CHECKING

import pytest

from mingle_hooks.errors import NetworkError
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.wire import Secret
from mingle_hooks.run.events import Heard, Joined, Lost, Quiet
from mingle_hooks.run.hub import Hub, Sockets
from mingle_hooks.run.messages import (
    JOIN,
    SUPERVISOR,
    WELCOME,
    Heartbeat,
    Join,
    Link,
    heartbeat_tag,
    pack_heartbeat,
)
from mingle_hooks.run.starters import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mingle_hooks.run.events import Event

SECRET = Secret(b"s" * 32)


class Scene:
    """A hub with one place, and a clock that the test turns."""

    def __init__(self) -> None:
        self.now = 100.0
        self.loop = Loop(clock=lambda: self.now)
        self.sockets = Sockets(is_local=True)
        self.events: list[Event] = []
        self.hub = Hub(self.loop, self.sockets, SECRET, [Place("a", 0)], 15.0, self.events.append, lambda *_words: None)

    def link(self, secret: Secret = SECRET) -> Link:
        """Connect as a supervisor does."""
        sock = socket.create_connection(("127.0.0.1", self.sockets.port))
        sock.settimeout(0)
        self.ended = False

        def end(_reason: str) -> None:
            self.ended = True

        return Link(self.loop, sock, secret, is_runner=False, on_end=end)

    def turn(self, count: int = 20) -> None:
        """Serve what is ready."""
        for _ in range(count):
            self.loop.turn(0.005)

    def join(self, host: str = "a", *, output: bool = False) -> Link:
        """Connect, and say who this is."""
        link = self.link()
        self.turn()
        link.send(JOIN, Join(host, 0, 1, is_output=output))
        self.turn()
        return link

    def passes(self, seconds: float, step_s: float = 1.0) -> None:
        """Let time go by, second by second."""
        for _ in range(int(seconds / step_s)):
            self.now += step_s
            self.turn(3)


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Give a scene, and close it."""
    made = Scene()
    with made.loop:
        yield made
        made.hub.drop(0)
        made.sockets.close()


def kinds(events: list[Event]) -> list[type]:
    """Return what kinds of events they are."""
    return [type(event) for event in events]


def test_a_supervisor_is_here_with_both_connections_and_lost_once_it_is_silent(scene: Scene) -> None:
    control = scene.join()
    assert scene.events == []
    output = scene.join(output=True)
    assert kinds(scene.events) == [Joined]
    scene.passes(5)
    assert kinds(scene.events) == [Joined, Quiet]
    scene.passes(11)
    assert kinds(scene.events) == [Joined, Quiet, Lost]
    assert not scene.hub.here
    control.close()
    output.close()


def test_a_silence_is_over_in_its_time_and_not_at_the_next_look(scene: Scene) -> None:
    links = [scene.join(), scene.join(output=True)]
    scene.now += 0.5
    links[1].send_output(32, b"line\n")
    scene.turn()
    scene.passes(14.75, step_s=0.25)
    assert Lost not in kinds(scene.events)
    scene.passes(0.25, step_s=0.25)
    assert scene.events[-1] == Lost(0, 15.0)
    for link in links:
        link.close()


def test_any_word_is_a_sign_of_life(scene: Scene) -> None:
    links = [scene.join(), scene.join(output=True)]
    scene.passes(5)
    links[1].send_output(32, b"line\n")
    scene.turn()
    assert kinds(scene.events) == [Joined, Quiet, Heard]
    scene.passes(14)
    assert Lost not in kinds(scene.events)
    for link in links:
        link.close()


def test_a_stop_of_the_runner_is_nobodys_silence(scene: Scene) -> None:
    links = [scene.join(), scene.join(output=True)]
    scene.now += 600
    scene.turn()
    assert kinds(scene.events) == [Joined]
    for link in links:
        link.close()


def test_the_next_supervisor_of_a_place_is_heard_from_its_first_sign(scene: Scene) -> None:
    """It counts its signs anew."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", scene.sockets.port))

        def sign(sequence: int) -> None:
            sock.send(pack_heartbeat(SECRET, heartbeat_tag(SECRET), SUPERVISOR, Heartbeat(0, sequence)))
            scene.turn()

        links = [scene.join(), scene.join(output=True)]
        sign(9)
        links[0].close()
        scene.turn()
        links += [scene.join(), scene.join(output=True)]
        scene.passes(5)
        assert kinds(scene.events) == [Joined, Lost, Joined, Quiet]
        sign(1)
        assert kinds(scene.events)[4:] == [Heard]
        scene.passes(5)
        sign(1)  # an old one, which somebody has kept
        assert kinds(scene.events)[5:] == [Quiet]
    for link in links:
        link.close()


def test_its_connections_end_is_its_own(scene: Scene) -> None:
    links = [scene.join(), scene.join(output=True)]
    links[0].close()
    scene.turn()
    assert scene.events[1:] == [Lost(0, None)]
    links[1].close()


def test_who_has_no_place_or_no_key_or_comes_twice_is_turned_away(scene: Scene) -> None:
    scene.join("b")
    assert scene.ended
    other = scene.link(Secret(b"t" * 32))
    scene.turn()
    other.send(JOIN, Join("a", 0, 1, is_output=False))
    scene.turn()
    assert scene.ended
    first = scene.join()
    scene.join()
    assert scene.ended
    assert 0 in scene.hub.here
    first.close()


def test_a_supervisor_is_told_its_number_and_where_to_send_signs(scene: Scene) -> None:
    link = scene.link()
    said: list[tuple[int, dict[str, object]]] = []
    link.on_message = lambda kind, body: said.append((kind, body))
    scene.turn()
    link.send(JOIN, Join("a", 0, 1, is_output=False))
    scene.turn()
    assert said == [(WELCOME, {"number": 0, "port": scene.sockets.port, "silence": 15000})]
    link.close()


def test_supervisors_are_awaited_on_a_port_of_the_range() -> None:
    """In all families and both protocols, where somebody has another of its ports; with all taken it is an error."""
    chosen = range(17987, 17989)
    first = Sockets(is_local=False, port_range=chosen)
    second = Sockets(is_local=False, port_range=chosen)
    try:
        assert {first.port, second.port} == {*chosen}
        assert {sock.getsockname()[1] for sock in (*first.listeners, *first.datagrams)} == {first.port}
        with pytest.raises(NetworkError, match="2 of 17987-17988 are taken"):
            Sockets(is_local=False, port_range=chosen)
    finally:
        first.close()
        second.close()


def test_a_runner_out_of_descriptors_lets_supervisors_wait_until_there_is_room(scene: Scene) -> None:
    """It does not turn in circles meanwhile."""
    link, limits = scene.link(), resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        scene.turn()
        assert not {listener.fileno() for listener in scene.sockets.listeners} & {*scene.loop.poller.watched}
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    scene.passes(1)
    scene.turn()
    link.send(JOIN, Join("a", 0, 1, is_output=False))
    scene.turn()
    assert [*scene.hub.here] == [0]
    link.close()
