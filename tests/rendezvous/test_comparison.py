"""What members say of their nodes travels with the check-in, and the leader compares it."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from gathering import Room, join_request

from mingle_hooks.rendezvous import timeline as comparison
from mingle_hooks.rendezvous.messages import LONGEST_FINGERPRINT, JoinRequest
from mingle_hooks.rendezvous.roster import AdvertisedAddress
from mingle_hooks.rendezvous.wire import WireError, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT = "driver=570 gpus=8%20H100"
STRICT: Any = SimpleNamespace(strict=("driver",), asks_rdma=False)


@pytest.fixture
def room() -> Iterator[Room]:
    with Room(4) as made:
        mine = made.leader.roster.entry(made.me.member)
        mine.fingerprint, mine.addresses, mine.clock = TEXT, "10.0.0.1=25G,mtu9000", (0.0, 0.0)
        yield made


def come(room: Room, **odd: Any) -> None:
    """Have three members come, of which rank 3's says something else."""
    for rank in (1, 2, 3):
        said = {"fingerprint": TEXT, "addresses": f"127.0.0.{rank + 1}=25G,mtu9000"} | (odd if rank == 3 else {})
        room.member(rank=rank, host=f"node{rank}", **said).come()
    room.until(lambda: len(room.leader.roster) == 4)


def lines(room: Room) -> list[str]:
    return comparison.difference_lines(room.leader, "127.0.0.1", asks_rdma=False)


def test_what_is_said_comes_back_and_equal_texts_are_one_object() -> None:
    """A leader of thousands keeps one text; a member without one says nothing of its clock either."""
    me = join_request(fingerprint=TEXT, addresses="10.0.0.1=25G")
    assert parse(JoinRequest, me.body(17)) == me._replace(clock_ms=17)
    one, other = (parse(JoinRequest, me.body(17) | {"fingerprint": "".join([*TEXT])}) for _ in range(2))
    assert one.fingerprint is other.fingerprint
    assert not {"fingerprint", "addresses", "clock_ms"} & join_request().body(17).keys()
    assert parse(JoinRequest, join_request().body()).fingerprint == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"fingerprint": "x" * (LONGEST_FINGERPRINT + 1)},
        {"fingerprint": "a\nb"},
        {"fingerprint": 7},
        {"addresses": "\x1b"},
        {"clock_ms": -1},
        {"clock_ms": 1.5},
    ],
)
def test_what_no_member_says_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(WireError):
        parse(JoinRequest, join_request(fingerprint=TEXT).body(1) | wrong)


def test_members_that_are_alike_are_worth_no_word(room: Room) -> None:
    come(room)
    assert lines(room) == []
    assert comparison.refuse_different_nodes(room.leader, STRICT, 0) is False


def test_the_odd_one_is_named_and_refused_only_for_what_is_strict(room: Room) -> None:
    come(room, fingerprint="driver=550 gpus=8%20H100")
    assert lines(room) == ["node3: driver 550, 3 others 570", "to leave out: --exclude=node3"]
    lenient: Any = SimpleNamespace(strict=("gpus",), asks_rdma=False)
    assert comparison.refuse_different_nodes(room.leader, lenient, 0) is False
    assert comparison.refuse_different_nodes(room.leader, STRICT, 0) is True
    assert room.leader.failure is not None
    error = str(room.leader.failure.error())
    assert "expected 4 nodes that are alike" in error
    assert "saw node3: driver 550, 3 others 570; try --exclude=node3, or --no-strict" in error


def test_a_member_of_another_version_is_not_compared(room: Room) -> None:
    come(room, fingerprint="", addresses="")
    assert lines(room) == []


def test_the_leader_knows_how_far_a_clock_may_be_off_at_least_and_at_most(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interval holds the truth, however long the handshake took."""
    come(room)
    intervals = [entry.clock for entry in room.leader.roster.entries()]
    assert all(its is not None and its[0] <= 0 <= its[1] for its in intervals)
    now = time.time
    ahead = SimpleNamespace(time=lambda: now() + 5)
    monkeypatch.setattr("mingle_hooks.rendezvous.member.time", ahead)
    last = room.members.pop()
    last.leave()
    room.until(lambda: len(room.leader.roster) == 3)
    room.member(rank=3, host="node3", fingerprint=TEXT, addresses="127.0.0.4=25G,mtu9000").come()
    room.until(lambda: len(room.leader.roster) == 4)
    low, high = room.leader.roster.entries()[-1].clock or (0, 0)
    assert low <= 5 <= high
    assert high - low < 5


def test_the_interface_is_that_of_the_network_that_is_used(room: Room) -> None:
    come(room, addresses="127.0.0.4=25G,mtu1500 10.9.0.4=25G,mtu9000")
    for number, entry in enumerate(room.leader.roster.entries(), 1):
        entry.reached = {0: f"127.0.0.{number}"}
    mine = room.leader.roster.entry(room.me.member)
    mine.addresses = "127.0.0.1=25G,mtu9000"
    assert lines(room)[0] == "node3: network 25G,mtu1500, 3 others 25G,mtu9000"


def test_who_alone_does_not_reach_a_better_network_is_named(room: Room) -> None:
    come(room)
    better = (AdvertisedAddress("10.78.0.1"), AdvertisedAddress("fd78::1"), AdvertisedAddress("127.0.0.1"))
    room.leader.terms = room.terms._replace(advertised=better)
    for entry in room.leader.roster.entries():
        entry.reached = {2: "x"} if entry.join_request.rank == 3 else {0: "x", 1: "x", 2: "x"}
    assert lines(room)[0] == "node3: does not reach rank 0 at 10.78.0.1, 3 others do"
    for entry in room.leader.roster.entries()[1:]:
        entry.reached = {2: "x"}
    assert lines(room) == []
