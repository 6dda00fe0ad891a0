"""What a member takes from the leader that it has checked in with."""

import json
import socket

import pytest
from support.gathering import ANSWER, ATTEMPT, SECRET, heard, join_request, probed

from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.connection import Connection, Endpoint, Loop
from mingle_hooks.rendezvous.discovery import ProvenLeader
from mingle_hooks.rendezvous.member import Membership
from mingle_hooks.rendezvous.messages import pack_roster, roster_digest
from mingle_hooks.rendezvous.wire import MOST_ADVERTISED

NONCES = b"n" * 16, b"m" * 16


def told(*frames: tuple[int, object]) -> Membership:
    """Return a member to which its leader has sent these frames; a body of bytes is sent as it is."""
    near, far = socket.socketpair()
    with Loop() as loop, near, far:
        connection = Connection(loop, near, lambda _kind, _payload: None, lambda _reason: None)
        sealer = wire.Sealer(SECRET, *NONCES, b"member", b"leader")
        proven = ProvenLeader(Endpoint("127.0.0.1", 1, "test"), connection, sealer, b"l" * 16, 0, "node0")
        me = join_request(rank=1)
        membership = Membership(loop, ATTEMPT, SECRET, proven, me, lambda _own: True, lambda: 60.0, lambda: None)
        leader = wire.Sealer(SECRET, *NONCES, b"leader", b"member")
        for kind, body in frames:
            payload = body if isinstance(body, bytes) else json.dumps(body).encode()
            far.sendall(wire.frame(kind, payload) if kind == wire.ROSTER else leader.seal(kind, payload))
        for _ in range(5):
            loop.turn(0.0)
        membership.close()
        return membership


def packed(rows: object) -> tuple[tuple[int, object], ...]:
    """Return the frames of an answer with a roster, and of COMMIT."""
    data = pack_roster(json.dumps(rows).encode())
    answer = {**ANSWER, "roster": roster_digest(data)}
    return (wire.ROSTER, data), (wire.ANSWER, answer), COMMIT


BARE = {name: value for name, value in ANSWER.items() if name != "roster"}
LOCAL = [[index, "127.0.0.1"] for index in range(MOST_ADVERTISED + 1)]
COMMIT = (wire.COMMIT, {"epoch": ANSWER["epoch"]})
ESCAPE, RUN = "\x1b]0;$(touch x)\x07", "$(touch x)"


def test_a_valid_leader_is_believed() -> None:
    """It may offer as many addresses as it can advertise."""
    assert told((wire.WELCOME, {"port": 1, "offers": LOCAL[:-1]})).state == "waiting"
    formed = told(*packed(ANSWER["roster"]))
    assert (formed.state, formed.answer) == ("formed", ANSWER)


OFFERS = [
    *(None, {"0": "127.0.0.1"}, ["127.0.0.1"], [[0]], [[0, "127.0.0.1", 1]], [["0", "127.0.0.1"]]),
    *([[True, "127.0.0.1"]], [[0, "node1"]], [[0, RUN]], [[0, "fe80::1%eth0"]], LOCAL),
]
PROGRESS = {"in": 1, "of": 2, "missing": "", "knocks": []}
LIES: list[tuple[tuple[int, object], ...]] = [
    *(((wire.WELCOME, {"port": 1, "offers": offers}),) for offers in OFFERS),
    *(((wire.ANSWER, {**BARE, "addr": addr}), COMMIT) for addr in (RUN, ESCAPE, None)),
    *(packed([ANSWER["roster"][0], [1, host, "10.0.0.2", 4]]) for host in (RUN, "-oProxy")),
    ((wire.MOVED, {"to": [["a" * 64, 23_000]]}),),
    ((wire.PROGRESS, {**PROGRESS, "missing": ESCAPE}),),
    ((wire.PROGRESS, {**PROGRESS, "knocks": [ESCAPE]}),),
    ((wire.FAILED, {"kind": "leaders", "parts": [ESCAPE, "b"]}),),
    ((wire.FAILED, {"kind": RUN, "parts": []}),),
    ((wire.FAILED, {"kind": "leaders", "parts": ["{0.__class__}", RUN]}),),
    ((99, {}),),
    (COMMIT,),
]


@pytest.mark.parametrize("frames", LIES)
def test_a_leader_that_holds_the_key_and_lies_is_one_clean_error(frames: tuple[tuple[int, object], ...]) -> None:
    """The member reports it in one printable line, and does not return for the same."""
    membership = told(*frames)
    assert (membership.state, membership.answer) == ("failed", None)
    assert str(membership.failure.error()).isprintable()


@pytest.mark.parametrize("body", [b"{'", b"[" * 9000, *({**ANSWER, "roster": digest} for digest in ("0" * 64, None))])
def test_what_may_come_from_a_broken_connection_only_ends_it(body: object) -> None:
    """The member tries again until its deadline."""
    assert told((wire.ANSWER, body)).state == "lost"


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
