"""Few datagrams, whatever N and however many interfaces; and nobody without the key changes who is found."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from gathering import ATTEMPT, OTHER, SECRET

from mingle_hooks.rendezvous import multicast as beacon
from mingle_hooks.rendezvous.backend import Advertisement, Context
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.multicast import (
    ANSWERS,
    BEACON,
    CAUSED,
    MEMBERS_OF_AN_ANSWER,
    MOST_DOUBTS,
    MOST_HOLDS,
    MOST_NONCES,
    NONCE_BYTES,
    OPEN_S,
    QUESTION,
    QUESTIONS,
    MulticastBackend,
)
from mingle_hooks.rendezvous.multicast import Beacon as Packet
from mingle_hooks.rendezvous.multicast import pack_beacon as pack

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.connection import Endpoint
    from mingle_hooks.rendezvous.wire import Secret

NOTICE = Advertisement(b"L" * 16, 0, ("10.0.0.1", "10.0.1.1"), (20_001,))
BETTER = Packet(BEACON, ATTEMPT.tag, b"B" * 16, 1, 20_002, ("10.0.0.2",))
REAL = Packet(BEACON, ATTEMPT.tag, b"R" * 16, 0, 20_003, ("10.0.0.3",))
# Leaders of earlier tries of the same world: all that they said is under its key.
EARLIER = [BETTER._replace(leader=os.urandom(16), ticket=0, addresses=(f"10.9.0.{host}",)) for host in range(1, 201)]


def asking() -> Packet:
    """Return a question of a member that is no candidate."""
    return Packet(QUESTION, ATTEMPT.tag, bytes(16), nonces=(os.urandom(NONCE_BYTES),))


class Link:
    """An interface that counts what is sent."""

    def __init__(self, sent: list[bytes]) -> None:
        self.sent, self.label, self.info = sent, "group on eth0", SimpleNamespace(machine_name="eth0", index=2)

    def send(self, data: bytes) -> None:
        """Count."""
        self.sent.append(data)

    def close(self) -> None:
        """Nothing is open."""


class Ear:
    """A backend over made-up links and a made-up clock."""

    def __init__(self, links: int, joined: Packet | None = None, nodes: int | None = None) -> None:
        self.now = 1000.0
        self.loop = Loop(lambda: self.now)
        self.sent: list[bytes] = []
        self.found: list[Endpoint] = []
        self.rejected: list[str] = []
        context = Context(self.loop, ATTEMPT, SECRET, self.found.append, self.rejected.append, self.rejected.append)
        precedence = None if joined is None else joined.precedence
        self.backend = MulticastBackend(context._replace(nodes=nodes, joined=lambda: precedence), [])
        many: Any = [Link(self.sent) for _ in range(links)]
        self.backend.links = many

    def hear(self, packet: Packet, secret: Secret = SECRET, source: str = "127.0.0.1") -> None:
        """Let a datagram arrive."""
        here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with here, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
            here.bind(("127.0.0.1", 0))
            there.bind((source, 0))
            there.sendto(pack(packet, secret), here.getsockname())
            self.backend.received(self.backend.links[0], here)

    def minute(self, each_s: float, happens: Any) -> None:
        """Let a minute pass, with something that happens every so many seconds."""
        self.wait(60.0, each_s, happens)

    def wait(self, seconds: float, each_s: float = 1.0, happens: Any = None) -> None:
        """Let some time pass."""
        end, following = self.now + seconds, self.now
        while self.now < end:
            due = self.loop._timers[0][0] if self.loop._timers else end
            self.now = max(self.now, min(due, following, end))
            if self.now >= following:
                following += each_s
                if happens is not None:
                    happens()
            self.loop._ring()

    def said(self, kind: int) -> list[Packet]:
        """Return what was sent of one kind, and forget it all."""
        packets = [beacon.unpack_beacon(data, ATTEMPT.tag, SECRET) for data in self.sent]
        self.sent.clear()
        return [packet for packet in packets if packet is not None and packet.kind == kind]

    def answered(self, packet: Packet) -> Packet:
        """Return the answer of this packet's leader to the last question, which there has to be."""
        return packet._replace(nonces=self.said(QUESTION)[-1].nonces)

    def close(self) -> None:
        """End it."""
        self.backend.close()
        self.loop.__exit__(None, None, None)


@pytest.mark.parametrize("links", [1, 2, 8])
def test_a_leader_sends_at_most_100_datagrams_a_minute_whoever_asks(links: int) -> None:
    """Beacons on all links and answers to a hundred questions a second."""
    with closing(Ear(links)) as ear:
        ear.backend.announce(NOTICE)
        ear.backend.search(wanted=False)
        ear.minute(0.1, lambda: ear.hear(asking()))
        assert 60 <= len(ear.sent) <= 100
        before = len(ear.sent)
        ear.minute(0.1, lambda: ear.hear(asking()))
        assert len(ear.sent) - before <= 100


def test_a_leader_that_nobody_asks_is_heard_every_second() -> None:
    """Often at first, and never more seldom: it may be the only beacon that gets through."""
    with closing(Ear(1)) as ear:
        ear.backend.announce(NOTICE)
        ear.wait(1.0)
        assert len(ear.said(BEACON)) >= 3
        ear.minute(1.0, None)
        assert 50 <= len(ear.said(BEACON)) <= 75


@pytest.mark.parametrize("links", [1, 2, 8])
def test_a_candidate_sends_at_most_100_datagrams_a_minute(links: int) -> None:
    """It asks, answers and announces itself, and may be interrupted any number of times."""
    with closing(Ear(links)) as ear:
        ear.backend.announce(NOTICE._replace(ticket=2**62))
        ear.backend.search(wanted=True)

        def again() -> None:
            ear.hear(asking())
            ear.hear(BETTER)
            ear.backend.announce(None)
            ear.backend.announce(NOTICE._replace(ticket=2**62))
            ear.backend.search(wanted=True)

        ear.minute(0.5, again)
        assert len(ear.sent) <= 100


@pytest.mark.parametrize("links", [1, 2, 8])
def test_a_waiting_member_sends_at_most_5_datagrams_a_minute(links: int) -> None:
    """Also one that loses its leader again and again."""
    with closing(Ear(links)) as ear:
        ear.backend.search(wanted=True)
        ear.minute(1.0, lambda: ear.backend.search(wanted=True))
        assert 1 <= len(ear.sent) <= 5


def test_an_answer_leads_only_to_addresses_that_its_leader_signed() -> None:
    """Anybody can send it again, from any address."""
    with closing(Ear(1)) as ear:
        ear.backend.search(wanted=True)
        answer = ear.answered(BETTER)
        for host in range(1, 100):
            ear.hear(answer, source=f"127.0.0.{host}")
        assert {(endpoint.address, endpoint.port) for endpoint in ear.found} == {("10.0.0.2", 20_002)}
        assert ear.rejected == []


def test_200_recorded_beacons_cost_few_questions_and_no_connection_and_the_real_leader_is_asked_at_once() -> None:
    """Seen: a connection to each, and 11 s until it was the real leader's turn."""
    with closing(Ear(1)) as ear:
        ear.backend.search(wanted=True)
        ear.wait(1.0)
        ear.said(QUESTION)
        for packet in EARLIER:
            ear.hear(packet)
        ear.wait(1.0)
        assert 1 <= len(ear.said(QUESTION)) <= 4
        ear.hear(REAL)
        ear.wait(0.02)
        answer = ear.answered(REAL)
        assert ear.found == []
        ear.hear(answer)
        assert [(endpoint.address, endpoint.port) for endpoint in ear.found] == [("10.0.0.3", 20_003)]


@pytest.mark.parametrize("count", [1, 200], ids=["of one leader", "of 200 leaders"])
def test_beacons_that_are_repeated_for_a_minute_never_keep_the_real_leader_from_being_asked(count: int) -> None:
    """A question is for all who hear it, whichever beacon caused it; and there are only so many."""
    turn = iter(range(10_000))
    with closing(Ear(2)) as ear:
        ear.backend.search(wanted=True)
        ear.minute(0.05, lambda: ear.hear(EARLIER[next(turn) % count]))
        burst, per_second = CAUSED
        assert len(ear.said(QUESTION)) <= burst + 60 * per_second + sum(QUESTIONS[:1]) + 2
        ear.hear(REAL)
        ear.wait(2.1, 0.05, lambda: ear.hear(EARLIER[next(turn) % count]))
        assert ear.found == []
        ear.hear(ear.answered(REAL))
        assert [endpoint.address for endpoint in ear.found] == ["10.0.0.3"]


def test_a_leader_whose_answer_is_lost_is_asked_again() -> None:
    """By its next beacons, less and less often."""
    with closing(Ear(1)) as ear:
        ear.backend.search(wanted=True)
        ear.wait(0.2)
        ear.said(QUESTION)
        ear.wait(3.0, 0.1, lambda: ear.hear(REAL))
        assert 5 <= len(ear.said(QUESTION)) <= CAUSED[0]
        ear.minute(1.0, lambda: ear.hear(REAL))
        assert len(ear.said(QUESTION)) <= 10


def test_a_leader_that_was_heard_once_is_asked_three_times_unless_it_answers() -> None:
    """Its next beacon may be lost as well."""
    for answers in (False, True):
        with closing(Ear(1)) as ear:
            ear.backend.search(wanted=True)
            ear.wait(0.2)
            ear.said(QUESTION)
            ear.hear(REAL)
            ear.wait(0.05)
            answer = ear.answered(REAL)
            if answers:
                ear.hear(answer)
            ear.wait(0.9)
            assert len(ear.said(QUESTION)) == (0 if answers else 2)


def test_beacons_over_all_links_have_one_question_on_the_link_of_the_first() -> None:
    """They come within milliseconds, and each leader is on all of them."""
    with closing(Ear(4)) as ear:
        ear.backend.search(wanted=True)
        ear.wait(0.2)
        ear.said(QUESTION)
        for _ in range(4):
            ear.hear(REAL)
        ear.wait(0.05)
        assert len(ear.said(QUESTION)) == 1


def test_a_recorded_answer_is_one_more_beacon() -> None:
    """To a question of another member, or one of ours that is no longer open."""
    with closing(Ear(1)) as ear:
        ear.backend.search(wanted=True)
        late = ear.answered(BETTER)
        ear.wait(OPEN_S)
        for packet in (late, BETTER._replace(nonces=asking().nonces), REAL._replace(nonces=asking().nonces)):
            ear.said(QUESTION)
            ear.hear(packet)
            ear.wait(1.0)
        assert ear.found == []


def test_several_leaders_may_answer_one_question() -> None:
    """Candidates do, and the best of them wins."""
    with closing(Ear(1)) as ear:
        ear.backend.search(wanted=True)
        (question,) = ear.said(QUESTION)
        ear.hear(BETTER._replace(nonces=question.nonces))
        ear.hear(REAL._replace(nonces=(*asking().nonces, *question.nonces)))
        assert [endpoint.address for endpoint in ear.found] == ["10.0.0.2", "10.0.0.3"]


def test_a_recorded_question_is_answered_by_two_beacons_and_many_do_not_keep_a_new_one_from_its_answer() -> None:
    """When the budget of answers is spent, the next beacon of that link is one."""
    with closing(Ear(1)) as ear:
        ear.backend.announce(NOTICE)
        recorded = [asking() for _ in range(2000)]
        ear.wait(10.0, 0.01, lambda: ear.hear(recorded[0]))
        answers = [packet.nonces for packet in ear.said(BEACON) if packet.nonces]
        assert answers == [recorded[0].nonces] * 2
        for packet in recorded * 2:
            ear.hear(packet)
            ear.loop._ring()
        new = asking()
        ear.hear(new)
        ear.wait(1.3, 0.02, lambda: ear.hear(recorded[1]))
        said = ear.said(BEACON)
        assert new.nonces[0] in [nonce for packet in said for nonce in packet.nonces]
        assert len(said) <= ANSWERS[0] + 3


def test_a_thousand_members_that_ask_at_once_are_all_answered_by_few_beacons() -> None:
    """Each beacon answers all who have asked since the last one."""
    with closing(Ear(1, nodes=1000)) as ear:
        ear.backend.announce(NOTICE)
        questions = [asking() for _ in range(1000)]
        left = iter(questions)
        ear.wait(0.05, 50e-6, lambda: ear.hear(next(left)) if left.__length_hint__() else None)
        ear.wait(0.05)
        said = ear.said(BEACON)
        assert {nonce for packet in said for nonce in packet.nonces} == {q.nonces[0] for q in questions}
        assert len(said) <= ANSWERS[0] + 1000 // MEMBERS_OF_AN_ANSWER + 1
        assert max(len(packet.nonces) for packet in said) <= MOST_NONCES


def test_a_member_that_has_a_leader_asks_only_about_one_that_would_matter() -> None:
    """Its own leader's beacons are no news, and neither are those of a worse candidate; a rival by right is."""
    with closing(Ear(1, joined=REAL)) as ear:
        ear.backend.search(wanted=False)
        ear.minute(1.0, lambda: [ear.hear(packet) for packet in (REAL, BETTER)])
        assert ear.sent == []
        rival = REAL._replace(leader=b"S" * 16, addresses=("10.0.0.4",))
        ear.hear(rival)
        ear.wait(0.1)
        ear.hear(ear.answered(rival))
        assert [endpoint.address for endpoint in ear.found] == ["10.0.0.4"]


def test_a_candidate_asks_a_better_one_and_answers_a_worse_one() -> None:
    """A candidate's question tells all that its beacon would, and may be as old."""
    with closing(Ear(1)) as ear:
        ear.backend.announce(NOTICE._replace(ticket=5))
        ear.hear(BETTER._replace(kind=QUESTION, nonces=asking().nonces))
        ear.wait(0.1)
        ear.hear(ear.answered(BETTER))
        assert [endpoint.address for endpoint in ear.found] == ["10.0.0.2"]
        worse = BETTER._replace(kind=QUESTION, ticket=6, nonces=asking().nonces)
        ear.hear(worse)
        ear.wait(0.1)
        assert [packet.nonces for packet in ear.said(BEACON)] == [worse.nonces]


def test_a_beacon_under_another_key_is_reported_and_looked_into_a_few_times_only() -> None:
    """So that a member with the wrong key is told so by the leader itself."""
    with closing(Ear(1)) as ear:
        for host in range(1, 100):
            ear.hear(BETTER, OTHER, source=f"127.0.0.{host}")
        assert len(ear.found) == MOST_DOUBTS
        assert ear.rejected[0] == "127.0.0.1"
        assert ear.sent == []


def test_a_better_beacon_that_is_repeated_cannot_silence_a_candidate_for_good() -> None:
    """It holds back only so often."""
    with closing(Ear(1)) as ear:
        ear.backend.announce(NOTICE._replace(ticket=2**62))
        ear.minute(0.05, lambda: ear.hear(BETTER))
        assert len(ear.sent) >= 60 - 2 * MOST_HOLDS


def test_a_leader_ignores_its_own_words() -> None:
    """Multicast comes back to its host: its beacons, and its questions too."""
    with closing(Ear(1)) as ear:
        ear.backend.announce(NOTICE._replace(ticket=5))
        ear.backend.search(wanted=True)
        (asked,) = ear.sent
        packet = beacon.unpack_beacon(asked, ATTEMPT.tag, SECRET)
        assert packet is not None
        assert packet.kind == QUESTION
        ear.hear(packet)
        ear.hear(packet._replace(kind=BEACON))
        assert (len(ear.sent), ear.found) == (1, [])
        ear.wait(0.1)
        assert [said.nonces for said in ear.said(BEACON) if said.nonces] == []


def test_an_empty_socket_is_nothing_heard() -> None:
    """Another reader may have been faster, or an error of an earlier send comes first."""
    with closing(Ear(1)) as ear, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as empty:
        empty.settimeout(0)
        ear.backend.received(ear.backend.links[0], empty)
        assert ear.found == []
