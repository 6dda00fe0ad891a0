"""Whole worlds of a leader and its members, over real sockets in one process."""

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import gathering
from support.gathering import ATTEMPT, SECRET, Clock, Member, Room, heard, hello, join_request, talk

from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.connection import PEER_LOST_S, Loop
from mingle_hooks.rendezvous.leader import NEEDS_ALL_S, STRANGER_S, Session
from mingle_hooks.rendezvous.member import PROBE_NEXT_S, Probe
from mingle_hooks.rendezvous.messages import LEASE_S, RENEW_S, Failure, Leases
from mingle_hooks.rendezvous.roster import SETTLE_S, AdvertisedAddress
from mingle_hooks.rendezvous.wire import PROTOCOL_VERSION, Attempt, Secret, run_material

# Whole worlds of a leader and its members, over real sockets in one process.


LOOPBACK, SECOND, THIRD = AdvertisedAddress("127.0.0.1"), AdvertisedAddress("127.0.0.2"), AdvertisedAddress("127.0.0.3")
# Nobody listens on this address of loopback's network, for the leader of these tests is at IPv4 and IPv6's any;
# it answers there, so an address that cannot be reached has to be one of no interface (RFC 5737).
NOWHERE = AdvertisedAddress("192.0.2.1")


def all_in(room: Room, state: str) -> bool:
    """Whether every member is in a state."""
    return all(member.state == state for member in room.members)


@contextlib.contextmanager
def greeted(room: Room) -> Iterator[Callable[[int, object], None]]:
    """Connect and prove the key; give a function that sends further frames."""
    with talk(room.port) as sock:
        sock.sendall(hello(room.port))
        room.until(lambda: any(stranger._sealer for stranger in room.leader.acceptor.strangers))
        _, challenge = heard(sock)
        sealer = wire.Sealer(SECRET, b"n" * 16, bytes.fromhex(challenge["nonce"]), b"member", b"leader")
        yield lambda kind, body: sock.sendall(sealer.seal(kind, json.dumps(body).encode()))


@pytest.mark.parametrize("count", [2, 3, 16, 64])
def test_a_world_forms_whole_whatever_the_order_of_arrival(count: int) -> None:
    """Each gets its rank, all get the same digest, and those that ask for it get the roster."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - to repeat a failure
    chance = random.Random(seed)
    wanting = {rank for rank in range(count) if chance.random() < 0.5}
    with Room(count, wants_roster=0 in wanting) as room:
        for rank in chance.sample(range(1, count), count - 1):
            room.member(rank=rank, host=f"node{rank}", slots=rank, wants_roster=rank in wanting).come()
        room.until(lambda: room.leader.all_done and all_in(room, "formed"))
        answers = {a["rank"]: a for a in (room.leader.answer, *(member.answer for member in room.members))}
        assert sorted(answers) == list(range(count))
        world = ("127.0.0.1", room.listeners.master, count, 1 + sum(range(count)), room.leader.answer["digest"])
        parts = ("addr", "port", "nodes", "size", "digest")
        assert {tuple(a[part] for part in parts) for a in answers.values()} == {world}
        assert all(answers[rank]["offset"] == 1 + sum(range(rank)) for rank in range(1, count))
        assert {rank for rank, a in answers.items() if "roster" in a} == wanting
        assert all([row[0] for row in answers[rank]["roster"]] == [*range(count)] for rank in wanting)
        assert room.leader.unconfirmed == []


def test_a_member_whose_connection_broke_replaces_itself(trio: Room) -> None:
    """It comes over a new connection while the old one is still open."""
    member = trio.joined(rank=1)
    again = Member(trio, member.me).come()
    trio.until(lambda: member.state == "lost")
    assert len(trio.leader.roster) == 2
    trio.members = [again, trio.member(rank=2).come()]
    trio.until(lambda: all_in(trio, "formed"))


def test_a_member_with_commit_reaches_no_leader_at_the_worlds_port(pair: Room) -> None:
    """Regression: a member's program was so fast that mingle's own listener accepted its connection, and reset it."""
    member = pair.member(rank=1).come()
    talk(pair.terms.port).close()
    pair.until(lambda: member.state == "formed")
    with pytest.raises(ConnectionRefusedError):
        talk(pair.terms.port)
    talk(pair.port).close()  # who lost COMMIT may still ask for it


@pytest.mark.parametrize(("parts", "kind"), [({"rank": 1}, "rank"), ({"rank": 3}, "beyond"), ({"nodes": 4}, "nodes")])
def test_a_contradiction_fails_all_members_alike_now_and_later(parts: dict[str, int], kind: str, trio: Room) -> None:
    """The members so far, the contradicting one and later ones get the same error."""
    trio.joined(rank=1)
    trio.member(**parts).come()
    trio.until(lambda: all_in(trio, "failed"))
    late = trio.member(rank=2).come()
    trio.until(lambda: late.state == "failed" and not trio.leader.acceptor.has_members)
    assert trio.leader.failure.kind == kind
    said = {str(m.membership.failure.error()) for m in trio.members if m.membership and m.membership.failure}
    assert said == {str(trio.leader.failure.error())}
    # A leader by right whose world has failed is no rival of the next try's.
    assert trio.leader.ticket == 1


def test_a_leader_that_listens_first_detects_a_surplus_member(pair: Room) -> None:
    """All N have checked in, and no world has formed yet: a further member is a contradiction for all."""
    pair.leader.choice.listen_for(30.0)
    member = pair.member().come()
    pair.until(lambda: pair.leader.roster.complete and pair.leader.roster.reached_by_all(0))
    assert pair.leader.state == "gathering"
    pair.member().come()
    pair.until(lambda: all_in(pair, "failed"))
    assert pair.leader.failure.kind == "full"
    assert member.state == "failed"


def test_a_failure_has_its_age(pair: Room) -> None:
    """By the age a member that began later knows that another run has failed."""
    pair.leader.fail(Failure("full", ("2", "node9")))
    pair.skip(7.0)
    late = pair.joined(rank=1, state="failed")
    assert 7.0 <= late.membership.failed_ago_s < 7.0 + gathering.PATIENCE_S


@pytest.mark.parametrize(("age_ms", "state"), [(5_000, "failed"), (60_000, "gathering"), (None, "failed")])
def test_a_leader_fails_with_others_but_not_with_an_earlier_run(age_ms: int | None, state: str, trio: Room) -> None:
    """A failure that is older than the leader itself is another run's; one without an age is new, and stays."""
    trio.skip(30.0)
    member = trio.joined(rank=1)
    age = {} if age_ms is None else {"age_ms": age_ms}
    member.membership._send(wire.FAILED, {"kind": "full", "parts": ["2", "node9"], **age})
    trio.until(lambda: trio.leader.state == state)
    trio.turn()
    trio.leader.resume()
    assert trio.leader.state == state


def test_giving_up_while_the_world_closes_names_the_unconfirmed_members_to_all() -> None:
    """The member that was stopped before its READY gets it too, when it continues."""
    with Room(4) as room:
        members = [room.joined(rank=rank, host=f"node{rank}") for rank in (3, 1)]
        members[0].membership._promise = lambda _epoch: None  # type: ignore[method-assign]
        members.append(room.member(rank=2, host="node2").come())
        room.until(lambda: room.leader._closing is not None and len(room.leader._closing.leases) == 2)
        room.leader.give_up(60)
        room.until(lambda: all(member.state == "failed" for member in members))
        texts = {str(m.membership.failure.error()) for m in members if m.membership and m.membership.failure}
        assert len(texts) == 1
        assert "3 of 4 confirmed, missing node3;" in texts.pop()


def test_a_connection_whose_other_end_is_gone_is_noticed_at_both_ends(pair: Room) -> None:
    """The kernel notices without a FIN or RST; the leader's does not drop unacknowledged data, such as COMMIT."""
    member = pair.member(rank=1).come()
    pair.until(lambda: member.membership is not None and pair.leader._sessions)
    (session,) = pair.leader._sessions.values()
    theirs, ours = member.membership.proven.connection._sock, session.connection._sock
    for sock in (theirs, ours):
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        probes = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        idle_s, each_s, count = (sock.getsockopt(socket.IPPROTO_TCP, name) for name in probes)
        assert idle_s + each_s * count == PEER_LOST_S < LEASE_S
    timeouts = [sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) for sock in (theirs, ours)]
    assert timeouts == [PEER_LOST_S * 1000, 0]


def reached(room: Room, member: Member) -> list[int]:
    """Return which of the leader's addresses a member has reached, in this order."""
    return list(room.leader.roster.entry(member.me.member).reached)


def wait_long(room: Room) -> None:
    """Let much more time pass than a member lets pass from one address to the next, and each see what that brings."""
    for _ in range(8):
        room.skip(PROBE_NEXT_S)
        room.turn()
        room.turn()


@pytest.mark.parametrize(
    ("best", "tried"),
    [(NOWHERE, [1]), (LOOPBACK._replace(loopback=True), [0, 1])],
    ids=["it does not answer", "it is loopback, and others may be elsewhere"],
)
def test_the_next_address_is_tried_where_the_best_is_none_for_all(best: AdvertisedAddress, tried: list[int]) -> None:
    """It is tried soon, and no address after it."""
    with Room(3, advertised=(best, SECOND, THIRD)) as room:
        room.clock.stop()
        early = room.member(rank=1).come()
        room.until(lambda: early.membership is not None and early.membership._probes)
        room.until(lambda: reached(room, early) == tried[:-1])
        room.skip(PROBE_NEXT_S)
        room.until(lambda: reached(room, early) == tried)
        wait_long(room)
        assert reached(room, early) == tried


def test_the_other_addresses_are_tried_once_all_are_in_and_one_does_not_reach_the_best() -> None:
    """Members that have held them back are informed in time, and the world forms on one of them no later than usual."""
    with Room(3, advertised=(LOOPBACK, SECOND, THIRD)) as room:
        room.clock.stop()
        early = room.member(rank=1).come()
        room.until(lambda: len(room.leader.roster) == 2 and reached(room, early) == [0])
        late = room.member(rank=2)
        late.out_of_reach = frozenset([0, 1])
        late.come()
        room.until(lambda: late.membership is not None and late.membership._probes)
        assert reached(room, early) == [0]
        room.skip(NEEDS_ALL_S + 0.01)
        room.until(lambda: reached(room, early) == [0, 1])
        wait_long(room)
        room.until(lambda: (reached(room, early), reached(room, late)) == ([0, 1, 2], [2]))
        assert room.leader.state == "gathering"
        room.skip(SETTLE_S)
        room.until(lambda: all_in(room, "formed"))
        assert early.answer["addr"] == THIRD.address


def test_an_address_that_does_not_answer_is_tried_less_and_less_often(clock: Clock) -> None:
    """If the leader is slow, as thousands have come at once, further attempts would keep it slow."""
    with Loop(clock) as loop, socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(0)
        proven = SimpleNamespace(leader=b"l" * 16)
        owner: Any = SimpleNamespace(loop=loop, attempt=ATTEMPT, secret=SECRET, proven=proven)
        probe = Probe(owner, 0, *silent.getsockname())
        probe.start()
        for pause_s in (2.0, 4.0, 8.0, 16.0, 16.0):
            silent.accept()[0].close()
            clock.ahead += pause_s - 0.1
            loop.turn(0.0)
            with pytest.raises(BlockingIOError):
                silent.accept()
            clock.ahead += 0.1
            loop.turn(0.0)
        probe.close()


GIVES_UP = """
import sys
from support.gathering import Room
with Room(2) as room:
    before = set(sys.modules)
    room.leader.give_up(1)
    print(room.leader.failure.kind, *set(sys.modules) - before)
"""


def test_a_leader_that_gives_up_loads_no_module() -> None:
    """It may be out of descriptors, and an import needs one. Regression: it ended with 71, and informed no member."""
    here = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", GIVES_UP], cwd=here, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("missing\n", "")


def test_an_exported_world_size_must_be_the_sum_of_slots(pair: Room) -> None:
    """WORLD_SIZE=5 with two members of one slot is refused for all."""
    pair.joined(rank=1, pinned={"WORLD_SIZE": "5"}, state="failed")
    assert pair.leader.failure.parts == ("5", "2")


def test_a_withdrawn_leader_sends_its_members_on_and_may_stand_again(trio: Room) -> None:
    """All members are MOVED to the better candidate."""
    member = trio.joined(rank=1)
    trio.leader.withdraw([["10.0.0.7", 20_007]])
    late = trio.member(rank=2).come()
    trio.until(lambda: (member.state, late.state) == ("moved", "moved"))
    assert member.membership.moved_to == [("10.0.0.7", 20_007)]
    trio.until(lambda: len(trio.leader.roster) == 1 and not trio.leader.acceptor.has_members)
    trio.leader.resume()
    for who in trio.members:
        who.leave()
        trio.skip(2.0)
        who.come()
    trio.until(lambda: all_in(trio, "formed"))


# Strangers.


def test_strangers_that_hold_connections_neither_stay_nor_block_members() -> None:
    """The oldest is dropped when there are too many, and each after a while."""
    with Room(2, most=10) as room:
        held = [talk(room.port) for _ in range(40)]
        try:
            room.until(lambda: len(room.leader.acceptor.connected) >= 10)
            room.joined(rank=1, state="formed")
            assert len(room.leader.acceptor.strangers) <= 10
        finally:
            for sock in held:
                sock.close()


def test_a_silent_stranger_is_dropped_after_a_while() -> None:
    """So is one that began well; a member that has checked in may wait in silence."""
    with Room(3) as room, talk(room.port) as silent, talk(room.port) as begun, talk(room.port) as slow:
        member = room.joined(rank=1)
        begun.sendall(hello(room.port))
        slow.sendall(hello(room.port)[:7])
        room.until(lambda: len(room.leader.acceptor.strangers) == 3)
        room.turn()  # what they have said is read
        room.skip(STRANGER_S + 1.0)
        room.until(lambda: not room.leader.acceptor.strangers)
        for sock in (silent, begun, slow):
            while sock.recv(4096):
                continue
        assert (member.state, len(room.leader.roster), room.leader.state) == ("waiting", 2, "gathering")
        assert room.leader.refused["key"].list() == []


@pytest.mark.parametrize(
    "frames",
    [
        [(wire.READY, {"epoch": 1, "lease_ms": 30_000})],
        [(wire.DONE, {})],
        [(wire.REACHED, {"offer": 0, "own": "127.0.0.1"})],
        [(wire.CHECKIN, {"host": "$(reboot)"})],
        [(wire.CHECKIN, "whole"), (wire.CHECKIN, "whole")],
        [(wire.CHECKIN, "whole"), (wire.READY, {"epoch": 0, "lease_ms": 1})],
        [(wire.CHECKIN, "whole"), (wire.READY, {"epoch": float("nan")})],
        [(wire.CHECKIN, "whole"), (wire.REACHED, {"offer": -1, "own": "127.0.0.1"})],
        [(wire.CHECKIN, "whole"), (wire.REACHED, {"offer": 0, "own": "`reboot`"})],
        [(wire.CHECKIN, "whole"), (wire.FAILED, {"kind": "task", "parts": ["$(reboot)\n"] * 4})],
        [(wire.CHECKIN, "whole"), (wire.FAILED, {"kind": "none", "parts": []})],
        [(wire.CHECKIN, "whole"), (wire.RIVAL, {"host": "\x1b[2J", "member": "ab" * 16})],
        [(wire.CHECKIN, "whole"), (99, {})],
        [(wire.CHECKIN, "leader")],
    ],
)
def test_a_member_that_sends_an_invalid_frame_is_out_and_the_world_forms(frames: list[Any], pair: Room) -> None:
    """Its frames may have any order and values."""
    whole = join_request(rank=1).body()
    with greeted(pair) as say:
        for kind, said in frames:
            own = {"member": pair.me.member.hex()} if said == "leader" else said if isinstance(said, dict) else {}
            say(kind, {**whole, **own} if kind == wire.CHECKIN else said)
        pair.until(lambda: not pair.leader.acceptor.connected)
    assert len(pair.leader.roster) == 1
    pair.joined(rank=1, state="formed")


def test_a_rival_is_believed_only_from_a_holder_of_the_key_and_only_about_another(trio: Room) -> None:
    """A member that has met this leader by two addresses may report it; two leaders by right fail both worlds."""
    member = trio.joined(rank=1)
    member.membership.report_rival("node0", trio.me.member)
    for _ in range(10):
        trio.turn()
    trio.leader.terms = trio.terms._replace(ticket=7)  # as if it was elected: it withdraws before a better one
    trio.leader.met_rival("node9")
    assert trio.leader.state == "gathering"
    trio.leader.terms = trio.terms
    member.membership.report_rival("x" * 1000, os.urandom(16))
    trio.until(lambda: trio.leader.state == "failed")
    assert trio.leader.failure.kind == "leaders"


def test_an_address_counts_as_reached_once_the_leader_has_closed() -> None:
    """A member that closed first would take the port's TIME_WAIT to its own host, and leave the port to others."""
    with gathering.probed() as (room, member, asked):
        with asked:
            _, body = heard(asked)
            proof = SECRET.mac(b"verified", bytes.fromhex(body["nonce"]))
            asked.sendall(wire.frame(wire.VERIFIED, wire.encode({"proof": proof.hex()})))
            (probe,) = member.membership._probes
            room.until(lambda: probe.own_address)
            for _ in range(10):
                room.turn()
            assert room.leader.state == "gathering"
        room.until(lambda: member.state == "formed")


def test_a_leader_out_of_descriptors_lets_callers_wait_until_there_is_room(pair: Room) -> None:
    """It neither turns in circles nor forgets them, and knows which limit it met."""
    member = pair.member().come()
    with gathering.no_descriptor_left(256):
        pair.until(lambda: pair.loop.shortage)
        watched = pair.loop.poller.watched
        assert [listener for listener in pair.listeners.sockets if listener.fileno() not in watched]
    pair.until(lambda: member.state == "formed")
    assert pair.loop.shortage == ("files", "all 256 file descriptors that `ulimit -n` allows are in use")


# A leader sends COMMIT only while every member still waits for it.


def test_a_lease_begins_when_it_is_requested(clock: Clock) -> None:
    """A late promise counts from the request, as the member may have sent it at once."""
    leases = Leases(clock)
    leases.promised(b"a", LEASE_S)  # it was not requested
    assert len(leases) == 0
    assert [leases.ask(b"a"), leases.ask(b"a")] == [True, False]  # an answer to the first would count for the second
    clock.ahead += 20.0
    for _ in range(2):
        leases.promised(b"a", LEASE_S)
        assert leases.left_s() == pytest.approx(LEASE_S - 20.0)
    assert leases.ending(LEASE_S - 20.1) == []
    assert [leases.ask(b"a"), leases.ask(b"b")] == [True, True]
    leases.promised(b"b", LEASE_S)
    assert (len(leases), leases.left_s()) == (2, pytest.approx(LEASE_S))  # until the last one ends
    assert leases.ending(LEASE_S - 19.0) == [b"a"]


def test_a_leader_does_not_commit_while_a_member_is_about_to_leave(pair: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member whose time is almost over gives up, and the world with it; its lease is not renewed."""
    asked: list[int] = []
    monkeypatch.setattr(gathering.InRoom, "_hold_or_commit", lambda _self, _kind, epoch: asked.append(epoch))
    member = pair.member()
    member.patience_s = 4.0  # two lost packets take longer
    member.come()
    pair.until(lambda: member.state == "ready")
    for _ in range(10):
        pair.turn()
    assert (pair.leader.state, asked) == ("closing", [])


def test_leases_are_renewed_while_others_are_awaited(trio: Room) -> None:
    """A member that waits for a slow one has not left when that one is ready."""
    quick, slow = trio.member(rank=1).come(), trio.member(rank=2).come()
    trio.until(lambda: slow.membership)
    membership = slow.membership
    held: list[int] = []
    membership._promise = held.append  # type: ignore[method-assign]
    trio.until(lambda: held and len(trio.leader._closing.leases) == 1)
    for _ in range(5):
        trio.skip(RENEW_S)
        trio.until(lambda: trio.leader.awaited_s > LEASE_S - RENEW_S)
    assert (quick.state, trio.leader.state) == ("ready", "closing")
    del membership._promise  # its own is seen again
    membership._promise(held[0])
    trio.until(lambda: quick.state == slow.state == "formed")


# A leader and others that lead as well, and who comes back to it or comes too late.


def test_a_surplus_member_is_awaited_like_any_other() -> None:
    """After a failure of another kind there are as many members to inform as the world has nodes."""
    for kind, parts, is_told in (("full", ("2", "node9"), False), ("size", ("8", "4"), True)):
        with Room(2) as room:
            room.leader.choice.listen_for(30.0)
            first = room.joined(rank=1)
            room.leader.fail(Failure(kind, parts))
            room.until(lambda first=first: first.state == "failed")
            assert room.leader.all_informed is is_told
            room.member().come()
            room.until(lambda room=room: room.leader.all_informed)


def test_a_connection_that_was_replaced_does_not_take_its_member_along(trio: Room) -> None:
    """The end of the one that a member has given up may be noticed after the member is back."""
    member = trio.joined(rank=1)
    earlier = trio.leader._sessions[member.me.member]
    member.leave()
    member.come()
    trio.until(lambda: trio.leader._sessions.get(member.me.member) not in (None, earlier))
    trio.leader.lost(earlier)
    assert len(trio.leader.roster) == 2


# What was said of an answer that has been taken back counts for nothing: READY, COMMIT and HOLD name theirs.


@contextlib.contextmanager
def slow_member(room: Room, rank: int) -> Iterator[Callable[[int, wire.Body], None]]:
    """Check a member in that has reached the leader and gives no lease; give a function that sends its frames."""
    with greeted(room) as say:
        say(wire.CHECKIN, join_request(rank=rank).body())
        say(wire.REACHED, {"offer": 0, "own": "127.0.0.1"})
        yield say


def test_a_promise_for_an_earlier_answer_is_none_for_this_one() -> None:
    """It was under way while another member left and returned; its answer is void."""
    with Room(3) as room, slow_member(room, 2) as say:
        first = room.joined(rank=1, state="ready")
        earlier = first.answer["epoch"]
        first.leave()
        room.until(lambda: room.leader.state == "gathering")
        first.come()
        room.until(lambda: first.state == "ready" and room.leader._closing is not None)
        closing = room.leader._closing
        room.until(lambda: len(closing.leases) == 1)
        say(wire.READY, {"epoch": earlier, "lease_ms": 30_000})
        for _ in range(20):
            room.turn()
        assert (room.leader.state, first.state) == ("closing", "ready")
        say(wire.READY, {"epoch": earlier + 1, "lease_ms": 30_000})
        room.until(lambda: first.state == "formed")


@pytest.mark.parametrize("kind", [wire.COMMIT, wire.HOLD], ids=["the word", "another lease"])
def test_a_commit_or_lease_of_an_earlier_answer_is_refused(kind: int) -> None:
    """Its sender is no valid leader: the member fails, and gives no lease."""
    with Room(3) as room, slow_member(room, 2):
        first = room.joined(rank=1, state="ready")
        ends = first.membership.lease_ends
        room.leader._sessions[first.me.member].send(kind, {"epoch": first.answer["epoch"] + 1})
        room.until(lambda: first.state == "failed")
        assert (first.membership.failure.kind, first.membership.lease_ends) == ("protocol", ends)


# The member proves the key first: a leader's replies, and what they never contain.


COOKIES = ("36A8E3141C32183E0A696B100289B68F", "4D22081A015894294FF4862A4EA003F8")
ONE_RUN, NEXT_RUN = (Secret.derive(gathering.KEY, ATTEMPT._replace(run=run_material(cookie))) for cookie in COOKIES)
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
        "all": hello(pair.port, secret=gathering.OTHER),
    }[spoilt]
    assert answers(pair, wrong) == refusal(pair, "key")
    assert pair.leader.refused["key"].list() == ["127.0.0.1 (node9)"]


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


@pytest.mark.parametrize(("leads", "comes"), [(ONE_RUN, NEXT_RUN), (ONE_RUN, SECRET), (SECRET, ONE_RUN)])
def test_two_runs_of_one_job_never_meet_and_learn_the_reason(pair: Room, leads: Secret, comes: Secret) -> None:
    """They differ in PBS_JOBCOOKIE only; a shell without it cannot tell which run it belongs to."""
    pair.leader.secret = leads
    member = pair.member(comes, rank=1).come()
    pair.until(lambda: member.mismatches)
    assert member.mismatches == [("127.0.0.1", pair.me.host, "run")]
    assert pair.leader.refused["run"].list() == [f"127.0.0.1 ({member.me.host})"]
    assert (member.state, pair.leader.refused["key"].list()) == ("", [])
    pair.joined(leads, rank=1)


def test_a_stranger_with_the_cookie_is_another_key(pair: Room) -> None:
    """The cookie is salt: it reveals nothing of the key."""
    pair.leader.secret = ONE_RUN
    for material in (COOKIES[0].encode(), run_material(COOKIES[0]), b""):
        attempt = ATTEMPT._replace(run=run_material(COOKIES[0]))
        member = pair.member(Secret.derive(type(gathering.KEY)(material), attempt), rank=1).come()
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
    """The rest of its HELLO may be anything."""
    assert answers(pair, said) == refusal(pair, "version")
    assert pair.leader.refused["version"].list()
    pair.leader.give_up(9)
    assert pair.leader.failure.kind == "versions"
    assert "same version of mingle on every member" in str(pair.leader.failure.error())


@pytest.mark.parametrize(
    "frame",
    [(wire.READY, {"epoch": 1, "lease_ms": 30_000}), (wire.DONE, {}), (wire.REACHED, {"offer": 200, "own": "::1"})],
)
def test_a_premature_frame_changes_nothing(frame: tuple[int, wire.Body], trio: Room) -> None:
    """READY and DONE before there is an answer, and an address that was never offered."""
    with greeted(trio) as say:
        say(wire.CHECKIN, join_request(rank=2).body())
        say(*frame)
        trio.until(lambda: len(trio.leader.roster) == 2)
        trio.joined(rank=1)
        assert trio.leader.state == "gathering"
    trio.until(lambda: len(trio.leader.roster) == 2)
    trio.member(rank=2).come()
    trio.until(lambda: all_in(trio, "formed") and trio.leader.all_done)


def test_members_that_reach_the_best_address_postpone_the_report_that_all_have_checked_in() -> None:
    """If it came, they would try the other addresses for nothing."""
    with Room(3, advertised=(LOOPBACK, SECOND)) as room:
        room.clock.stop()
        early, late = room.member(rank=1), room.member(rank=2)
        late.out_of_reach = frozenset([0, 1])
        for member in (early, late):
            member.come()
        room.until(lambda: room.leader.roster.complete and reached(room, early) == [0])
        room.until(lambda: late.membership is not None and late.membership._probes)
        for _ in range(8):
            room.skip(NEEDS_ALL_S / 2)
            room.leader.reached(late.me.member, 1, "127.0.0.1")
            room.turn()
        assert reached(room, early) == [0]


def test_no_other_address_is_tried_where_the_leader_is_there_and_only_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has thousands of connections, and each member that tried another address as well would keep it slow."""
    monkeypatch.setattr(Session, "_verify", lambda *_: None)
    with Room(3, advertised=(LOOPBACK, SECOND)) as room:
        room.clock.stop()
        early = room.member(rank=1).come()
        room.until(lambda: early.membership is not None and early.membership._probes)
        best, second = early.membership._probes
        room.until(lambda: best.connected)
        wait_long(room)
        assert not second.connected
        room.member(rank=2).come()
        room.until(lambda: room.leader.roster.complete)
        room.skip(NEEDS_ALL_S + 0.01)
        room.until(lambda: early.membership is not None and early.membership._needs_all)
        wait_long(room)
        room.until(lambda: second.connected)
