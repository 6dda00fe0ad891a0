"""Timers ring in order, and sockets are served."""

from __future__ import annotations

import socket
import time

import pytest
from gathering import Clock

from mingle_hooks.rendezvous import connection as module
from mingle_hooks.rendezvous.connection import READ, Loop, boottime


def test_timers_ring_in_the_order_of_their_time_and_cancelled_ones_do_not() -> None:
    """Two of the same time ring in the order they were set."""
    clock, rung = Clock(), []
    with Loop(clock) as loop:
        loop.after(2.0, lambda: rung.append("late"))
        loop.after(1.0, lambda: rung.append("never")).cancel()
        loop.after(1.0, lambda: rung.append("soon"))
        clock.ahead = 3.0
        loop.run(lambda: len(rung) >= 2)
    assert rung == ["soon", "late"]


def test_a_timer_may_set_another_and_cancelling_it_afterwards_is_harmless() -> None:
    """As repeated actions do."""
    rung: list[int] = []
    with Loop() as loop:
        timer = loop.after(0.0, lambda: loop.after(0.0, lambda: rung.append(1)))
        loop.run(lambda: bool(rung))
        timer.cancel()
    assert rung == [1]


def test_a_socket_is_served_until_it_is_unwatched() -> None:
    """Its callback gets the events."""
    one, other = socket.socketpair()
    heard: list[bytes] = []
    with one, other, Loop() as loop:
        loop.watch(one, READ, lambda _events: heard.append(one.recv(1)))
        other.send(b"ab")
        loop.run(lambda: len(heard) == 2)
        loop.unwatch(one)
        other.send(b"c")
        over: list[int] = []
        loop.after(0.0, lambda: over.append(1))
        loop.run(lambda: bool(over))
    assert heard == [b"a", b"b"]


def test_what_was_due_comes_before_what_was_said_meanwhile() -> None:
    """Who was stopped until after its deadline takes no word that came before it went on."""
    one, other = socket.socketpair()
    clock, seen = Clock(), []
    with one, other, Loop(clock) as loop:
        loop.watch(one, READ, lambda _events: seen.append(one.recv(1).decode()))
        loop.after(5.0, lambda: seen.append("deadline"))
        other.send(b"w")
        clock.ahead = 10.0
        loop.run(lambda: len(seen) > 1)
    assert seen == ["deadline", "w"]


def test_promises_and_deadlines_go_by_the_clock_that_a_suspended_host_does_not_stop() -> None:
    """CLOCK_BOOTTIME, on Linux."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= boottime() <= time.clock_gettime(time.CLOCK_BOOTTIME)


def _refuses(_clock: int) -> float:
    raise OSError(22, "Invalid argument")


@pytest.mark.parametrize("lacks", ["the name", "the clock"])
def test_a_system_without_that_clock_has_the_monotonic_one(lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other systems do not name it, and a sandbox may refuse it."""
    if lacks == "the name":
        monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    else:
        monkeypatch.setattr(time, "clock_gettime", _refuses)
    assert module._steadiest() == time.CLOCK_MONOTONIC


def test_a_delay_varies_by_a_fifth() -> None:
    """So that members do not act in step."""
    with Loop() as loop:
        assert all(0.8 <= loop.about(1.0) <= 1.2 for _ in range(100))
        assert len({loop.about(1.0) for _ in range(20)}) > 1
