"""A supervisor finds the runner at any of its addresses, and nobody who does not hold the key."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from fake_runner import NUMBER

from mingle_hooks.errors import UsageError
from mingle_hooks.rendezvous.connection import READ, Loop
from mingle_hooks.rendezvous.wire import Secret, body_of
from mingle_hooks.run import messages
from mingle_hooks.run.agent import Approach
from mingle_hooks.run.agent import parse_addresses as addresses
from mingle_hooks.run.messages import Link

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.run.agent import Where

JOIN = messages.Join("node1", 0, 7, is_output=False)


class Door:
    """A runner at one address, with a key of its own."""

    def __init__(self, loop: Loop, address: str, key: bytes, *, speaks: bool = True) -> None:
        self.joins: list[dict[str, object]] = []
        self.links: list[Link] = []
        self.ends: list[str] = []
        self._loop, self._secret, self._speaks = loop, Secret(key), speaks
        self.listener = socket.create_server((address, 0))
        self.listener.setblocking(False)  # noqa: FBT003 - socket's own
        self.where: Where = (address, self.listener.getsockname()[1])
        loop.watch(self.listener, READ, lambda _events: self._accept())

    def _accept(self) -> None:
        sock, _ = self.listener.accept()
        sock.setblocking(False)  # noqa: FBT003 - socket's own
        link = Link(self._loop, sock, self._secret, is_runner=True, on_end=self.ends.append)

        def said(_kind: int, body: dict[str, object]) -> None:
            self.joins.append(body)
            if self._speaks:
                link.send(messages.WELCOME, messages.Welcome(NUMBER, 1, 15000))

        link.on_message = said
        self.links.append(link)

    def close(self) -> None:
        """Hear nobody any more."""
        for link in self.links:
            link.close()
        self._loop.unwatch(self.listener)
        self.listener.close()


class Found:
    """What an approach came to."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.loop = Loop(clock)
        self.doors: list[Door] = []
        self.approaches: list[Approach] = []
        self.found: list[tuple[Where, Link, messages.Welcome]] = []
        self.ends: list[str] = []

    def door(self, address: str = "127.0.0.1", key: bytes = b"k" * 32, *, speaks: bool = True) -> Door:
        """Open another one."""
        self.doors.append(Door(self.loop, address, key, speaks=speaks))
        return self.doors[-1]

    def approach(self, *places: Where) -> Approach:
        """Dial all."""
        secret = Secret(b"k" * 32)
        made = Approach(self.loop, secret, places, JOIN, lambda *found: self.found.append(found), self.ends.append)
        self.approaches.append(made)
        return made


@pytest.fixture
def made() -> object:
    """Give a loop with a clock that runs ten times as fast."""
    import time

    begin = time.monotonic()
    made = Found(lambda: begin + 10 * (time.monotonic() - begin))
    yield made
    for approach in made.approaches:
        approach.close()
    for door in made.doors:
        door.close()
    made.loop.__exit__(None, None, None)


def until(made: Found, happens: Callable[[], object]) -> None:
    """Serve until something happens."""
    import time

    deadline = time.monotonic() + 30
    while not happens():
        assert time.monotonic() < deadline
        made.loop.turn(min(made.loop.due_in(), 0.02))


def test_the_address_that_answers_is_taken(made: Found) -> None:
    """Others are refused, or are not there; all are tried at once."""
    refused = made.door("127.0.0.2")
    refused.close()
    made.doors.remove(refused)
    right = made.door()
    made.approach(refused.where, ("127.0.0.1", 9), right.where, ("fe80::1%9999", 5))
    until(made, lambda: made.found)
    assert [(where, welcome.number) for where, _, welcome in made.found] == [(right.where, NUMBER)]
    assert right.joins == [body_of(JOIN)]


def test_another_key_or_silence_is_nobody(made: Found) -> None:
    """The next that has greeted is asked; nobody is told twice who has come."""
    silent, wrong, right = made.door(speaks=False), made.door("127.0.0.2", b"w" * 32), made.door("127.0.0.3")
    approach = made.approach(silent.where, wrong.where, right.where)
    until(made, lambda: made.found)
    assert [where for where, _, _ in made.found] == [right.where]
    assert wrong.joins == []
    until(made, lambda: all(link.closed for door in (silent, wrong) for link in door.links))
    assert approach.is_over
    assert made.ends == []
    made.doors[2].links[-1].close()
    until(made, lambda: made.ends)
    assert made.ends == ["it closed the connection"]


def test_a_runner_that_listens_later_is_found(made: Found) -> None:
    """It is dialled again."""
    door = made.door()
    door.close()
    made.doors.clear()
    made.approach(door.where)
    for _ in range(5):
        made.loop.turn(0.01)
    listener = socket.create_server(door.where)
    listener.settimeout(30)
    with listener:
        until(made, lambda: is_called(listener))


def is_called(listener: socket.socket) -> bool:
    """Tell whether somebody has come, and drop it."""
    listener.settimeout(0)
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def test_the_addresses_are_those_of_the_environment() -> None:
    """IPv6, and a zone's number, too."""
    assert addresses("10.77.0.1 4711,fd77::1 4712") == (("10.77.0.1", 4711), ("fd77::1", 4712))
    for wrong in ("", "10.77.0.1", "10.77.0.1 x", " 5", "10.77.0.1 4711,"):
        with pytest.raises(UsageError, match="addresses and ports"):
            addresses(wrong)
