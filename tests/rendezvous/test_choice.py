"""When a leader's world may close, and on which of its addresses: no sockets, and a clock of the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from gathering import Clock, join_request

from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.roster import ASKED_S, SETTLE_S, AddressChoice, AdvertisedAddress, Roster, Terms

if TYPE_CHECKING:
    from collections.abc import Iterator

BEST, SECOND = AdvertisedAddress("10.0.0.1"), AdvertisedAddress("10.1.0.1")
LOOPBACK = AdvertisedAddress("127.0.0.1", loopback=True)


class Leading:
    """A leader of two that only gathers and chooses."""

    def __init__(self, loop: Loop, clock: Clock, advertised: tuple[AdvertisedAddress, ...]) -> None:
        self.loop, self.clock = loop, clock
        self.roster = Roster(join_request(rank=0, nodes=2))
        self.closed: list[int] = []
        self.gathers = True
        terms = Terms(advertised, 29_500, 0)
        self.choice = AddressChoice(loop, self.roster, terms, lambda: self.gathers, self.closed.append)

    def comes(self, *reached: int, machine: str = "there") -> bytes:
        """Have the other member come, and reach these addresses."""
        other = join_request(rank=1, machine=machine)
        self.roster.add(other, "10.0.0.2")
        for offer in reached:
            self.reaches(other.member, offer)
        return other.member

    def reaches(self, member: bytes, offer: int) -> None:
        """Have a member reach one address."""
        self.roster.reach(member, offer, "10.0.0.2")
        self.choice.consider()

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.ahead += seconds
        self.loop.turn(0.0)


@pytest.fixture
def leading(request: pytest.FixtureRequest) -> Iterator[Leading]:
    """Return a leader that offers two addresses, or those of the parameter."""
    clock = Clock()
    clock.stop()
    with Loop(clock) as loop:
        leading = Leading(loop, clock, getattr(request, "param", (BEST, SECOND)))
        leading.later(0.0)  # its first look, for it may be alone
        yield leading


def test_the_best_address_is_taken_as_soon_as_all_have_reached_it(leading: Leading) -> None:
    """Nobody waits for worse ones."""
    leading.comes(0)
    assert leading.closed == [0]


def test_the_next_best_is_taken_once_the_best_had_its_time(leading: Leading) -> None:
    """And not a moment before."""
    leading.comes(1)
    leading.later(SETTLE_S - 0.01)
    assert leading.closed == []
    leading.later(0.02)
    assert leading.closed == [1]


def test_the_time_of_the_best_begins_anew_when_somebody_has_left(leading: Leading) -> None:
    """It counts from when all are in again."""
    member = leading.comes(1)
    leading.later(SETTLE_S - 0.5)
    leading.roster.remove(member)
    leading.choice.start_over()
    leading.comes(1)
    leading.later(1.0)
    assert leading.closed == []
    leading.later(SETTLE_S)
    assert leading.closed == [1]


@pytest.mark.parametrize("leading", [(LOOPBACK, BEST)], indirect=True)
@pytest.mark.parametrize(("machine", "chosen"), [("here", 0), ("there", 1)])
def test_loopback_serves_the_members_of_one_machine_only(leading: Leading, machine: str, chosen: int) -> None:
    """Of others it is not asked."""
    leading.comes(0, 1, machine=machine)
    assert leading.closed[:1] == [chosen]


def test_nothing_is_chosen_while_others_of_the_id_can_still_be_heard(leading: Leading) -> None:
    """Also where all are in."""
    leading.choice.listen_for(30.0)
    leading.comes(0)
    leading.later(29.9)
    assert leading.closed == []
    leading.later(0.2)
    assert leading.closed == [0]


def test_nothing_is_chosen_while_another_leader_is_being_asked(leading: Leading) -> None:
    """It is looked again soon."""
    answers = iter([False, False, True])
    leading.choice.ask_first(lambda: next(answers))
    leading.comes(0)
    assert leading.closed == []
    leading.later(1.1 * ASKED_S)
    assert leading.closed == []
    leading.later(1.1 * ASKED_S)
    assert leading.closed == [0]


def test_a_leader_that_gathers_no_more_chooses_nothing(leading: Leading) -> None:
    """It has failed, say."""
    leading.gathers = False
    leading.comes(0)
    assert leading.closed == []


def test_who_has_stopped_chooses_nothing(leading: Leading) -> None:
    """No timer is left."""
    leading.comes(1)
    leading.choice.stop()
    leading.later(2 * SETTLE_S)
    assert leading.closed == []
