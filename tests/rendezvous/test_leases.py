"""A leader says the last word only while every member still waits for it."""

from __future__ import annotations

import pytest
from gathering import InRoom, Room

from mingle_hooks.rendezvous.messages import LAST_WORD_S, LEASE_S, RENEW_S, Leases


class Now:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def test_a_lease_begins_when_it_is_asked_for() -> None:
    """However late the promise arrives: the member may have given it at once."""
    now = Now()
    leases = Leases(now)
    assert leases.ask(b"a")
    now.time += 20.0
    leases.promised(b"a", LEASE_S)
    assert len(leases) == 1
    assert leases.left_s() == LEASE_S - 20.0
    assert leases.ending(LEASE_S - 20.0) == []
    assert leases.ending(LEASE_S - 19.0) == [b"a"]


def test_who_owes_an_answer_is_not_asked_again() -> None:
    """Its answer to the first question would be taken for one to the second."""
    leases = Leases(Now())
    assert [leases.ask(b"a"), leases.ask(b"a"), leases.ask(b"b")] == [True, False, True]
    leases.promised(b"a", LEASE_S)
    assert leases.ask(b"a")


def test_a_promise_that_nobody_asked_for_is_none() -> None:
    """A second answer to one question would lengthen it."""
    now = Now()
    leases = Leases(now)
    leases.promised(b"a", LEASE_S)
    assert len(leases) == 0
    leases.ask(b"a")
    leases.promised(b"a", LEASE_S)
    now.time += 10.0
    leases.promised(b"a", LEASE_S)
    assert leases.left_s() == LEASE_S - 10.0


@pytest.mark.parametrize("late_s", [LEASE_S - LAST_WORD_S + 1.0, LEASE_S + 10.0])
def test_a_leader_that_was_stopped_asks_again_before_it_says_the_word(late_s: float) -> None:
    """It reads a promise that was given long ago: its member may have left."""
    with Room(2) as room:
        member = room.member().come()
        room.until(lambda: member.state == "ready")
        leases = room.leader._closing.leases
        leases._asked.update(dict.fromkeys(leases._asked, room.clock() - late_s))
        room.until(lambda: len(leases))
        assert room.leader.state == "closing"
        room.until(lambda: member.state == "formed")  # it was there, and has promised again


def test_a_leader_does_not_say_the_word_to_who_is_about_to_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member whose time is almost over gives up, and the world with it; nor is it asked for more."""
    asked: list[int] = []
    monkeypatch.setattr(InRoom, "_hold", lambda _self, epoch: asked.append(epoch))
    with Room(2) as room:
        member = room.member()
        member.patience_s = 4.0  # two lost packets take longer
        member.come()
        room.until(lambda: member.state == "ready")
        for _ in range(10):
            room.turn()
        assert (room.leader.state, asked) == ("closing", [])


def test_leases_are_renewed_while_others_are_awaited() -> None:
    """A member that waits for a slow one has not left when that one is ready."""
    with Room(3) as room:
        quick, slow = room.member(rank=1).come(), room.member(rank=2).come()
        room.until(lambda: slow.membership)
        membership = slow.membership
        assert membership is not None
        held: list[int] = []
        membership._promise = held.append  # type: ignore[method-assign]
        room.until(lambda: held and len(room.leader._closing.leases) == 1)
        for _ in range(5):
            room.skip(RENEW_S)
            room.until(lambda: room.leader.awaited_s > LEASE_S - RENEW_S)
        assert (quick.state, room.leader.state) == ("ready", "closing")
        del membership._promise  # its own is seen again
        membership._promise(held[0])
        room.until(lambda: quick.state == slow.state == "formed")
