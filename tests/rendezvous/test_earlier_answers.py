"""What was said of an answer that has been taken back counts for nothing: READY, COMMIT and HOLD name theirs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from gathering import SECRET, Room, heard, hello, join_request, talk

from mingle_hooks.rendezvous import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def slow_member(room: Room, rank: int) -> Iterator[Callable[[int, wire.Body], None]]:
    """Let a member check in that has reached the leader and promises nothing; give what it says from then on."""
    with talk(room.port) as sock:
        sock.sendall(hello(room.port))
        room.until(lambda: any(its._sealer for its in room.leader.acceptor.strangers))
        _, challenge = heard(sock)
        talking = wire.Sealer(SECRET, b"n" * 16, bytes.fromhex(challenge["nonce"]), b"member", b"leader")

        def say(kind: int, body: wire.Body) -> None:
            sock.sendall(talking.seal(kind, wire.encode(body)))

        say(wire.CHECKIN, join_request(rank=rank).body())
        say(wire.REACHED, {"offer": 0, "own": "127.0.0.1"})
        yield say


def test_a_promise_for_an_earlier_answer_is_none_for_this_one() -> None:
    """It was under way while another member left and came back; the answer that it is for is void."""
    with Room(3) as room, slow_member(room, 2) as say:
        first = room.member(rank=1).come()
        room.until(lambda: first.state == "ready")
        earlier = first.answer["epoch"]
        first.leave()
        room.until(lambda: room.leader.state == "gathering")
        first.come()
        room.until(lambda: first.state == "ready" and room.leader._closing is not None)
        closing = room.leader._closing
        assert closing is not None
        room.until(lambda: len(closing.leases) == 1)
        say(wire.READY, {"epoch": earlier, "lease_ms": 30_000})
        for _ in range(20):
            room.turn()
        assert (room.leader.state, first.state) == ("closing", "ready")
        say(wire.READY, {"epoch": earlier + 1, "lease_ms": 30_000})
        room.until(lambda: first.state == "formed")


@pytest.mark.parametrize("kind", [wire.COMMIT, wire.HOLD], ids=["the word", "another lease"])
def test_a_word_about_an_earlier_answer_is_not_obeyed(kind: int) -> None:
    """A leader that says it is none: its member has no world, and promises nothing."""
    with Room(3) as room, slow_member(room, 2):
        first = room.member(rank=1).come()
        room.until(lambda: first.state == "ready")
        assert first.membership is not None
        ends = first.membership.lease_ends
        room.leader._sessions[first.me.member].tell(kind, {"epoch": first.answer["epoch"] + 1})
        room.until(lambda: first.state == "failed")
        assert first.membership.failure is not None
        assert (first.membership.failure.kind, first.membership.lease_ends) == ("protocol", ends)
