"""What a member takes from the leader that it has checked in with."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest
from support.gathering import ATTEMPT, SECRET, heard, join_request, probed

from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.connection import Connection, Endpoint, Loop
from mingle_hooks.rendezvous.dialer import ProvenLeader
from mingle_hooks.rendezvous.member import CALL_AGAIN_S, LINGER_S, Follower, Membership
from mingle_hooks.rendezvous.wire import MOST_ADVERTISED

NONCES = b"n" * 16, b"m" * 16


def welcomed(offers: object) -> str:
    """Return the state of a member to which its leader offers these addresses."""
    near, far = socket.socketpair()
    with Loop() as loop, near, far:
        connection = Connection(loop, near, lambda _kind, _payload: None, lambda _reason: None)
        sealer = wire.Sealer(SECRET, *NONCES, b"member", b"leader")
        proven = ProvenLeader(Endpoint("127.0.0.1", 1, "test"), connection, sealer, b"l" * 16, 0, "node0")
        me = join_request(rank=1)
        membership = Membership(loop, ATTEMPT, SECRET, proven, me, lambda _own: True, lambda: 60.0, lambda: None)
        leader = wire.Sealer(SECRET, *NONCES, b"leader", b"member")
        far.sendall(leader.seal(wire.WELCOME, wire.encode({"port": 1, "offers": offers})))
        for _ in range(5):
            loop.turn(0.0)
        membership.close()
        return membership.state


def test_offers_are_taken() -> None:
    """As many as a leader may make."""
    assert welcomed([[index, "127.0.0.1"] for index in range(MOST_ADVERTISED)]) == "waiting"


@pytest.mark.parametrize(
    "offers",
    [
        None,
        {"0": "127.0.0.1"},
        ["127.0.0.1"],
        [[0]],
        [[0, "127.0.0.1", 1]],
        [["0", "127.0.0.1"]],
        [[True, "127.0.0.1"]],
        [[0, "node1"]],
        [[index, "127.0.0.1"] for index in range(MOST_ADVERTISED + 1)],
    ],
)
def test_an_invalid_offer_is_refused(offers: object) -> None:
    """The member reports the error, and does not return for the same."""
    assert welcomed(offers) == "failed"


def test_an_address_where_another_program_answers_is_not_reached() -> None:
    """It may be another host's address in another network."""
    with probed() as (room, member, asked):
        with asked:
            heard(asked)
            asked.sendall(wire.frame(wire.VERIFIED, wire.encode({"proof": "00" * wire.MAC_BYTES})))
        for _ in range(20):
            room.turn()
        assert room.leader.roster.entry(member.me.member).reached == {}
        assert room.leader.state == "gathering"


class Search:
    """Records what a member has its search for a leader do."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, *arguments))


HERE, BETTER = Endpoint("10.0.0.1", 20_001, "test"), Endpoint("10.0.0.7", 20_007, "test")


@pytest.mark.parametrize(
    ("state", "calls"),
    [
        ("failed", [("back_off", HERE, LINGER_S / 2)]),
        ("moved", [("back_off", HERE, CALL_AGAIN_S), ("dial", BETTER)]),
        ("lost", [("back_off", HERE, CALL_AGAIN_S), ("dial", BETTER)]),
    ],
)
def test_a_member_backs_off_from_its_former_leader_and_dials_the_better_one(state: str, calls: list[object]) -> None:
    """A leader that failed before this member began is an earlier run's: others get their turn first."""
    search: Any = Search()
    looks: list[int] = []
    some: Any = SimpleNamespace(is_before=lambda _ago_s: True)
    with Loop() as loop:
        follower = Follower(loop, some, SECRET, some, search, some, some, lambda: looks.append(1), bool)
        follower.membership = membership = some
        vars(membership).update(proven=SimpleNamespace(endpoint=HERE), moved_to=[BETTER[:2]], state=state)
        vars(membership).update(progress=None, is_free=True, failed_ago_s=60.0, failure="earlier")
        follower._changed()
    assert (search.calls, looks, follower.membership) == (calls, [1], None)
