"""Beacons and questions: few datagrams whatever N, and nobody without the key changes who is found."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from support.gathering import ATTEMPT, OTHER, SECRET, Clock, context, join_request

from mingle_hooks.net.addresses import ListedAddress, list_addresses, preference
from mingle_hooks.rendezvous import multicast
from mingle_hooks.rendezvous.connection import Endpoint, Loop
from mingle_hooks.rendezvous.discovery import Advertisement
from mingle_hooks.rendezvous.multicast import BEACON, QUESTION, Beacon, Questions, Replies, pack_beacon, unpack_beacon
from mingle_hooks.rendezvous.roster import Entry
from mingle_hooks.rendezvous.wire import Attempt, Secret

# Datagrams are read strictly, for anybody can send them.


WHOLE = Beacon(BEACON, ATTEMPT.tag, b"L" * 16, 2**63, 20_000, ("10.0.0.1", "fd00::1", "255.255.255.255"))


ASKING = Beacon(QUESTION, ATTEMPT.tag, bytes(16), nonces=(b"12345678",))


@pytest.mark.parametrize("packet", [WHOLE, ASKING, WHOLE._replace(nonces=(b"12345678", b"23456789"))])
def test_a_packet_is_read_as_it_was_packed_by_members_of_its_world_only(packet: Beacon) -> None:
    """Worlds may share a group and a port. What another key has sealed is read, so that the mismatch is reported."""
    data = pack_beacon(packet, SECRET)
    assert unpack_beacon(data, ATTEMPT.tag, SECRET) == packet
    assert unpack_beacon(data, Attempt("another").tag, SECRET) is None
    assert unpack_beacon(data, ATTEMPT.tag, OTHER) == packet._replace(genuine=False)


def test_no_packet_is_larger_than_the_receive_buffer() -> None:
    """Only so many addresses and nonces are sent, which fit into the smallest MTU of IPv6 with its headers."""
    data = pack_beacon(WHOLE._replace(addresses=("fd00::1",) * 20, nonces=(b"12345678",) * 200), SECRET)
    assert len(data) == multicast.MOST_BYTES <= 1280 - 40 - 8
    most = ("fd00::1",) * multicast.MOST_ADDRESSES, (b"12345678",) * multicast.MOST_NONCES
    assert unpack_beacon(data, ATTEMPT.tag, SECRET) == WHOLE._replace(addresses=most[0], nonces=most[1])


def test_a_beacon_without_nonces_is_the_same_in_every_version() -> None:
    """Members of another version read its port, dial, and learn that the versions differ."""
    data = pack_beacon(Beacon(BEACON, b"the tag!", b"L" * 16, 7, 20_000, ("10.0.0.1",)), SECRET)
    head = b"MNGL\x01\x01the tag!" + b"L" * 16 + bytes(7) + b"\x07\x4e\x20\x01"
    assert data[:-16] == head + bytes(10) + b"\xff\xff\x0a\x00\x00\x01"
    foreign = unpack_beacon(data[:-16] + bytes(16), b"the tag!", OTHER)
    assert (foreign.kind, foreign.port, foreign.genuine) == (BEACON, 20_000, False)


def test_half_a_nonce_is_none() -> None:
    """No member sends one, so it is refused even if the key fits."""
    whole = pack_beacon(ASKING, SECRET)[: -multicast.MAC_BYTES]
    for more, is_whole in ((b"", True), (b"x", False), (b"x" * 8, True)):
        data = whole + more + SECRET.mac(b"beacon", whole + more)[: multicast.MAC_BYTES]
        assert (unpack_beacon(data, ATTEMPT.tag, SECRET) is not None) is is_whole


def test_no_changed_bit_and_no_missing_byte_stays_genuine() -> None:
    """The proof covers every byte."""
    data = pack_beacon(WHOLE._replace(nonces=(b"12345678",)), SECRET)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << random.Random(at).randrange(8)
        for hostile in (bytes(changed), data[:at], data + data[:at] if at else data[:1]):
            found = unpack_beacon(hostile, ATTEMPT.tag, SECRET)
            assert found is None or not found.genuine


# A budget bounds any span of time.


def test_a_budget_saves_no_more_than_its_burst() -> None:
    """After an hour of silence there is one burst."""
    now = 0.0
    budget = multicast.Budget(3, 1.0, lambda: now)
    now = 3600.0
    assert [budget.spend() for _ in range(5)] == [True, True, True, False, False]
    now += 1.0
    assert [budget.spend() for _ in range(2)] == [True, False]


# Nonces are open for a while, and a beacon makes a member ask only so often.


def answer(*nonces: bytes) -> Beacon:
    """Return a beacon that answers these questions."""
    return Beacon(BEACON, ATTEMPT.tag, b"L" * 16, nonces=nonces)


def test_only_an_open_nonce_of_ours_is_answered(clock: Clock) -> None:
    """A nonce is open for a few seconds, for any number of leaders; of too many open ones the oldest goes."""
    its = Questions(clock)
    first = its.ask()
    asked = ((b"another!", first), True), ((first,), True), ((b"another!",), False), ((), False)
    assert [its.is_answered(answer(*nonces)) for nonces, _ in asked] == [is_ours for _, is_ours in asked]
    clock.ahead = 10.0
    assert not its.is_answered(answer(first))
    many = [its.ask() for _ in range(multicast.MOST_OPEN + 1)]
    assert [its.is_answered(answer(nonce)) for nonce in many] == [False] + [True] * multicast.MOST_OPEN


def test_a_leader_that_does_not_answer_is_questioned_less_and_less_often(clock: Clock) -> None:
    """It may be one that is long gone; another one is questioned soon, so that many have one question."""
    its = Questions(clock)
    assert its.wait_s(answer()) == 0.0
    for again_s in (*multicast.AGAIN_S, multicast.AGAIN_S[-1]):
        its.ask()
        clock.ahead += again_s - 0.01
        assert its.wait_s(answer()) is None
        clock.ahead += 0.02
        assert its.wait_s(answer()) == 0.0
    its.ask()
    assert its.wait_s(BETTER) == pytest.approx(multicast.GAP_S)


def test_a_lost_leader_is_questioned_at_once(clock: Clock) -> None:
    """It had answered; one that never did is still no news."""
    its = Questions(clock)
    assert its.is_answered(answer(its.ask()))
    clock.ahead += multicast.GAP_S
    assert its.wait_s(answer()) is None
    its.begin()
    assert its.wait_s(answer()) == 0.0
    its.ask()
    its.begin()
    assert its.wait_s(answer()) is None


# Each question is answered by two beacons, many by one, and what is remembered has a bound.


def nonces(count: int) -> list[bytes]:
    """Return so many nonces."""
    return [number.to_bytes(8, "big") for number in range(count)]


def test_a_question_is_taken_twice_on_the_link_where_it_came_first() -> None:
    """It may be sent again any number of times, over any number of links."""
    its = Replies()
    assert [its.add("eth0", b"a"), its.add("ib0", b"a")] == [True, False]
    assert (its.links(), its.take("ib0")) == (["eth0"], ())
    assert [its.take("eth0") for _ in range(3)] == [(b"a",), (b"a",), ()]
    assert (its.add("eth0", b"a"), its.links()) == (False, [])


def test_only_so_much_is_remembered() -> None:
    """The oldest questions are forgotten."""
    its, asked = Replies(), nonces(multicast.MOST_REMEMBERED + 1)
    for nonce in asked:
        its.add("eth0", nonce)
    waiting: dict[bytes, None] = {}
    while taken := its.take("eth0"):
        waiting |= dict.fromkeys(taken)
    assert list(waiting) == asked[: -multicast.MOST_WAITING - 1 : -1]
    assert [its.add("eth0", nonce) for nonce in (asked[0], asked[-1])] == [True, False]


# Which interfaces carry beacons, of those that are listed.


LO = [ListedAddress("lo", 1, "127.0.0.1", 8), ListedAddress("lo", 1, "::1", 128)]
ETH = [ListedAddress("eth0", 2, *its) for its in (("10.0.0.1", 24), ("10.0.9.1", 24), ("fe80::1", 64))]
IB = [ListedAddress("ib0", 3, "fd00::1", 64)]
DOCKER = [ListedAddress("docker0", 4, "172.17.0.1", 16)]


MANY = [ListedAddress(f"eth{number}", number, f"10.0.{number}.1", 24) for number in range(2, 30)]


def test_an_interface_has_all_of_its_addresses_under_one_name() -> None:
    """The addresses are in the order of the list, the interfaces by index."""
    eth, ib = multicast._infos([*IB, *ETH])
    assert (eth.machine_name, eth.index, [str(a) for a in eth.ip4_addrs]) == ("eth0", 2, ["10.0.0.1/24", "10.0.9.1/24"])
    assert ([str(a) for a in eth.ip6_addrs], [str(a) for a in ib.ip6_addrs]) == (["fe80::1/64"], ["fd00::1/64"])


@pytest.mark.parametrize(
    ("listed", "nets", "expected"),
    [
        ([*LO, *ETH, *IB, *DOCKER], (), ["eth0", "ib0"]),
        ([*LO, *ETH, *IB, *DOCKER], ("ib0",), ["ib0"]),
        ([*LO, *ETH, *IB, *DOCKER], ("10.0.9.0/24",), ["eth0"]),
        ([*LO, *ETH, *IB, *DOCKER], ("docker0",), ["docker0"]),
        ([*LO[:1], *ETH], (), ["eth0"]),
        ([*LO[:1], *DOCKER], (), ["lo"]),
        ([*LO, *ETH], ("nosuch0",), []),
        ([], (), []),
        (MANY, (), ["eth2", "eth3", "eth4", "eth5"]),  # the kernel joins a socket to 20 groups at most
    ],
)
def test_requested_interfaces_come_before_physical_ones_and_those_before_loopback(
    listed: list[ListedAddress], nets: tuple[str, ...], expected: list[str]
) -> None:
    """Virtual ones count only if they are named, and loopback only if there is no other, even without IPv6."""
    found = multicast.choose_carriers(multicast._infos(listed), [*map(preference, nets)])
    assert [info.machine_name for info in found] == expected
    assert ListedAddress("lo", 1, "127.0.0.1", 8) in list_addresses()


# multicast_expert is loaded without asyncio, which takes as long as all else of it.


USES = """
import sys
from mingle_hooks.rendezvous.multicast import carriers
carriers([])
print("asyncio" in sys.modules)
import multicast_expert
print(hasattr(multicast_expert, "AsyncMcastRxSocket"), "asyncio" in sys.modules)
print(hasattr(multicast_expert, "McastRxSocket"), hasattr(multicast_expert, "nosuch"))
"""


def test_asyncio_is_loaded_only_on_first_use_of_its_socket() -> None:
    """A program may use `mingle_hooks` and then multicast_expert, which has no such socket before Python 3.11."""
    done = subprocess.run([sys.executable, "-c", USES], capture_output=True, text=True, check=True)
    has = sys.version_info >= (3, 11)
    assert done.stdout.splitlines() == ["False", f"{has} {has}", "True False"]


# Few datagrams, whatever N and however many interfaces; and nobody without the key changes who is found.


NOTICE = Advertisement(b"L" * 16, 0, ("10.0.0.1", "10.0.1.1"), (20_001,))
BETTER = Beacon(BEACON, ATTEMPT.tag, b"B" * 16, 1, 20_002, ("10.0.0.2",))
REAL = Beacon(BEACON, ATTEMPT.tag, b"R" * 16, 0, 20_003, ("10.0.0.3",))
# Leaders of earlier tries of the same world: all that they said is under its key.
EARLIER = [BETTER._replace(leader=os.urandom(16), ticket=0, addresses=(f"10.9.0.{host}",)) for host in range(1, 201)]


def asking() -> Beacon:
    """Return a question of a member that is no candidate."""
    return Beacon(QUESTION, ATTEMPT.tag, bytes(16), nonces=(os.urandom(multicast.NONCE_BYTES),))


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

    def __init__(self, links: int, joined: Beacon | None = None, nodes: int | None = None) -> None:
        self.now = 1000.0
        self.loop = Loop(lambda: self.now)
        self.sent: list[bytes] = []
        self.found: list[Endpoint] = []
        self.rejected: list[str] = []
        precedence = None if joined is None else joined.precedence
        its = context(self.loop, self.found.append, self.rejected.append, joined=lambda: precedence, nodes=nodes)
        self.backend = multicast.MulticastBackend(its, [])
        many: Any = [Link(self.sent) for _ in range(links)]
        self.backend.links = many

    def hear(self, packet: Beacon, secret: Secret = SECRET, source: str = "127.0.0.1") -> None:
        """Let a datagram arrive."""
        sock: Any = SimpleNamespace(recvfrom=lambda _most: (pack_beacon(packet, secret), (source, 9)))
        self.backend.received(self.backend.links[0], sock)

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

    def said(self, kind: int) -> list[Beacon]:
        """Return what was sent of one kind, and forget it all."""
        packets = [multicast.unpack_beacon(data, ATTEMPT.tag, SECRET) for data in self.sent]
        self.sent.clear()
        return [packet for packet in packets if packet is not None and packet.kind == kind]

    def answered(self, packet: Beacon) -> Beacon:
        """Return the answer of this packet's leader to the last question, which there has to be."""
        return packet._replace(nonces=self.said(QUESTION)[-1].nonces)

    def close(self) -> None:
        """End it."""
        self.backend.close()
        self.loop.__exit__(None, None, None)


@pytest.fixture
def ear() -> Iterator[Ear]:
    """Give a backend with one link."""
    with closing(Ear(1)) as found:
        yield found


LINKS = pytest.mark.parametrize("links", [1, 2, 8])


@LINKS
@pytest.mark.parametrize(("asks_hz", "least"), [(10, 59), (0, 50)], ids=["with questions", "without"])
def test_a_leader_sends_at_most_100_datagrams_a_minute(links: int, asks_hz: int, least: int) -> None:
    """It sends beacons, often at first, then every second, as each may be the only one to arrive, and answers."""
    with closing(Ear(links)) as ear:
        ear.backend.announce(NOTICE)
        ear.backend.search(wanted=False)
        ear.wait(1.0)
        assert len(ear.said(BEACON)) >= 3
        for _ in range(2):
            ear.wait(60.0, 0.1, lambda: ear.hear(asking()) if asks_hz else None)
            assert least <= len(ear.said(BEACON)) <= 100  # the last may be due just after the minute


@LINKS
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

        ear.wait(60.0, 0.5, again)
        assert len(ear.sent) <= 100


@LINKS
def test_a_waiting_member_sends_at_most_5_datagrams_a_minute(links: int) -> None:
    """It may lose its leader again and again."""
    with closing(Ear(links)) as ear:
        ear.backend.search(wanted=True)
        ear.wait(60.0, 1.0, lambda: ear.backend.search(wanted=True))
        assert 1 <= len(ear.sent) <= 5


@pytest.mark.parametrize("count", [1, 200], ids=["of one leader", "of 200 leaders"])
def test_beacons_that_are_replayed_for_a_minute_never_delay_the_question_to_the_real_leader(count: int) -> None:
    """A question is for all leaders that receive it, whichever beacon caused it; and their number is bounded."""
    turn = iter(range(10_000))
    with closing(Ear(2)) as ear:
        ear.backend.search(wanted=True)
        ear.wait(60.0, 0.05, lambda: ear.hear(EARLIER[next(turn) % count]))
        burst, per_second = multicast.CAUSED
        assert len(ear.said(QUESTION)) <= burst + 60 * per_second + sum(multicast.QUESTIONS[:1]) + 2
        ear.hear(REAL)
        ear.wait(2.1, 0.05, lambda: ear.hear(EARLIER[next(turn) % count]))
        assert ear.found == []
        ear.hear(ear.answered(REAL))
        assert [endpoint.address for endpoint in ear.found] == ["10.0.0.3"]


def test_many_leaders_cause_few_questions_and_bounded_memory(clock: Clock) -> None:
    """An attacker may send the beacons of a thousand."""
    its = Questions(clock)
    asked = 0
    for number in range(10 * multicast.MOST_HEARD):
        if its.wait_s(BETTER._replace(leader=number.to_bytes(16, "big"))) is not None and its.caused.spend():
            its.ask()
            asked += 1
    assert asked == multicast.CAUSED[0]
    assert len(its._heard) <= multicast.MOST_HEARD


@pytest.mark.parametrize("links", [1, 4])
@pytest.mark.parametrize("answers", [False, True])
def test_one_beacon_causes_three_questions_unless_the_leader_answers(links: int, *, answers: bool) -> None:
    """Its next beacon may be lost as well; over all links it comes within milliseconds, and counts once."""
    with closing(Ear(links)) as ear:
        ear.backend.search(wanted=True)
        ear.wait(0.2)
        ear.said(QUESTION)
        for _ in range(links):
            ear.hear(REAL)
        ear.wait(0.05)
        (question,) = ear.said(QUESTION)
        if answers:
            ear.hear(REAL._replace(nonces=question.nonces))
        ear.wait(0.9)
        assert len(ear.said(QUESTION)) == (0 if answers else 2)


def test_a_replayed_question_is_answered_by_two_beacons_and_many_do_not_delay_a_new_one(ear: Ear) -> None:
    """When the budget of answers is spent, the next beacon of that link is one."""
    ear.backend.announce(NOTICE)
    recorded = [asking() for _ in range(1500)]
    ear.wait(10.0, 0.1, lambda: ear.hear(recorded[0]))
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
    assert len(said) <= multicast.ANSWERS[0] + 3


def test_a_thousand_members_that_ask_at_once_are_all_answered_by_few_beacons() -> None:
    """Each beacon answers all questions since the last one."""
    with closing(Ear(1, nodes=1000)) as ear:
        ear.backend.announce(NOTICE)
        questions = [asking() for _ in range(1000)]
        left = iter(questions)
        ear.wait(0.05, 50e-6, lambda: ear.hear(next(left)) if left.__length_hint__() else None)
        ear.wait(0.05)
        said = ear.said(BEACON)
        assert {nonce for packet in said for nonce in packet.nonces} == {q.nonces[0] for q in questions}
        assert len(said) <= multicast.ANSWERS[0] + 1000 // multicast.MEMBERS_OF_AN_ANSWER + 1
        assert max(len(packet.nonces) for packet in said) <= multicast.MOST_NONCES


def test_a_member_with_a_leader_questions_only_better_ones_and_rivals() -> None:
    """Its own leader's beacons are no news, and neither are those of a worse candidate; a rival by right is."""
    with closing(Ear(1, joined=REAL)) as ear:
        ear.backend.search(wanted=False)
        ear.wait(60.0, 1.0, lambda: [ear.hear(packet) for packet in (REAL, BETTER)])
        assert ear.sent == []
        rival = REAL._replace(leader=b"S" * 16, addresses=("10.0.0.4",))
        ear.hear(rival)
        ear.wait(0.1)
        ear.hear(ear.answered(rival))
        assert [endpoint.address for endpoint in ear.found] == ["10.0.0.4"]


def test_a_candidate_questions_a_better_one_and_answers_a_worse_one(ear: Ear) -> None:
    """A candidate's question has all the content of its beacon, and may be replayed as well."""
    ear.backend.announce(NOTICE._replace(ticket=5))
    ear.hear(BETTER._replace(kind=QUESTION, nonces=asking().nonces))
    ear.wait(0.1)
    ear.hear(ear.answered(BETTER))
    assert [endpoint.address for endpoint in ear.found] == ["10.0.0.2"]
    worse = BETTER._replace(kind=QUESTION, ticket=6, nonces=asking().nonces)
    ear.hear(worse)
    ear.wait(0.1)
    assert [packet.nonces for packet in ear.said(BEACON)] == [worse.nonces]


def test_a_beacon_under_another_key_is_reported_and_looked_into_a_few_times_only(ear: Ear) -> None:
    """The leader itself then reports the mismatch to a member with the wrong key."""
    for host in range(1, 100):
        ear.hear(BETTER, OTHER, source=f"127.0.0.{host}")
    assert len(ear.found) == multicast.MOST_DOUBTS
    assert ear.rejected[0] == "127.0.0.1"
    assert ear.sent == []


def test_a_better_beacon_that_is_repeated_cannot_silence_a_candidate_for_good(ear: Ear) -> None:
    """It holds back only so often."""
    ear.backend.announce(NOTICE._replace(ticket=2**62))
    ear.wait(60.0, 0.05, lambda: ear.hear(BETTER))
    assert len(ear.sent) >= 60 - 2 * multicast.MOST_HOLDS


# Whose multicast arrives only one way: a hint in the message at the deadline.

OURS = "arrives here, but ours does not arrive there"


def test_a_leader_that_leaves_two_questions_unanswered_does_not_receive_them(ear: Ear) -> None:
    """One unanswered question may be a loss, and a leader that has answered receives them."""
    ear.backend.search(wanted=True)
    ear.hear(REAL)
    ear.wait(0.1)
    assert ear.backend.one_way([]) == []
    ear.wait(0.4)
    assert ear.backend.one_way([]) == [f"multicast from 10.0.0.3 {OURS}"]
    ear.hear(ear.answered(REAL))
    assert ear.backend.one_way([]) == []


def test_a_member_that_asks_and_does_not_check_in_is_listed_by_its_best_address(ear: Ear) -> None:
    """A link-local one is listed only without another; one that checks in, also under another name, is not."""
    ear.backend.announce(NOTICE)
    one, other = asking()._replace(leader=b"M" * 16), asking()._replace(leader=b"N" * 16)
    heard = ((one, "fe80::1%2"), (one, "10.0.0.2"), (one, "10.1.0.2"), (other, "10.0.0.3"), (asking(), "10.0.0.9"))
    for packet, source in heard:
        ear.hear(packet, source=source)
    what = f"{OURS}, or its TCP connections do not arrive here"
    assert ear.backend.one_way([]) == [f"multicast from 10.0.0.2, 10.0.0.3 {what}"]
    entry = Entry(join_request(member=b"M" * 16), "10.9.0.2")
    entry.addresses = "10.0.0.3=100G,mtu9000"
    assert ear.backend.one_way([entry]) == []
    for number in range(multicast.MOST_SHOWN + 1):
        ear.hear(asking()._replace(leader=bytes([number + 1]) * 16), source=f"10.0.1.{number}")
    assert ear.backend.one_way([entry])[0].startswith(
        "multicast from 10.0.1.0, 10.0.1.1, 10.0.1.2, 10.0.1.3 and more a"
    )


def test_a_leader_ignores_its_own_datagrams(ear: Ear) -> None:
    """Multicast comes back to its host: its beacons, and its questions too."""
    ear.backend.announce(NOTICE._replace(ticket=5))
    ear.backend.search(wanted=True)
    (asked,) = ear.sent
    packet = multicast.unpack_beacon(asked, ATTEMPT.tag, SECRET)
    assert packet.kind == QUESTION
    ear.hear(packet)
    ear.hear(packet._replace(kind=BEACON))
    assert (len(ear.sent), ear.found) == (1, [])
    ear.wait(0.1)
    assert [said.nonces for said in ear.said(BEACON) if said.nonces] == []
