"""What a member takes from the leader that it has checked in with."""

from __future__ import annotations

import socket

import pytest
from support.gathering import ATTEMPT, SECRET, heard, join_request, probed

from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.connection import Connection, Endpoint, Loop
from mingle_hooks.rendezvous.dialer import ProvenLeader
from mingle_hooks.rendezvous.member import Membership
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
def test_what_is_no_offer_is_refused(offers: object) -> None:
    """The member says what is wrong, and does not come again for the same."""
    assert welcomed(offers) == "failed"


def test_an_address_where_somebody_else_answers_is_not_reached() -> None:
    """It is in another network's address space, say, where the same address is another host's."""
    with probed() as (room, member, asked):
        with asked:
            heard(asked)
            asked.sendall(wire.frame(wire.VERIFIED, wire.encode({"proof": "00" * wire.MAC_BYTES})))
        for _ in range(20):
            room.turn()
        assert room.leader.roster.entry(member.me.member).reached == {}
        assert room.leader.state == "gathering"
