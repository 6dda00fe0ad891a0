"""Nonces are open for a while, and a beacon makes a member ask only so often."""

from __future__ import annotations

from gathering import ATTEMPT, Clock

from mingle_hooks.rendezvous.multicast import AGAIN_S, BEACON, CAUSED, GAP_S, MOST_HEARD, MOST_OPEN, Questions
from mingle_hooks.rendezvous.multicast import Beacon as Packet

NODE = b"L" * 16


class Still(Clock):
    """A clock that a test moves by hand."""

    def __call__(self) -> float:
        return self.ahead


def answer(*nonces: bytes) -> Packet:
    """Return a beacon that answers these questions."""
    return Packet(BEACON, ATTEMPT.tag, NODE, nonces=nonces)


def test_only_an_open_nonce_of_ours_is_answered() -> None:
    """For a few seconds, and by any number of leaders."""
    clock = Still()
    its = Questions(clock)
    first = its.ask()
    assert its.is_answered(answer(b"another!", first))
    assert its.is_answered(answer(first))
    assert not its.is_answered(answer(b"another!"))
    assert not its.is_answered(answer())
    clock.ahead = 10.0
    assert not its.is_answered(answer(first))


def test_so_many_nonces_are_open_at_most() -> None:
    """The oldest goes."""
    its = Questions(Still())
    asked = [its.ask() for _ in range(MOST_OPEN + 1)]
    assert [its.is_answered(answer(nonce)) for nonce in asked] == [False] + [True] * MOST_OPEN


def test_a_leader_that_does_not_answer_is_asked_less_and_less_often() -> None:
    """It may be one that is long gone."""
    clock = Still()
    its = Questions(clock)
    assert its.wait_s(NODE) == 0.0
    for again_s in (*AGAIN_S, AGAIN_S[-1]):
        its.ask()
        clock.ahead += again_s - 0.01
        assert its.wait_s(NODE) is None
        clock.ahead += 0.02
        assert its.wait_s(NODE) == 0.0


def test_another_leader_is_asked_soon_after_the_last_question() -> None:
    """So that many have one question, and each of them has one."""
    its = Questions(Still())
    assert its.wait_s(NODE) == 0.0
    its.ask()
    assert its.wait_s(b"M" * 16) == GAP_S


def test_a_leader_that_was_lost_is_asked_at_once() -> None:
    """It had answered; one that never did is still no news."""
    clock = Still()
    its = Questions(clock)
    assert its.is_answered(answer(its.ask()))
    clock.ahead += GAP_S
    assert its.wait_s(NODE) is None
    its.begin()
    assert its.wait_s(NODE) == 0.0
    its.ask()
    its.begin()
    assert its.wait_s(NODE) is None


def test_however_many_leaders_are_heard_there_are_few_questions_and_little_is_remembered() -> None:
    """Somebody may send the beacons of a thousand."""
    its = Questions(Still())
    asked = 0
    for number in range(10 * MOST_HEARD):
        if its.wait_s(number.to_bytes(16, "big")) is not None and its.may_ask():
            its.ask()
            asked += 1
    assert asked == CAUSED[0]
    assert len(its._heard) <= MOST_HEARD
