"""The poller's promises, by epoll(7) and by poll(2)."""

from __future__ import annotations

import select
import socket
import time
from typing import TYPE_CHECKING

import pytest

from mingle_hooks.rendezvous.connection import READ, WRITE, Poller

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["epoll", "poll"])
def poller(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Poller]:
    """Give a poller of each kind."""
    if request.param == "poll":
        monkeypatch.delattr(select, "epoll")
    made = Poller()
    yield made
    made.close()


def call(_events: int) -> None:
    """Do nothing; it is only compared."""


def test_what_is_ready_is_told_with_its_call(poller: Poller) -> None:
    """An empty socket can be written, one with data read, and nothing else is told."""
    one, other = socket.socketpair()
    with one, other:
        poller.watch(one, READ | WRITE, call)
        poller.watch(other, READ, call)
        assert poller.ready(0.0) == [(one.fileno(), WRITE)]
        other.send(b"a")
        assert poller.ready(0.0) == [(one.fileno(), READ | WRITE)]
        poller.rewatch(one, READ, call)
        assert poller.ready(0.0) == [(one.fileno(), READ)]
        poller.unwatch(one)
        assert poller.ready(0.0) == []
        poller.unwatch(one)
        assert list(poller.watched) == [other.fileno()]


def test_the_other_sides_end_is_ready_for_both(poller: Poller) -> None:
    """Whatever a connection waits for, it learns of its end."""
    one, other = socket.socketpair()
    with one:
        poller.watch(one, READ, call)
        other.close()
        assert poller.ready(0.0) == [(one.fileno(), READ | WRITE)]


@pytest.mark.parametrize("wait_s", [0.0, 0.02])
def test_a_wait_lasts_as_long_as_it_was_asked_to(poller: Poller, wait_s: float) -> None:
    """Never shorter: a timer would be asked for in circles."""
    began = time.monotonic()
    assert poller.ready(wait_s) == []
    assert time.monotonic() - began >= wait_s
