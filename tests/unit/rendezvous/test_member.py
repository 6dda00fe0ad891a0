"""What a member takes from the leader that it has checked in with."""

import json
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from support.gathering import ANSWER, ATTEMPT, SECRET, heard, join_request, probed

from mingle_hooks.errors import MingleError
from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.connection import Connection, Endpoint, Loop
from mingle_hooks.rendezvous.discovery import ProvenLeader
from mingle_hooks.rendezvous.member import CALL_AGAIN_S, Follower, Membership
from mingle_hooks.rendezvous.messages import LINGER_S, pack_roster, roster_digest
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


class Search:
    """Records what a member has its search for a leader do."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, *arguments))


EARLIER = "earlier"
HERE, BETTER = Endpoint("10.0.0.1", 20_001, "test"), Endpoint("10.0.0.7", 20_007, "test")


@pytest.mark.parametrize(
    ("state", "calls"),
    [
        ("failed", [("back_off", HERE, LINGER_S / 2), ("fail", EARLIER)]),
        ("moved", [("back_off", HERE, CALL_AGAIN_S), ("dial", BETTER), ("dial", HERE)]),
        ("lost", [("back_off", HERE, CALL_AGAIN_S), ("dial", BETTER), ("dial", HERE)]),
    ],
)
def test_a_member_backs_off_from_its_former_leader_and_dials_the_better_one(state: str, calls: list[object]) -> None:
    """A leader that failed before this member began is an earlier run's: others get their turn first."""
    search: Any = Search()
    looks: list[int] = []
    some: Any = SimpleNamespace(is_before=lambda _ago_s: True, answer=None, fail=lambda why: search.fail(why.seen))
    now = [0.0]
    with Loop(clock=lambda: now[0]) as loop:
        follower = Follower(loop, some, SECRET, some, search, some, lambda: looks.append(1), bool)
        follower.membership = membership = some
        vars(membership).update(proven=SimpleNamespace(endpoint=HERE), moved_to=[BETTER[:2]], state=state)
        vars(membership).update(progress=None, is_free=True, failed_ago_s=60.0)
        membership.failure = SimpleNamespace(error=lambda: MingleError("", EARLIER, ""))
        follower._changed()
        now[0] += LINGER_S
        loop.turn(0.0)
    assert (search.calls, looks, follower.membership) == (calls, [1], None)
