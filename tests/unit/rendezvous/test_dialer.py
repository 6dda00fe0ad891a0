"""Leads are dialled, and only a leader that proves itself, where it says it is, is handed over."""

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from support.gathering import ATTEMPT, SECRET, Room, relay, request

from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.connection import Endpoint
from mingle_hooks.rendezvous.dialer import CALL_S, CHECK_HOST, FAIR_S, MOST_CALLS, Dialer, ProvenLeader, Search

# Leads are dialled, and only a leader that proves itself, where it says it is, is handed over.


@contextmanager
def deaf(count: int) -> Iterator[list[socket.socket]]:
    """Give listeners that accept nothing."""
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]


def test_a_relay_is_detected_before_anything_depends_on_it() -> None:
    """A relay without the key could stop at the worst time."""
    with Room(2) as room, relay(room.port) as port:
        member = room.member(rank=1).come(port)
        room.until(lambda: member.relays)
        assert member.relays == [Endpoint("127.0.0.1", port, "test"), Endpoint("127.0.0.1", room.port, "test")]
        assert (member.state, member.mismatches) == ("", [])
        assert len(room.leader.roster) == 1


def test_many_endpoints_that_do_not_answer_do_not_block_one_that_does() -> None:
    """A beacon of yesterday, sent again and again, costs connections and nothing else."""
    with Room(2) as room, deaf(MOST_CALLS) as servers:
        member = room.member(rank=1)
        for server in servers:
            member.dialer.dial(Endpoint("127.0.0.1", server.getsockname()[1], "test"))
        member.come()
        assert len(member.dialer._calls) == MOST_CALLS
        assert ("127.0.0.1", room.port) not in member.dialer._calls
        room.skip(FAIR_S)
        member.come()
        assert len(member.dialer._calls) == MOST_CALLS
        room.until(lambda: member.state == "waiting")
        room.skip(CALL_S + 1)
        room.turn()
        assert member.state == "waiting"


def test_an_endpoint_is_dialled_once_at_a_time_and_less_often_without_an_answer() -> None:
    """So that others get their turn."""
    with Room(2) as room, deaf(1) as (server,):
        member, port = room.member(), server.getsockname()[1]
        for backend in "abb":
            member.dialer.dial(Endpoint("127.0.0.1", port, backend))
        assert len(member.dialer._calls) == 1
        assert [member.dialer.is_calling(backend) for backend in "abc"] == [True, True, False]
        room.skip(6.0)
        room.until(lambda: not member.dialer._calls)
        member.come(port)
        assert not member.dialer._calls
        room.skip(2.0)
        member.come(port)
        assert len(member.dialer._calls) == 1


def test_an_endpoint_that_cannot_be_dialled_is_ignored(pair: Room) -> None:
    """Its backend will name it again."""
    dialer = Dialer(pair.loop, ATTEMPT, SECRET, lambda _leader_proven: None, lambda *_who: None, lambda _a, _b: None)
    for address in ("240.0.0.1", "::ffff:0:0", "ff02::1", "0.0.0.1"):
        dialer.dial(Endpoint(address, 1, "test"))
    dialer.close()
    assert not dialer._calls


def test_what_was_in_vain_is_told_and_forgotten(pair: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lack of descriptors is known at the end; of a thousand endpoints that failed, the first may be dialled anew."""
    dialer = Dialer(pair.loop, ATTEMPT, SECRET, lambda _leader_proven: None, lambda *_who: None, lambda _a, _b: None)
    with deaf(1) as (server,):
        first = Endpoint("127.0.0.1", server.getsockname()[1], "test")
        dialer.back_off(first, 1000.0)
        for port in range(16 * MOST_CALLS):
            dialer.back_off(Endpoint("10.0.0.1", port, "test"))
            dialer.dial(first)
        assert not dialer._calls
        dialer.back_off(Endpoint("10.0.0.2", 1, "test"))
        monkeypatch.setattr("mingle_hooks.rendezvous.dialer.dial", short_of_descriptors)
        dialer.dial(first)
        assert pair.loop.shortage is not None
        monkeypatch.undo()
        dialer.dial(first)
        assert len(dialer._calls) == 1
        dialer.close()


def short_of_descriptors(*_to: object) -> socket.socket:
    """Fail as a dial does."""
    raise OSError(errno.EMFILE, "too many")


def said(kind: int, body: wire.Body) -> bytes:
    """Return a frame."""
    return wire.frame(kind, wire.encode(body))


def test_any_answer_of_a_stranger_only_ends_the_call() -> None:
    """Garbage, wrong frames, a challenge without proof, silence."""
    challenge = {"nonce": "00" * 16, "leader": "00" * 16, "ticket": 0, "host": "h", "proof": "00" * 32}
    refused = {"why": "key", "host": "r", "at": "127.0.0.1 1"}
    answers = [
        b"HTTP/1.0 400 Bad Request\r\n\r\n",
        wire.frame(wire.VERIFIED, b"{}"),
        wire.frame(wire.CHALLENGE, b"{}"),
        wire.frame(wire.CHALLENGE, b"[" * 1000),
        *(said(wire.CHALLENGE, {**challenge, **part}) for part in ({"ticket": -1}, {"host": "\x1b[2J"}, {})),
        wire.frame(wire.REFUSED, b"{}"),
        *(said(wire.REFUSED, {**refused, **part}) for part in ({"why": "$(id)"}, {"host": "\x1b[2J"}, {})),
        *(said(wire.REFUSED, {**refused, "why": "relay", "at": at}) for at in ("node1 80", "127.0.0.1 99999")),
        said(wire.REFUSED, {"why": "version", "host": "v", "more": 1}),  # of another version
        b"",
    ]
    with Room(2) as room, deaf(1) as (server,):
        member = room.member()
        for answer in answers:
            room.skip(10.0)
            member.come(server.getsockname()[1])
            accepted, _ = server.accept()
            with accepted:
                accepted.sendall(answer)
                if answer:
                    room.until(lambda: not member.dialer._calls)
            room.until(lambda: not member.dialer._calls)
        assert member.state == ""
        assert member.mismatches == [("127.0.0.1", *who) for who in (("h", "key"), ("r", "key"), ("v", "version"))]
        assert member.relays == []


# Where one member looks for a leader, and what it says where it has found none.


def search(room: Room, found: list[ProvenLeader], notes: list[str], **parts: Any) -> Search:
    """Return a member's search in a room."""
    return Search(room.loop, request(**parts), SECRET, notes.append, found.append, lambda: None, bytes(16))


def test_the_leader_behind_a_relay_is_dialled_directly() -> None:
    """The leader reports its own address; a note to the user names the relay."""
    found: list[ProvenLeader] = []
    notes: list[str] = []
    with Room(2) as room, relay(room.port) as port:
        looking = search(room, found, notes)
        looking.dial(Endpoint("127.0.0.1", port, "test"))
        room.until(lambda: found)
        assert [proven.endpoint.port for proven in found] == [room.port]
        assert len(notes) == 1
        assert "only relays" in notes[0]
        found[0].connection.close()
        looking.close()


def test_the_first_peer_with_another_key_is_reported_and_all_are_in_the_error(pair: Room) -> None:
    """Further ones are likely the same host's."""
    notes: list[str] = []
    looking = search(pair, [], notes)
    for address in ("10.0.0.8", "10.0.0.9"):
        looking._mismatch(address, "", "key")
    assert notes == ["refused 10.0.0.8, which uses this id with another key"]
    assert looking.no_leader(9).expected == "the same key as 10.0.0.8, 10.0.0.9 has for this id"
    looking.close()


ADDR = {"MASTER_ADDR": "10.0.0.1"}


@pytest.mark.parametrize(
    ("parts", "where", "left_over"),
    [
        ({"leader_hosts": ("node7",)}, " (node7)", ""),
        ({"pinned": ADDR}, " (10.0.0.1, from the exported MASTER_ADDR)", "MASTER_ADDR"),
        ({"rank": 1, "rank_source": "NODE_RANK"}, " (this is rank 1, from the exported NODE_RANK)", "NODE_RANK"),
        ({"rank": 1}, "", ""),
    ],
)
def test_a_missing_leader_is_named_with_what_may_have_led_astray(
    parts: dict[str, Any], where: str, left_over: str, pair: Room
) -> None:
    """By the scheduler's name; a variable left over is likelier than a firewall, which is named with it."""
    looking = search(pair, [], [], **parts)
    error = looking.no_leader(9)
    remedy = f"unset {left_over} if another job left it, or {CHECK_HOST}" if left_over else CHECK_HOST
    assert (error.expected, error.remedy) == (f"rank 0{where} within 9 s", remedy)
    looking.close()
