"""How a rendezvous ends for one member: once, and by when."""

from __future__ import annotations

import pytest
from gathering import Clock

from mingle_hooks.errors import ConflictError, MissingError
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.messages import CLOSING_S, Deadline, Outcome

FIRST, SECOND = MissingError("rank 0", "nobody", "a look"), ConflictError("3 hosts", "2", "a look")


def test_the_first_error_stands() -> None:
    """What comes of it, while the others are being told, is no news."""
    with Loop(Clock()) as loop:
        outcome = Outcome(loop)
        outcome.fail(FIRST, linger_s=5.0)
        outcome.fail(SECOND)
    with pytest.raises(MissingError):
        outcome.result()


def test_it_is_over_when_the_others_were_told() -> None:
    """Or when they have had the time for it; without others, at once."""
    clock = Clock()
    clock.stop()
    with Loop(clock) as loop:
        outcome = Outcome(loop)
        outcome.fail(FIRST, linger_s=5.0)
        clock.ahead = 4.9
        loop.turn(0.0)
        assert (outcome.is_known, outcome.is_over) == (True, False)
        clock.ahead = 5.1
        loop.turn(0.0)
        assert outcome.is_over
        alone = Outcome(loop)
        alone.fail(FIRST)
        assert alone.is_over


def test_a_deadline_counts_from_its_beginning() -> None:
    """By the loop's clock; a world that closes when it comes has a little more."""
    clock = Clock()
    clock.stop()
    with Loop(clock) as loop:
        deadline = Deadline(loop, 10.0)
        clock.ahead = 4.0
        assert deadline.waited_s() == 4
        assert deadline.left_s() == pytest.approx(6.0 + CLOSING_S)
        assert (deadline.is_before(3.9), deadline.is_before(4.1)) == (False, True)
