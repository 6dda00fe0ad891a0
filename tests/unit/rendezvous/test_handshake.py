"""The member proves the key first: a leader's replies, and what they never contain."""

import socket

import pytest
from support.gathering import ATTEMPT, KEY, OTHER, SECRET, Room, heard, hello, talk

from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.wire import PROTOCOL_VERSION, Attempt, Secret, run_material

COOKIES = ("36A8E3141C32183E0A696B100289B68F", "4D22081A015894294FF4862A4EA003F8")
FIRST, SECOND = (Secret.derive(KEY, ATTEMPT._replace(run=run_material(cookie))) for cookie in COOKIES)
# A later version may say anything else in HELLO.
TAG = ATTEMPT.tag.hex()
LATER = wire.frame(wire.HELLO, wire.encode({"tag": TAG, "version": PROTOCOL_VERSION + 1, "host": "node9", "more": 1}))
EARLIER = wire.frame(wire.HELLO, wire.encode({"tag": TAG, "nonce": "00" * 16}))


def answers(room: Room, data: bytes, port: int | None = None) -> list[tuple[int, wire.Body]]:
    """Return all frames that the leader sends in reply to this data."""
    with talk(port or room.port) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        room.until(lambda: room.leader.acceptor.connected)
        room.until(lambda: not room.leader.acceptor.connected)
        said = []
        while sock.recv(1, socket.MSG_PEEK):
            said.append(heard(sock))
        return said


def refusal(room: Room, why: str) -> list[tuple[int, wire.Body]]:
    """Return the refusal of this leader, in which all is public."""
    return [(wire.REFUSED, {"why": why, "host": room.me.host, "at": f"127.0.0.1 {room.port}"})]


@pytest.mark.parametrize("spoilt", ["proof", "nonce", "at", "all"])
def test_a_peer_without_a_proof_gets_nothing_that_depends_on_the_key(pair: Room, spoilt: str) -> None:
    """A guess can be tested against none of it: two leaders with different keys would say the same."""
    elsewhere, nothing = SECRET.mac(b"hello", b"n" * 16, b"127.0.0.1 1").hex(), "00" * 32
    wrong = {
        "proof": hello(pair.port, proof=nothing, door=nothing),
        "nonce": hello(pair.port, b"m" * 16, door=nothing, proof=elsewhere),
        "at": hello(pair.port, door=nothing, proof=elsewhere),
        "all": hello(pair.port, secret=OTHER),
    }[spoilt]
    assert answers(pair, wrong) == refusal(pair, "key")
    assert pair.leader.rejected.list() == ["127.0.0.1 (node9)"]


def test_a_greeting_without_a_proof_gets_no_challenge(pair: Room) -> None:
    """Regression: the leader proved the key to any peer that sent HELLO."""
    assert answers(pair, EARLIER) == refusal(pair, "version")
    body = {"tag": TAG, "version": PROTOCOL_VERSION, "nonce": "00" * 16}
    for kind in (wire.HELLO, wire.CHALLENGE, wire.CHECKIN, wire.FAILED, wire.RIVAL):
        assert answers(pair, wire.frame(kind, wire.encode(body))) == []
    assert answers(pair, wire.frame(wire.VERIFY, wire.encode({**body, "proof": "00" * 32}))) == []


def test_a_greeting_to_another_world_gets_no_answer(pair: Room) -> None:
    """Its members share nothing with this one, or the key; the port is all that they have in common."""
    assert answers(pair, hello(pair.port, tag=Attempt("another").tag.hex())) == []


def test_a_greeting_is_answered_once(pair: Room) -> None:
    """A peer that replays it proves nothing."""
    assert [kind for kind, _ in answers(pair, hello(pair.port))] == [wire.CHALLENGE]
    assert answers(pair, hello(pair.port)) == []
    assert [kind for kind, _ in answers(pair, hello(pair.port, b"m" * 16))] == [wire.CHALLENGE]


def test_a_greeting_is_of_use_only_where_the_member_dialled(pair: Room) -> None:
    """A stranger whom a member dials cannot have the leader answer it."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        member = pair.member(rank=1).come(port)
        accepted, _ = stranger.accept()
        with accepted:
            pair.until(lambda: accepted.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
            said = accepted.recv(4096)
        assert answers(pair, said) == refusal(pair, "relay")
        assert member.state == ""
        assert not any(seen.list() for seen in pair.leader.refused.values())


def test_a_probe_is_answered_once_and_only_where_the_member_dialled(pair: Room) -> None:
    """VERIFY proves the key, the leader and the place."""
    nonce, port = b"n" * 16, pair.listeners.master

    def verify(at: str, leader: bytes = pair.me.member) -> bytes:
        proof = SECRET.mac(b"verify", nonce, leader, at.encode())
        body = {"tag": TAG, "nonce": nonce.hex(), "proof": proof.hex()}
        return wire.frame(wire.VERIFY, wire.encode(body))

    assert answers(pair, verify(f"127.0.0.1 {port + 1}"), port) == []
    assert answers(pair, verify(f"127.0.0.1 {port}", b"l" * 16), port) == []
    assert [kind for kind, _ in answers(pair, verify(f"127.0.0.1 {port}"), port)] == [wire.VERIFIED]
    assert answers(pair, verify(f"127.0.0.1 {port}"), port) == []


def test_a_proof_alone_adds_no_member(pair: Room) -> None:
    """The leader learns of a member by its check-in, which is over the leader's own nonce too."""
    answers(pair, hello(pair.port))
    answers(pair, hello(pair.port, b"m" * 16) + wire.frame(wire.CHECKIN, bytes(40)))
    assert len(pair.leader.roster) == 1


@pytest.mark.parametrize(("leads", "comes"), [(FIRST, SECOND), (FIRST, SECRET), (SECRET, FIRST)])
def test_two_runs_of_one_job_never_meet_and_learn_the_reason(pair: Room, leads: Secret, comes: Secret) -> None:
    """They differ in PBS_JOBCOOKIE only; a shell without it cannot tell which run it belongs to."""
    pair.leader.secret = leads
    member = pair.member(comes, rank=1).come()
    pair.until(lambda: member.mismatches)
    assert member.mismatches == [("127.0.0.1", pair.me.host, "run")]
    assert pair.leader.refused["run"].list() == [f"127.0.0.1 ({member.me.host})"]
    assert (member.state, pair.leader.rejected.list()) == ("", [])


def test_members_of_the_same_run_meet(pair: Room) -> None:
    """As do those that all have no cookie, in every other test."""
    pair.leader.secret = FIRST
    pair.joined(FIRST, rank=1)


def test_a_stranger_with_the_cookie_is_another_key(pair: Room) -> None:
    """The cookie is salt: it reveals nothing of the key."""
    pair.leader.secret = FIRST
    for material in (COOKIES[0].encode(), run_material(COOKIES[0]), b""):
        attempt = ATTEMPT._replace(run=run_material(COOKIES[0]))
        member = pair.member(Secret.derive(type(KEY)(material), attempt), rank=1).come()
        pair.until(lambda member=member: member.mismatches)
        assert member.mismatches == [("127.0.0.1", pair.me.host, "key")]
    assert len(pair.leader.roster) == 1


def test_the_run_stands_in_no_name_and_is_not_shown() -> None:
    """Names are public, and PBS starts tasks for any process that knows the cookie."""
    attempt = Attempt("7.ctl", run=run_material(COOKIES[0]))
    names, bare = ((its.name, its.tag, its.group4, its.seed(b"x")) for its in (attempt, Attempt("7.ctl")))
    assert names == bare
    assert run_material(COOKIES[0]).hex() not in repr(attempt)
    assert run_material(None) == b""
    assert run_material(COOKIES[0]) != run_material(COOKIES[1])


@pytest.mark.parametrize("said", [EARLIER, LATER], ids=["earlier", "later"])
def test_another_version_is_refused_with_the_reason_and_recorded(pair: Room, said: bytes) -> None:
    """With any other content of its HELLO."""
    assert answers(pair, said) == refusal(pair, "version")
    assert pair.leader.refused["version"].list()
    pair.leader.give_up(9)
    assert pair.leader.failure.kind == "versions"
    assert "same version of mingle on every member" in str(pair.leader.failure.error())
