"""Beacons over multicast, IPv4 and IPv6: for clusters without names, and machines without a scheduler.

Multicast only finds the leader. Few datagrams, whatever N: the leader repeats its beacon, a newcomer asks a
few times, and nobody else says anything. Only a leader that answers a question of ours is dialled: a beacon may
be an old one that somebody sends again, so it only makes a member ask.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from mingle_hooks.errors import NetworkError, reason
from mingle_hooks.rendezvous.discovery.multicast import beacon
from mingle_hooks.rendezvous.discovery.multicast.budget import Budget
from mingle_hooks.rendezvous.discovery.multicast.interfaces import carriers
from mingle_hooks.rendezvous.discovery.multicast.link import Link
from mingle_hooks.rendezvous.discovery.multicast.questions import Questions
from mingle_hooks.rendezvous.discovery.multicast.replies import Replies
from mingle_hooks.rendezvous.discovery.one_way import OneWay
from mingle_hooks.rendezvous.member.dialer import Endpoint

if TYPE_CHECKING:
    from multicast_expert import IfaceInfo

    from mingle_hooks.rendezvous.discovery import Advertisement, Context
    from mingle_hooks.rendezvous.loop import Timer

# A beacon's interval in seconds grows from the first to the last; a newcomer does not wait for it, it asks.
FIRST_BEACON_S, LAST_BEACON_S = 0.1, 1.0
GROWTH = 1.6
# In a minute the leader sends at most 10 + 60 beacons, 10 + 12 answers and 4 questions, a waiting member 2 + 2
# questions, and as many more as beacons cause (see questions.CAUSED): one, but for losses and recorded beacons.
BEACONS = (10, 1.0)
ANSWERS = (10, 0.2)
QUESTIONS = (2, 1 / 30)
# Where many ask at once, the leader sends one answer more for so many members, as each has room for 128,
MEMBERS_OF_AN_ANSWER = 64
# leaves so many seconds between two, so that each answers all who have asked meanwhile,
ANSWER_GAP_S = 0.005
# and members that a beacon makes ask do so within this many seconds for each that the world has.
ASK_SPREAD_S = 50e-6
# A question, on one link, is repeated on the next after these seconds, for it or its answer may be lost.
ASK_AGAIN_S = (0.1, 1.0, 5.0, 20.0, 30.0)
# A candidate that hears a better one holds its beacon back, while it asks that one whether it is real.
HOLD_BACK_S = 0.5
# It does so only this often: a beacon that somebody recorded and repeats must not silence it for good.
MOST_HOLDS = 4
# In an election candidates begin within this time, the better the sooner, so that few ever send.
SPREAD_S = 0.25
# Unproved beacons that are looked into at most: a member with another key learns so from the leader itself.
MOST_DOUBTS = 4


def backend(context: Context) -> MulticastBackend:
    """Return this backend; NetworkError where no interface carries multicast, ImportError for want of a package."""
    backends = MulticastBackend(context, carriers(context.nets))
    if not backends.links:
        raise NetworkError(
            "an interface that carries multicast", "; ".join(backends.faults) or "none", "--iface NAME|CIDR"
        )
    return backends


class MulticastBackend:
    """Beacons and questions over every usable interface and family."""

    def __init__(self, context: Context, infos: list[IfaceInfo]) -> None:
        self.context = context
        self.links: list[Link] = []
        self._advertisement: Advertisement | None = None
        self._timer: Timer | None = None
        self._ask_timer: Timer | None = None
        self._caused_timer: Timer | None = None
        self._retry_timer: Timer | None = None
        self._answer_timer: Timer | None = None
        self._answered_at = 0.0
        self._wanted = False
        self._interval = FIRST_BEACON_S
        self._turn = 0
        self._asked = 0
        self._holds = MOST_HOLDS
        clock = context.loop.clock
        answers, per_second = ANSWERS
        answers += (context.nodes or 0) // MEMBERS_OF_AN_ANSWER
        self._beacons, self._answers = Budget(*BEACONS, clock), Budget(answers, per_second, clock)
        self._own = Budget(*QUESTIONS, clock)
        self._questions, self._replies = Questions(clock), Replies()
        self._doubts = MOST_DOUBTS
        self._one_way = context.one_way or OneWay()
        self.faults: list[str] = []
        try:
            for info in infos:
                self._open(info)
        except BaseException:
            self.close()
            raise

    def search(self, *, wanted: bool) -> None:
        """Ask now and a few times more, or only listen."""
        self._wanted = wanted
        self._ask_later()
        if wanted:
            self._asked = 0
            self._questions.begin()
            self._ask()

    def announce(self, advertisement: Advertisement | None) -> None:
        """Repeat this leader's beacon from now on, or fall silent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._advertisement = advertisement
        if advertisement is not None:
            self._interval = FIRST_BEACON_S
            self._holds = MOST_HOLDS
            self._timer = self.context.loop.after(SPREAD_S * advertisement.ticket / 2**63, self._repeat)

    def tried(self) -> str:
        """Name groups and interfaces."""
        return ", ".join(link.label for link in self.links) + f" port {self._port}"

    def close(self) -> None:
        """Leave the groups."""
        self.announce(None)
        self.search(wanted=False)
        for timer in (self._caused_timer, self._retry_timer, self._answer_timer):
            if timer is not None:
                timer.cancel()
        for link in self.links:
            link.close()
        self.links = []

    @property
    def _port(self) -> int:
        return self.context.multicast_port

    def _open(self, info: IfaceInfo) -> None:
        attempt = self.context.attempt
        families = [(socket.AF_INET, attempt.group4, info.ip4_addrs), (socket.AF_INET6, attempt.group6, info.ip6_addrs)]
        for family, group, addresses in families:
            if not addresses:
                continue
            try:
                self.links.append(Link(self, info, family, group, self._port, self.context.ttl))
            except (OSError, RuntimeError) as error:  # it has gone, or multicast_expert refuses: others may do
                self._fault(info, error)

    def _send(self, kind: int, link: Link, nonces: tuple[bytes, ...] = ()) -> None:
        try:
            link.send(self._packet(kind, nonces))
        except OSError as error:
            self._fault(link.info, error)

    def _next_link(self) -> Link:
        self._turn += 1
        return self.links[(self._turn - 1) % len(self.links)]

    def _fault(self, info: IfaceInfo, error: Exception) -> None:
        self.context.loop.missed(error)
        fault = f"{info.machine_name}: {reason(error)}"
        if fault not in self.faults:
            self.faults.append(fault)

    def _packet(self, kind: int, nonces: tuple[bytes, ...]) -> bytes:
        tag, advertisement = self.context.attempt.tag, self._advertisement
        packet = beacon.Packet(kind, tag, self.context.member, nonces=nonces)
        if advertisement is not None:
            packet = packet._replace(leader=advertisement.leader, ticket=advertisement.ticket)
            packet = packet._replace(port=advertisement.ports[0], addresses=advertisement.addresses)
        return beacon.pack(packet, self.context.secret)

    def _repeat(self) -> None:
        """Send a beacon over the links in turn, as far as the budget goes."""
        if self._advertisement is None:
            return
        for _ in self.links:
            if not self._beacons.spend():
                break
            link = self._next_link()
            self._send(beacon.BEACON, link, self._replies.take(link))
        loop = self.context.loop
        self._timer = loop.after(loop.about(self._interval), self._repeat)
        self._interval = min(self._interval * GROWTH, LAST_BEACON_S)

    def _ask(self) -> None:
        if self.links and self._own.spend():
            self._send(beacon.QUESTION, self._next_link(), (self._questions.ask(),))
        self._ask_later()
        self._asked += 1

    def _ask_later(self) -> None:
        """Ask again some time after the last question, whatever that one was for, as long as a leader is wanted."""
        if self._ask_timer is not None:
            self._ask_timer.cancel()
        if self._wanted:
            loop, delay = self.context.loop, ASK_AGAIN_S[min(self._asked, len(ASK_AGAIN_S) - 1)]
            self._ask_timer = loop.after(loop.about(delay), self._ask)

    def _ask_about(self, packet: beacon.Packet, link: Link) -> None:
        """Ask, soon, on the link where this was heard, whether its leader is there."""
        wait_s = self._questions.wait_s(packet.leader)
        if wait_s is None or self._caused_timer is not None:
            return
        loop = self.context.loop
        wait_s += ASK_SPREAD_S * (self.context.nodes or 1) * loop.chance()
        self._caused_timer = loop.after(wait_s, lambda: self._ask_now(packet, link))

    def _ask_now(self, packet: beacon.Packet, link: Link) -> None:
        self._caused_timer = None
        if not self._is_news(packet) or not self._questions.may_ask():
            return
        self._send(beacon.QUESTION, link, (self._questions.ask(),))
        self._one_way.questioned(packet.leader)
        self._ask_later()
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        retry_s = self._questions.retry_s(packet.leader)
        if retry_s is not None:
            self._retry_timer = self.context.loop.after(retry_s, lambda: self._ask_about(packet, link))

    def _answer_soon(self, link: Link, packet: beacon.Packet) -> None:
        """Answer, at once but for the time since the last answer, whoever asks."""
        if self._replies.add(link, packet.nonces[:1]) and self._answer_timer is None:
            loop = self.context.loop
            wait_s = max(self._answered_at + ANSWER_GAP_S - loop.clock(), 0.0)
            self._answer_timer = loop.after(wait_s, self._answer_now)

    def _answer_now(self) -> None:
        """Answer all that have asked; those that are left when the budget is spent are answered by the next beacon."""
        loop, self._answer_timer = self.context.loop, None
        if self._advertisement is None:
            return
        self._answered_at = loop.clock()
        for link in self._replies.links():
            if not self._answers.spend():
                return
            self._beacons.spend()  # it is one, for all who hear it
            self._send(beacon.BEACON, link, self._replies.take(link))
        if self._replies.links():
            self._answer_timer = loop.after(ANSWER_GAP_S, self._answer_now)

    def received(self, link: Link, sock: socket.socket) -> None:
        """Read one datagram, from whomever."""
        try:
            data, where = sock.recvfrom(beacon.MOST_BYTES + 1)
        except OSError:  # an error of an earlier send, or another reader was faster
            return
        packet = beacon.unpack(data, self.context.attempt.tag, self.context.secret)
        if packet is None or (self._advertisement is not None and packet.leader == self._advertisement.leader):
            return
        source = str(where[0]).partition("%")[0]
        if not packet.genuine:
            self._doubt(packet, source)
        elif packet.kind == beacon.QUESTION and not self._is_better(packet):
            if self._advertisement is not None:
                if packet.leader != beacon.NOBODY:  # else of an earlier version
                    self._one_way.asked(packet.leader, source)
                self._answer_soon(link, packet)
        elif self._is_news(packet):
            self._hold_back(packet)
            if packet.kind == beacon.QUESTION or not self._questions.is_answered(packet):
                self._one_way.heard(packet.leader, packet.addresses)
                self._ask_about(packet, link)
                return
            self._one_way.answered(packet.leader)
            # Only what the leader signed: anybody can send its answer again, from any address.
            for address in sorted(packet.addresses, key=lambda address: address != source):
                self.context.dial(Endpoint(address, packet.port, "multicast"))

    def _is_news(self, packet: beacon.Packet) -> bool:
        """Whether this leader would matter: none is known, it is better, or a rival by right."""
        known = self.context.joined() if self._advertisement is None else self._advertisement.precedence
        if known is None:
            return self._wanted
        is_rival = packet.ticket == known[0] == 0 and packet.leader != known[1]
        return packet.precedence < known or is_rival

    def _is_better(self, packet: beacon.Packet) -> bool:
        """Whether a question comes from a better candidate: it tells all that a beacon would."""
        advertisement = self._advertisement
        return advertisement is not None and packet.port > 0 and packet.precedence < advertisement.precedence

    def _hold_back(self, packet: beacon.Packet) -> None:
        advertisement = self._advertisement
        if advertisement is None or self._holds == 0 or packet.precedence > advertisement.precedence:
            return
        self._holds -= 1
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.context.loop.after(HOLD_BACK_S, self._repeat)

    def _doubt(self, packet: beacon.Packet, source: str) -> None:
        """Report a packet of this world under another key, and let a beacon's sender tell us so itself."""
        self.context.reject(source)
        if packet.kind == beacon.BEACON and packet.port and self._doubts > 0 and not source.startswith("fe80"):
            self._doubts -= 1
            self.context.dial(Endpoint(source, packet.port, "multicast"))
