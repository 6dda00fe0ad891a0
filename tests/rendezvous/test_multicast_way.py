"""Few datagrams, whatever N and however many interfaces; and nobody without the key changes who is found."""

from __future__ import annotations

import socket
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from gathering import ATTEMPT, OTHER, SECRET

from mingle_hooks.rendezvous import beacon
from mingle_hooks.rendezvous.beacon import BEACON, QUESTION, Packet, pack
from mingle_hooks.rendezvous.loop import Loop
from mingle_hooks.rendezvous.ways import Context, Notice
from mingle_hooks.rendezvous.ways.multicast import MOST_DOUBTS, MOST_HOLDS, MulticastWay

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.attempt import Secret
    from mingle_hooks.rendezvous.search import Lead

NOTICE = Notice(b"L" * 16, 0, ("10.0.0.1", "10.0.1.1"), (20_001,))
BETTER = Packet(BEACON, ATTEMPT.tag, b"B" * 16, 1, 20_002, ("10.0.0.2",))
ASKING = Packet(QUESTION, ATTEMPT.tag, bytes(16))


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
    """A way over made-up links and a made-up clock."""

    def __init__(self, links: int) -> None:
        self.now = 1000.0
        self.loop = Loop(lambda: self.now)
        self.sent: list[bytes] = []
        self.found: list[Lead] = []
        self.knocks: list[str] = []
        context = Context(self.loop, ATTEMPT, SECRET, self.found.append, self.knocks.append, self.knocks.append)
        self.way = MulticastWay(context, [])
        many: Any = [Link(self.sent) for _ in range(links)]
        self.way.links = many

    def hear(self, packet: Packet, secret: Secret = SECRET, source: str = "127.0.0.1") -> None:
        """Let a datagram arrive."""
        here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with here, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
            here.bind(("127.0.0.1", 0))
            there.bind((source, 0))
            there.sendto(pack(packet, secret), here.getsockname())
            self.way.received(self.way.links[0], here)

    def minute(self, each_s: float, happens: Any) -> None:  # noqa: ANN401 - a call or None
        """Let a minute pass, with something that happens every so many seconds."""
        end, following = self.now + 60.0, self.now
        while self.now < end:
            due = self.loop._timers[0][0] if self.loop._timers else end
            self.now = min(due, following, end)
            if self.now >= following:
                following += each_s
                if happens is not None:
                    happens()
            self.loop._ring()

    def close(self) -> None:
        """End it."""
        self.way.close()
        self.loop.__exit__(None, None, None)


@pytest.mark.parametrize("links", [1, 2, 8])
def test_a_leader_sends_at_most_100_datagrams_a_minute_whoever_asks(links: int) -> None:
    """Beacons on all links and answers to a hundred questions a second."""
    with closing(Ear(links)) as ear:
        ear.way.announce(NOTICE)
        ear.way.search(wanted=False)
        ear.minute(0.1, lambda: ear.hear(ASKING))
        assert 60 <= len(ear.sent) <= 100
        before = len(ear.sent)
        ear.minute(0.1, lambda: ear.hear(ASKING))
        assert len(ear.sent) - before <= 100


@pytest.mark.parametrize("links", [1, 2, 8])
def test_a_candidate_sends_at_most_100_datagrams_a_minute(links: int) -> None:
    """It asks, answers and announces itself, and may be interrupted any number of times."""
    with closing(Ear(links)) as ear:
        ear.way.announce(NOTICE._replace(ticket=2**62))
        ear.way.search(wanted=True)

        def again() -> None:
            ear.hear(ASKING)
            ear.hear(BETTER)
            ear.way.announce(None)
            ear.way.announce(NOTICE._replace(ticket=2**62))
            ear.way.search(wanted=True)

        ear.minute(0.5, again)
        assert len(ear.sent) <= 100


@pytest.mark.parametrize("links", [1, 2, 8])
def test_a_waiting_member_sends_at_most_5_datagrams_a_minute(links: int) -> None:
    """Also one that loses its leader again and again."""
    with closing(Ear(links)) as ear:
        ear.way.search(wanted=True)
        ear.minute(1.0, lambda: ear.way.search(wanted=True))
        assert 1 <= len(ear.sent) <= 5


def test_a_beacon_leads_only_to_addresses_that_its_leader_signed() -> None:
    """Anybody can send it again, from any address."""
    with closing(Ear(1)) as ear:
        for host in range(1, 100):
            ear.hear(BETTER, source=f"127.0.0.{host}")
        assert {(lead.address, lead.port) for lead in ear.found} == {("10.0.0.2", 20_002)}
        assert ear.knocks == []


def test_a_beacon_under_another_key_is_reported_and_looked_into_a_few_times_only() -> None:
    """So that a member with the wrong key is told so by the leader itself."""
    with closing(Ear(1)) as ear:
        for host in range(1, 100):
            ear.hear(BETTER, OTHER, source=f"127.0.0.{host}")
        assert len(ear.found) == MOST_DOUBTS
        assert ear.knocks[0] == "127.0.0.1"
        assert ear.sent == []


def test_a_better_beacon_that_is_repeated_cannot_silence_a_candidate_for_good() -> None:
    """It holds back only so often."""
    with closing(Ear(1)) as ear:
        ear.way.announce(NOTICE._replace(ticket=2**62))
        ear.minute(0.05, lambda: ear.hear(BETTER))
        assert len(ear.sent) >= 60 - 2 * MOST_HOLDS


def test_a_leader_ignores_its_own_words() -> None:
    """Multicast comes back to its host: its beacons, and its questions too."""
    with closing(Ear(1)) as ear:
        ear.way.announce(NOTICE._replace(ticket=5))
        ear.way.search(wanted=True)
        (asked,) = ear.sent
        packet = beacon.unpack(asked, ATTEMPT.tag, SECRET)
        assert packet is not None
        assert packet.kind == QUESTION
        ear.hear(packet)
        ear.hear(packet._replace(kind=BEACON))
        assert (len(ear.sent), ear.found) == (1, [])


def test_an_empty_socket_is_nothing_heard() -> None:
    """Another reader may have been faster, or an error of an earlier send comes first."""
    with closing(Ear(1)) as ear, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as empty:
        empty.settimeout(0)
        ear.way.received(ear.way.links[0], empty)
        assert ear.found == []
