"""Discovery by multicast: beacons, and questions that only the real leader can answer."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from mingle_hooks.errors import NetworkError, reason
from mingle_hooks.net.addresses import ListedAddress, interfaces, is_virtual_name, list_addresses, usable
from mingle_hooks.rendezvous.backend import Advertisement, Context, OneWay
from mingle_hooks.rendezvous.connection import BACKOFF_S, CALL_S, READ, Endpoint, Loop, Timer
from mingle_hooks.rendezvous.wire import TAG_BYTES, Secret

if TYPE_CHECKING:
    from multicast_expert import IfaceInfo, McastRxSocket, McastTxSocket


# The one kind of datagram: a leader's beacon, or a member's question.
#
# ``MNGL | version | kind | tag (8) | leader (16) | ticket (8) | port (2) | count (1) | addresses (16 each) |
# nonces (8 each) | MAC (16)``; an IPv4 address travels as ::ffff:a.b.c.d.
#
# Anybody can record a beacon and replay it; its MAC stays right. So a beacon only makes a member ask, with a nonce
# of its own, and only a beacon that carries an open nonce of ours is an answer and leads to a connection. One beacon
# answers many members, so that a leader's datagrams do not grow with them. Even then all is proved again over TCP.
#
# A beacon without nonces looks the same in every version of mingle: by it members of two versions meet over TCP, where
# they can tell each other so.

MAGIC = b"MNGL\x01"
BEACON, QUESTION = 1, 2
NOBODY = bytes(16)
MOST_ADDRESSES = 8
NONCE_BYTES, MAC_BYTES = 8, 16
# Members that one beacon answers at most: as many as leave it below the smallest MTU of IPv6.
MOST_NONCES = 128
_HEAD = struct.Struct(f"!5sB{TAG_BYTES}s16sQHB")
# The largest packet: 1209.
MOST_BYTES = _HEAD.size + 16 * MOST_ADDRESSES + NONCE_BYTES * MOST_NONCES + MAC_BYTES
_MAPPED = b"\0" * 10 + b"\xff\xff"


class Beacon(NamedTuple):
    """What a datagram says; `port` and `addresses` are a leader's, `nonces` a question's own or those it answers.

    `leader` is the sender, in a question of a member that is no candidate too.
    """

    kind: int
    tag: bytes
    leader: bytes
    ticket: int = 0
    port: int = 0
    addresses: tuple[str, ...] = ()
    genuine: bool = True
    nonces: tuple[bytes, ...] = ()

    @property
    def precedence(self) -> tuple[int, bytes]:
        """What the lowest of wins an election."""
        return (self.ticket, self.leader)


def pack_beacon(packet: Beacon, secret: Secret) -> bytes:
    """Return the datagram."""
    addresses = packet.addresses[:MOST_ADDRESSES]
    head = _HEAD.pack(MAGIC, packet.kind, packet.tag, packet.leader, packet.ticket, packet.port, len(addresses))
    data = head + b"".join(_packed(address) for address in addresses) + b"".join(packet.nonces[:MOST_NONCES])
    return secret.sealed(data, MAC_BYTES, b"beacon")


def unpack_beacon(data: bytes, tag: bytes, secret: Secret) -> Beacon | None:
    """Return what a datagram says, None where it is not of this world; `genuine` tells whether the key fits."""
    if not _HEAD.size + MAC_BYTES <= len(data) <= MOST_BYTES or not data.startswith(MAGIC):
        return None
    _, kind, packet_tag, leader, ticket, port, count = _HEAD.unpack_from(data)
    middle, end = _HEAD.size + 16 * count, len(data) - MAC_BYTES
    if packet_tag != tag or kind not in (BEACON, QUESTION) or count > MOST_ADDRESSES or middle > end:
        return None
    if (end - middle) % NONCE_BYTES:
        return None
    genuine = secret.opened(data, MAC_BYTES, b"beacon") is not None
    addresses = tuple(_text(data[start : start + 16]) for start in range(_HEAD.size, middle, 16))
    nonces = tuple(data[start : start + NONCE_BYTES] for start in range(middle, end, NONCE_BYTES))
    return Beacon(kind, packet_tag, leader, ticket, port, addresses, genuine, nonces)


def _packed(address: str) -> bytes:
    if ":" in address:
        return socket.inet_pton(socket.AF_INET6, address)
    return _MAPPED + socket.inet_pton(socket.AF_INET, address)


def _text(row: bytes) -> str:
    if row.startswith(_MAPPED):
        return socket.inet_ntop(socket.AF_INET, row[12:])
    return socket.inet_ntop(socket.AF_INET6, row)


# A bound on how much is sent in any span of time, whoever asks for it.


class Budget:
    """At most `burst` at once, and `per_second` on average after that."""

    def __init__(self, burst: int, per_second: float, clock: Callable[[], float]) -> None:
        self._left: float = burst
        self._burst, self._per_second, self._clock = burst, per_second, clock
        self._since = clock()

    def spend(self) -> bool:
        """Take one, if there is one."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._since) * self._per_second)
        self._since = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


# The interfaces that carry beacons, as multicast_expert takes them.

# Interfaces used at the most, the kernel allows 20 groups to a socket; no node has more networks that matter.
MOST_INTERFACES = 4


def carriers(nets: Sequence[str]) -> list[IfaceInfo]:
    """Return this host's interfaces to use, `nets` being names or CIDRs that were asked for. Raises NetworkError.

    multicast_expert's own scan lists names and then asks netifaces for each, which raises where one has gone
    meanwhile: pods and virtual machines that come and go on a node are reason enough.
    """
    infos = _infos(list_addresses())
    return choose_carriers(infos if len(infos) <= MOST_INTERFACES else _best_first(infos), nets)


def choose_carriers(infos: Sequence[IfaceInfo], nets: Sequence[str]) -> list[IfaceInfo]:
    """Return the interfaces to use: those that were asked for, else all real ones, else loopback."""
    if nets:
        return [info for info in infos if any(_matches(info, net) for net in nets)][:MOST_INTERFACES]
    real = [info for info in infos if not _is_loopback(info) and not is_virtual_name(info.machine_name)]
    return real[:MOST_INTERFACES] or [info for info in infos if _is_loopback(info)]


def _best_first(infos: list[IfaceInfo]) -> list[IfaceInfo]:
    """Return them in the order in which a world would use them: rails reach nobody but rails of the same number."""
    try:
        best = [address.interface.name for address in usable(interfaces())]
    except NetworkError:
        return infos
    return sorted(infos, key=lambda info: best.index(info.machine_name) if info.machine_name in best else len(best))


def _infos(found: Iterable[ListedAddress]) -> list[IfaceInfo]:
    """Return multicast_expert's description of each interface that has an address, by its index."""
    load_multicast_expert()  # 30 ms, paid only where multicast is used
    from multicast_expert import IfaceInfo

    four: dict[tuple[int, str], list[ipaddress.IPv4Interface]] = {}
    six: dict[tuple[int, str], list[ipaddress.IPv6Interface]] = {}
    for name, ifindex, address, prefix in found:
        key, interface = (ifindex, name), ipaddress.ip_interface(f"{address}/{prefix}")
        if isinstance(interface, ipaddress.IPv4Interface):
            four.setdefault(key, []).append(interface)
        else:
            six.setdefault(key, []).append(interface)
    return [
        IfaceInfo(name, ifindex, None, four.get((ifindex, name), []), six.get((ifindex, name), []))
        for ifindex, name in sorted({*four, *six})
    ]


def _is_loopback(info: IfaceInfo) -> bool:
    """Tell whether this is loopback; IfaceInfo.is_localhost() knows 127.0.0.1/32 only, not /8."""
    return any(address.ip.is_loopback for address in _addresses(info))


def _matches(info: IfaceInfo, net: str) -> bool:
    if "/" not in net:
        return info.machine_name == net
    network = ipaddress.ip_network(net, strict=False)
    return any(address.ip in network for address in _addresses(info))


def _addresses(info: IfaceInfo) -> list[ipaddress.IPv4Interface | ipaddress.IPv6Interface]:
    return [*info.ip4_addrs, *info.ip6_addrs]


# One interface in one family, over which multicast is sent and heard.


class Link:
    """Sockets for one group and port, whose datagrams `read(link, sock)` reads; the owner calls close()."""

    def __init__(
        self,
        loop: Loop,
        read: Callable[[Link, socket.socket], None],
        info: IfaceInfo,
        family: int,
        group: str,
        port: int,
        ttl: int,
    ) -> None:
        import multicast_expert  # see library.py

        self.info, self._where, self._loop = info, (group, port), loop
        # Members may share a host, so what is sent has to come back to it.
        self._tx: McastTxSocket = multicast_expert.McastTxSocket(
            family, [group], iface=info, ttl=ttl, enable_external_loopback=True
        )
        self._rx: McastRxSocket = multicast_expert.McastRxSocket(
            family, [group], port, iface=info, timeout=0, enable_external_loopback=True
        )
        try:
            self._tx.__enter__()
            self._rx.__enter__()
            for sock in self._rx.sockets:
                sock.settimeout(0)
                self._loop.watch(sock, READ, lambda _events, sock=sock: read(self, sock))  # type: ignore[misc]
        except BaseException:
            # Their own __exit__ refuses to close what is only half open.
            for sock in (getattr(self._tx, "socket", None), *getattr(self._rx, "sockets", ())):
                if sock is not None:
                    sock.close()
            raise

    @property
    def label(self) -> str:
        """The group and the interface."""
        return f"{self._where[0]} on {self.info.machine_name}"

    def send(self, data: bytes, port: int | None = None) -> None:
        """Send, to another port of the group if one is given. Raises OSError if the interface has gone."""
        self._tx.sendto(data, self._where if port is None else (self._where[0], port))

    def close(self) -> None:
        """Leave the group."""
        for sock in self._rx.sockets:
            self._loop.unwatch(sock)
        self._rx.__exit__(None, None, None)
        self._tx.__exit__(None, None, None)


# What a member asks, and when a beacon makes it ask: recorded ones lead to few questions, and to no connection.

# A nonce is open for this long, in seconds: an answer that no longer fits a leader's budget comes with its next beacon
# of that link, once in four seconds where there are four links.
OPEN_S = 5.0
MOST_OPEN = 16
# Beacons that come at once, over several links or of several leaders, have one question: everybody there hears it.
GAP_S = 0.02
# A leader that was asked so many times since it was first heard is asked again after these seconds at the earliest: the
# question or its answer may have been lost. It may also be gone, or hear nobody.
AGAIN_S = (0.2, 0.3, 0.5, 0.5, 1.0, 2.0, 5.0, 20.0)
# The first of these times do not wait for its next beacon.
UNBIDDEN = 2
# Leaders that are remembered; there is one, and candidates as many as an election has.
MOST_HEARD = 256
# Of all questions that beacons cause: a leader that comes while somebody sends recorded ones waits 2 s at the most.
CAUSED = (8, 0.5)
_ANSWERED = -1


class Questions:
    """The nonces that are open, and the leaders that have been asked about."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[bytes, float] = {}  # nonce -> until when, oldest first
        # Leader -> how often it was asked in vain, and when it may be asked again.
        self._heard: dict[bytes, tuple[int, float]] = {}
        self._next = clock()
        self._caused = Budget(*CAUSED, clock)

    def begin(self) -> None:
        """Look anew: a leader that has answered may be asked again at once, for it was lost."""
        self._heard = {leader: heard for leader, heard in self._heard.items() if heard[0] != _ANSWERED}

    def wait_s(self, leader: bytes) -> float | None:
        """Return in how many seconds to ask because of this leader's beacon; None where it has just been asked."""
        now = self._clock()
        if leader not in self._heard and len(self._heard) >= MOST_HEARD:
            self._heard.clear()
        _, due = self._heard.setdefault(leader, (0, now))
        return max(self._next - now, 0.0) if due <= now else None

    def retry_s(self, leader: bytes) -> float | None:
        """Return in how many seconds to ask this leader again although no other beacon of it has come, None: not."""
        count, due = self._heard.get(leader, (_ANSWERED, 0.0))
        return max(due - self._clock(), 0.0) if 0 < count <= UNBIDDEN else None

    def may_ask(self) -> bool:
        """Tell whether one more question may be asked because of a beacon."""
        return self._caused.spend()

    def ask(self) -> bytes:
        """Return a new nonce, open from now on. Every leader heard so far is asked with it."""
        now = self._clock()
        self._next = now + GAP_S
        for leader, (count, due) in self._heard.items():
            if due <= now:
                self._heard[leader] = (count + 1, now + AGAIN_S[min(max(count, 0), len(AGAIN_S) - 1)])
        nonce = os.urandom(NONCE_BYTES)
        self._open[nonce] = now + OPEN_S
        if len(self._open) > MOST_OPEN:
            del self._open[next(iter(self._open))]
        return nonce

    def is_answered(self, beacon: Beacon) -> bool:
        """Tell whether this answers a nonce that is open; several leaders may answer one."""
        now = self._clock()
        if not any(self._open.get(nonce, now) > now for nonce in beacon.nonces):
            return False
        self._heard[beacon.leader] = (_ANSWERED, now + CALL_S + BACKOFF_S)  # it is being dialled
        return True


# Questions that a leader has heard: many are answered by one beacon, and each by two, as one may be lost.

# Questions that are remembered, so that nobody can have one answered twice: one of each member of the largest world.
MOST_REMEMBERED = 16_384
# Questions that wait for an answer on one link; beyond that the oldest go, and are asked again.
MOST_WAITING = 1024


class Replies:
    """Nonces by the link on which they came. The newest goes first: an old one is no longer open."""

    def __init__(self) -> None:
        self._seen: dict[bytes, None] = {}  # oldest first
        self._waiting: dict[Any, deque[bytes]] = {}
        self._taken: dict[Any, tuple[bytes, ...]] = {}  # by the last beacon of a link

    def add(self, link: object, nonces: Iterable[bytes]) -> bool:
        """Note a question; False where it has been asked before."""
        new = [nonce for nonce in nonces if nonce not in self._seen]
        for nonce in new:
            self._seen[nonce] = None
            self._waiting.setdefault(link, deque(maxlen=MOST_WAITING)).append(nonce)
        while len(self._seen) > MOST_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return bool(new)

    def links(self) -> list[Any]:
        """Return the links on which questions wait."""
        return list(self._waiting)

    def take(self, link: object) -> tuple[bytes, ...]:
        """Return what the next beacon on this link answers, with what the last one did as far as there is room."""
        waiting = self._waiting.get(link, deque())
        new = tuple(waiting.pop() for _ in range(min(len(waiting), MOST_NONCES)))
        if not waiting:
            self._waiting.pop(link, None)
        again = self._taken.pop(link, ())[: MOST_NONCES - len(new)]
        self._taken[link] = new
        return new + again


# Beacons over multicast, IPv4 and IPv6: for clusters without names, and machines without a scheduler.
#
# Multicast only finds the leader. Few datagrams, whatever N: the leader repeats its beacon, a newcomer asks a
# few times, and nobody else says anything. Only a leader that answers a question of ours is dialled: a beacon may
# be an old one that somebody sends again, so it only makes a member ask.

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
        self._questions_sent = 0
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
            self._questions_sent = 0
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
                self.links.append(
                    Link(self.context.loop, self.received, info, family, group, self._port, self.context.ttl)
                )
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
        packet = Beacon(kind, tag, self.context.member, nonces=nonces)
        if advertisement is not None:
            packet = packet._replace(leader=advertisement.leader, ticket=advertisement.ticket)
            packet = packet._replace(port=advertisement.ports[0], addresses=advertisement.addresses)
        return pack_beacon(packet, self.context.secret)

    def _repeat(self) -> None:
        """Send a beacon over the links in turn, as far as the budget goes."""
        if self._advertisement is None:
            return
        for _ in self.links:
            if not self._beacons.spend():
                break
            link = self._next_link()
            self._send(BEACON, link, self._replies.take(link))
        loop = self.context.loop
        self._timer = loop.after(loop.about(self._interval), self._repeat)
        self._interval = min(self._interval * GROWTH, LAST_BEACON_S)

    def _ask(self) -> None:
        if self.links and self._own.spend():
            self._send(QUESTION, self._next_link(), (self._questions.ask(),))
        self._ask_later()
        self._questions_sent += 1

    def _ask_later(self) -> None:
        """Ask again some time after the last question, whatever that one was for, as long as a leader is wanted."""
        if self._ask_timer is not None:
            self._ask_timer.cancel()
        if self._wanted:
            loop, delay = self.context.loop, ASK_AGAIN_S[min(self._questions_sent, len(ASK_AGAIN_S) - 1)]
            self._ask_timer = loop.after(loop.about(delay), self._ask)

    def _ask_about(self, packet: Beacon, link: Link) -> None:
        """Ask, soon, on the link where this was heard, whether its leader is there."""
        wait_s = self._questions.wait_s(packet.leader)
        if wait_s is None or self._caused_timer is not None:
            return
        loop = self.context.loop
        wait_s += ASK_SPREAD_S * (self.context.nodes or 1) * loop.chance()
        self._caused_timer = loop.after(wait_s, lambda: self._ask_now(packet, link))

    def _ask_now(self, packet: Beacon, link: Link) -> None:
        self._caused_timer = None
        if not self._is_news(packet) or not self._questions.may_ask():
            return
        self._send(QUESTION, link, (self._questions.ask(),))
        self._one_way.questioned(packet.leader)
        self._ask_later()
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        retry_s = self._questions.retry_s(packet.leader)
        if retry_s is not None:
            self._retry_timer = self.context.loop.after(retry_s, lambda: self._ask_about(packet, link))

    def _answer_soon(self, link: Link, packet: Beacon) -> None:
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
            self._send(BEACON, link, self._replies.take(link))
        if self._replies.links():
            self._answer_timer = loop.after(ANSWER_GAP_S, self._answer_now)

    def received(self, link: Link, sock: socket.socket) -> None:
        """Read one datagram, from whomever."""
        try:
            data, where = sock.recvfrom(MOST_BYTES + 1)
        except OSError:  # an error of an earlier send, or another reader was faster
            return
        packet = unpack_beacon(data, self.context.attempt.tag, self.context.secret)
        if packet is None or (self._advertisement is not None and packet.leader == self._advertisement.leader):
            return
        source = str(where[0]).partition("%")[0]
        if not packet.genuine:
            self._doubt(packet, source)
        elif packet.kind == QUESTION and not self._is_better(packet):
            if self._advertisement is not None:
                if packet.leader != NOBODY:  # else of an earlier version
                    self._one_way.queried(packet.leader, source)
                self._answer_soon(link, packet)
        elif self._is_news(packet):
            self._hold_back(packet)
            if packet.kind == QUESTION or not self._questions.is_answered(packet):
                self._one_way.heard(packet.leader, packet.addresses)
                self._ask_about(packet, link)
                return
            self._one_way.answered(packet.leader)
            # Only what the leader signed: anybody can send its answer again, from any address.
            for address in sorted(packet.addresses, key=lambda address: address != source):
                self.context.dial(Endpoint(address, packet.port, "multicast"))

    def _is_news(self, packet: Beacon) -> bool:
        """Whether this leader would matter: none is known, it is better, or a rival by right."""
        known = self.context.joined() if self._advertisement is None else self._advertisement.precedence
        if known is None:
            return self._wanted
        is_rival = packet.ticket == known[0] == 0 and packet.leader != known[1]
        return packet.precedence < known or is_rival

    def _is_better(self, packet: Beacon) -> bool:
        """Whether a question comes from a better candidate: it tells all that a beacon would."""
        advertisement = self._advertisement
        return advertisement is not None and packet.port > 0 and packet.precedence < advertisement.precedence

    def _hold_back(self, packet: Beacon) -> None:
        advertisement = self._advertisement
        if advertisement is None or self._holds == 0 or packet.precedence > advertisement.precedence:
            return
        self._holds -= 1
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.context.loop.after(HOLD_BACK_S, self._repeat)

    def _doubt(self, packet: Beacon, source: str) -> None:
        """Report a packet of this world under another key, and let a beacon's sender tell us so itself."""
        self.context.reject(source)
        if packet.kind == BEACON and packet.port and self._doubts > 0 and not source.startswith("fe80"):
            self._doubts -= 1
            self.context.dial(Endpoint(source, packet.port, "multicast"))


# multicast_expert, whose sockets for asyncio are loaded only by who asks for one.

_ASYNC, _SOCKET = "multicast_expert.async_rx_socket", "AsyncMcastRxSocket"


def load_multicast_expert() -> None:
    """Import multicast_expert without asyncio, which would take half of the time. Raises what the import raises.

    The name that it takes from there is given later, to whoever else in this process uses it.
    """
    if "multicast_expert" in sys.modules or "asyncio" in sys.modules:
        return
    sys.modules[_ASYNC] = stand_in = ModuleType(_ASYNC)
    setattr(stand_in, _SOCKET, None)
    try:
        import multicast_expert
    finally:
        del sys.modules[_ASYNC]
    if vars(multicast_expert).pop(_SOCKET, 0) is None:  # a Python that has no such socket there has no such name
        multicast_expert.__getattr__ = _later  # type: ignore[method-assign]


def _later(name: str) -> object:
    if name != _SOCKET:
        raise AttributeError(f"module 'multicast_expert' has no attribute {name!r}")
    from multicast_expert.async_rx_socket import AsyncMcastRxSocket

    return AsyncMcastRxSocket
