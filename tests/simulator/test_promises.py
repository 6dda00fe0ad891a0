"""A member keeps every lease, whatever other frames it receives, loses or has to send.

The member is a real one, in a simulated process; the leader is played, so that it can say each thing at the worst time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.gathering import request

from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.connection import Endpoint
from mingle_hooks.rendezvous.discovery import ProvenLeader
from mingle_hooks.rendezvous.member import GOODBYE_S
from mingle_hooks.rendezvous.messages import LEASE_S, LINGER_S, Failure
from mingle_hooks.rendezvous.wire import Attempt, Material
from simulator.network import Host, Network
from simulator.process import Process, Running, simulated
from simulator.timeline import Timeline

TIMEOUT_S = 60.0
WORLD = {"nodes": 2, "size": 2, "addr": "10.77.0.9", "port": 4000, "digest": "00" * 8, "rank": 1, "offset": 1}
SIBLING = Failure("task", ("node0", "2", "1", "ended"))


class Plain:
    """As a Session, of frames that are neither sealed nor encoded."""

    def seal(self, kind: int, payload: bytes) -> Any:
        return kind, wire.decode(payload)

    def open(self, _kind: int, payload: Any) -> Any:
        return payload


class Leader:
    """One that the test plays, at the other end of one connection."""

    def __init__(self, member: Member, name: str, ticket: int) -> None:
        self.member, self.closed, self.heard = member, False, []
        self.on_frame: Callable[[int, Any], None] = lambda _kind, _body: None
        self.on_end: Callable[[str], None] = lambda _reason: None
        self.proven = ProvenLeader(
            Endpoint("10.77.0.9", 4000, "hosts"), self, Plain(), name.encode() * 16, ticket, name
        )  # type: ignore[arg-type]

    def send(self, frame: Any) -> None:
        """Record a frame of the member."""
        self.heard.append(frame)

    def close(self) -> None:
        """Note that the member has hung up."""
        self.closed = True

    def says(self, kind: int, /, **body: Any) -> None:
        self.member.does(lambda: self.on_frame(kind, body))

    def answers(self, epoch: int = 1) -> None:
        self.says(wire.ANSWER, **WORLD, epoch=epoch, own="10.77.0.1")

    def breaks(self) -> None:
        """Lose the connection."""
        self.closed = True
        self.member.does(lambda: self.on_end("reset"))

    def leases(self) -> list[int]:
        """Return for how long the member has promised to wait, in milliseconds."""
        return [body["lease_ms"] for kind, body in self.heard if kind == wire.READY]


class Member:
    """A real member in a simulated process, that finds the leaders that it is given."""

    def __init__(self, rank: int | None) -> None:
        self.timeline, rng = Timeline(), random.Random(0)  # noqa: S311 - to be repeated
        network = Network(self.timeline, rng, lambda _source, _target, _data: None)
        host = network.add(Host("node0", ("10.77.0.1",)))
        network.add(Host("node9", ("10.77.0.9",)))
        key = Material(b"k" * 32)
        self.process = Process(network, host, "p0", request(
            attempt=Attempt("a"), key=key, host="node0", rank=rank, nodes=2, timeout_s=TIMEOUT_S, via=("multicast",)
        ))  # fmt: skip
        self.process.start()

    @property
    def rendezvous(self) -> Any:
        return self.process.rendezvous

    def does(self, act: Callable[[], None]) -> None:
        """Have something happen in its loop."""
        self.process._loop.after(0.0, act)
        self.process.wake()
        self.later(0.01)

    def later(self, seconds: float) -> None:
        """Let time pass."""
        until = self.timeline.now + seconds
        self.timeline.after(seconds, lambda: None)
        self.timeline.run(lambda: False, until)

    def finds(self, name: str, ticket: int = 0) -> Leader:
        """Have it find a leader."""
        leader = Leader(self, name, ticket)
        self.does(lambda: self.rendezvous._leader_proven(leader.proven))
        return leader

    def joins(self, name: str, ticket: int = 0) -> Leader:
        """Have it find a leader, and promise it to wait."""
        leader = self.finds(name, ticket)
        leader.answers()
        return leader

    def loses(self, name: str, ticket: int = 0) -> None:
        """Have its connection to a leader break, to which it has promised to wait."""
        self.joins(name, ticket).breaks()

    @property
    def is_there(self) -> bool:
        """Whether it still waits."""
        return self.process.ended is None


@pytest.fixture(params=[1])
def member(request: pytest.FixtureRequest) -> Iterator[Member]:
    """Return a member of this rank, None for a candidate."""
    with simulated(random.Random(0)):  # noqa: S311 - as above
        yield Member(request.param)
        Running.process.kill()


@pytest.mark.parametrize("waited_s", [0.0, LEASE_S + 1])
def test_a_member_without_commit_joins_no_other_leader_even_after_its_lease(member: Member, waited_s: float) -> None:
    """Its world may have formed without it, so another one would be a second. It may return to the same leader."""
    member.loses("b", ticket=9)
    member.later(waited_s)
    assert member.is_there
    better, again, later = member.finds("a", ticket=1), member.finds("b", ticket=9), member.finds("a", ticket=1)
    assert (better.closed, again.closed, later.closed) == (True, False, True)  # its check-in may be under way
    again.answers(epoch=2)
    assert len(again.leases()) == 1


def test_a_leader_that_welcomes_it_again_has_let_it_go(member: Member) -> None:
    """No COMMIT was sent, and none can follow from the earlier lease, so the member is free to join another leader."""
    member.loses("b", ticket=9)
    again = member.finds("b", ticket=9)
    again.says(wire.WELCOME, port=4000, offers=[])
    better = member.finds("a", ticket=1)
    assert (better.closed, again.closed) == (False, True)


def test_a_leader_that_is_found_twice_is_joined_once(member: Member) -> None:
    """It has failed between two HELLOs, and has a worse precedence by the first: it ends once all are informed."""
    failed = member.finds("b", ticket=1)
    again = member.finds("b", ticket=0)
    assert (failed.closed, again.closed) == (False, True)


def test_a_member_that_knows_the_reason_joins_no_other_leader(member: Member) -> None:
    """Also where another leader proves itself in the same turn."""
    first = member.finds("b", ticket=9)
    others: list[Leader] = []

    def told() -> None:
        first.on_frame(wire.FAILED, Failure("full", ("2", "node7")).body())
        others.append(Leader(member, "a", 1))
        member.rendezvous._leader_proven(others[0].proven)

    member.does(told)
    assert not member.is_there
    assert others[0].heard == []


def test_an_earlier_runs_reason_does_not_end_a_wait_that_was_promised_since(member: Member) -> None:
    """Its leader had failed before; another one was found since, and its connection broke."""
    earlier = member.finds("b")
    earlier.says(wire.FAILED, **Failure("full", ("2", "node7")).body(1000.0))
    member.later(LINGER_S - 1.0)
    member.loses("a")
    member.later(LEASE_S / 2)
    assert member.is_there


def test_a_member_that_was_suspended_past_its_deadline_still_gets_commit(member: Member) -> None:
    """TCP sends it again, some time after the host has woken."""
    leader = member.joins("a")
    member.process.sleep(TIMEOUT_S + LEASE_S + 5.0)
    member.later(TIMEOUT_S + LEASE_S + 5.0 + LINGER_S / 2)
    assert member.is_there
    leader.says(wire.COMMIT, epoch=1)
    assert member.process.answer is not None


def test_a_member_that_was_suspended_past_its_deadline_gives_up_soon_after(member: Member) -> None:
    """COMMIT was not sent."""
    member.joins("a")
    member.process.sleep(TIMEOUT_S + LEASE_S + 5.0)
    member.later(TIMEOUT_S + LEASE_S + 5.0 + LINGER_S + GOODBYE_S + 1.0)
    assert "rank 0, a (10.77.0.9), to commit the world within 107 s; saw no commit" in str(member.process.error)


def test_a_member_that_has_given_up_gives_no_lease(member: Member) -> None:
    """It stays to get the reason, and not for COMMIT."""
    leader = member.finds("a")
    member.later(TIMEOUT_S - member.timeline.now + GOODBYE_S / 2)
    assert leader.heard[-1][0] == wire.GAVE_UP
    leader.answers()
    assert leader.leases() == [0]


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_member_that_has_to_fail_keeps_its_lease(member: Member, *, is_lost: bool) -> None:
    """Its node lacks a task, but COMMIT may have been sent, and be under way."""
    leader = member.joins("a")
    if is_lost:
        leader.breaks()
    member.does(lambda: member.rendezvous._local_peer_failed(SIBLING))
    member.later(LEASE_S - 1.0)
    assert member.is_there
    member.later(2.0)
    assert "local rank 1" in str(member.process.error)


def test_a_member_that_has_to_fail_gives_no_further_lease(member: Member) -> None:
    """Its leader gathers anew, and must not count on it."""
    leader = member.joins("a")
    member.does(lambda: member.rendezvous._local_peer_failed(SIBLING))
    leader.answers(epoch=2)
    assert [lease > 0 for lease in leader.leases()] == [True, False]


@pytest.mark.parametrize("member", [0], indirect=True)
def test_a_leader_by_right_that_meets_another_fails_and_reports_it(member: Member) -> None:
    """Each finds the other or is informed by it: neither world forms."""
    other = member.finds("b", ticket=0)
    assert [kind for kind, _ in other.heard] == [wire.RIVAL]
    assert member.rendezvous._leader.failure == Failure("leaders", ("b (10.77.0.9)", "node0"))


@pytest.mark.parametrize("member", [None], indirect=True)
def test_a_candidate_joins_only_a_better_one(member: Member) -> None:
    """The worse one comes to it, or both would wait for each other."""
    worse = member.finds("z", ticket=2**63 - 1)
    assert (worse.closed, member.rendezvous._leader.state) == (True, "gathering")
    better = member.finds("a", ticket=1)
    assert (better.closed, member.rendezvous._leader.state) == (False, "withdrawn")


@pytest.mark.parametrize("member", [None], indirect=True)
def test_a_withdrawn_candidate_forwards_a_failure_and_waits(member: Member) -> None:
    """Another candidate has failed and informs this one, which has sent its members to a better one by then."""
    leader = member.joins("a", ticket=1)
    assert member.rendezvous._leader.state == "withdrawn"
    member.does(lambda: member.rendezvous._leader.receive_failure(Failure("full", ("2", "node7")), 0.0))
    member.later(LEASE_S / 2)
    assert member.is_there
    assert leader.heard[-1][0] == wire.FAILED
