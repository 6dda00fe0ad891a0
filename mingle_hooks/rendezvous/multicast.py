"""Discovery by multicast: beacons, and questions that only the real leader can answer."""

from __future__ import annotations

import ipaddress
import itertools
import os
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from mingle_hooks.errors import NetworkError, reason
from mingle_hooks.net.addresses import ListedAddress, by_index, interfaces, is_virtual_name, list_addresses, usable
from mingle_hooks.rendezvous.connection import BACKOFF_S, CALL_S, READ, Endpoint, Loop, Timer
from mingle_hooks.rendezvous.wire import TAG_BYTES, Secret, multicast_port

if TYPE_CHECKING:
    from multicast_expert import IfaceInfo, McastRxSocket, McastTxSocket

    from mingle_hooks.net.addresses import Preference
    from mingle_hooks.rendezvous.discovery import Advertisement, Context
    from mingle_hooks.rendezvous.roster import Entry


# The one kind of datagram: a leader's beacon, or a member's question.
#
# ``MNGL | version | kind | tag (8) | leader (16) | ticket (8) | port (2) | count (1) | addresses (16 each) |
# nonces (8 each) | MAC (16)``; an IPv4 address travels as ::ffff:a.b.c.d.
#
# Anybody can record a beacon and replay it, and its MAC stays valid. A beacon therefore only makes a member ask a
# question, with a nonce of its own; only a beacon that carries an open nonce is an answer, and leads to a connection.
# One beacon answers many members, so that the leader's datagrams do not grow with them. TCP then proves all again.
#
# A beacon without nonces is the same in every version of mingle, so that members of two versions meet over TCP, where
# they can report the mismatch.

MAGIC = b"MNGL\x01"
BEACON, QUESTION = 1, 2
NOBODY = bytes(16)
MOST_ADDRESSES = 8
NONCE_BYTES, MAC_BYTES = 8, 16
# Members that one beacon answers: as many as keep it below the smallest MTU of IPv6.
MOST_NONCES = 128
_HEAD = struct.Struct(f"!5sB{TAG_BYTES}s16sQHB")
# The largest packet: 1209.
MOST_BYTES = _HEAD.size + 16 * MOST_ADDRESSES + NONCE_BYTES * MOST_NONCES + MAC_BYTES


class Beacon(NamedTuple):
    """A datagram; `port` and `addresses` are a leader's, `nonces` a question's own or those that a beacon answers.

    `leader` is the sender, also in a question of a member that is no candidate.
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
        """The key of an election: the lowest wins."""
        return (self.ticket, self.leader)

    @property
    def best_address(self) -> str:
        """The leader's best address, for a message."""
        return self.addresses[0] if self.addresses else "an unknown address"


def pack_beacon(packet: Beacon, secret: Secret) -> bytes:
    """Return the datagram."""
    addresses = packet.addresses[:MOST_ADDRESSES]
    head = _HEAD.pack(MAGIC, packet.kind, packet.tag, packet.leader, packet.ticket, packet.port, len(addresses))
    rows = [socket.inet_pton(socket.AF_INET6, a if ":" in a else f"::ffff:{a}") for a in addresses]
    data = head + b"".join((*rows, *packet.nonces[:MOST_NONCES]))
    return secret.sealed(data, MAC_BYTES, b"beacon")


def unpack_beacon(data: bytes, tag: bytes, secret: Secret) -> Beacon | None:
    """Return the content of a datagram, None if it is not of this world; `genuine` is whether the key fits."""
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


def _text(row: bytes) -> str:
    address = ipaddress.IPv6Address(row)
    return str(address.ipv4_mapped or address)


# A bound on the datagrams that are sent in any span of time, whatever arrives.


class Budget:
    """At most `burst` at once, and `per_second` on average after that."""

    def __init__(self, burst: int, per_second: float, clock: Callable[[], float]) -> None:
        self._left: float = burst
        self._burst, self._per_second, self._clock = burst, per_second, clock
        self._since = clock()

    def spend(self) -> bool:
        """Take one from the budget, if one is left."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._since) * self._per_second)
        self._since = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


# The interfaces that carry beacons, as multicast_expert takes them.

# Interfaces that are used: no node has more networks that matter. The kernel allows 20 groups per socket.
MOST_INTERFACES = 4


def carriers(prefer: Sequence[Preference]) -> list[IfaceInfo]:
    """Return this host's interfaces to use, restricted to preferred networks if there are any. Raises NetworkError.

    multicast_expert's own scan lists names and then queries netifaces for each, which raises if an interface has
    vanished meanwhile, as those of pods and virtual machines do.
    """
    infos = _infos(list_addresses())
    return choose_carriers(infos if len(infos) <= MOST_INTERFACES else _best_first(infos), prefer)


def choose_carriers(infos: Sequence[IfaceInfo], prefer: Sequence[Preference]) -> list[IfaceInfo]:
    """Return the interfaces to use: the preferred ones, else all physical ones, else loopback."""
    if prefer:
        wanted = [info for info in infos if any(p.matches(info.machine_name, *_ips(info)) for p in prefer)]
        return wanted[:MOST_INTERFACES]
    real = [info for info in infos if not _is_loopback(info) and not is_virtual_name(info.machine_name)]
    return real[:MOST_INTERFACES] or [info for info in infos if _is_loopback(info)]


def _best_first(infos: list[IfaceInfo]) -> list[IfaceInfo]:
    """Return them in the order in which a world would use them: a rail reaches only rails of the same number."""
    try:
        best = [address.interface.name for address in usable(interfaces())]
    except NetworkError:
        return infos
    return sorted(infos, key=lambda info: best.index(info.machine_name) if info.machine_name in best else len(best))


def _infos(found: Iterable[ListedAddress]) -> list[IfaceInfo]:
    """Return multicast_expert's description of each interface that has an address, by its index."""
    load_multicast_expert()  # 30 ms, paid only where multicast is used
    from multicast_expert import IfaceInfo

    infos = []
    for (ifindex, name), addresses in sorted(by_index(found).items()):
        four = [address for address in addresses if isinstance(address, ipaddress.IPv4Interface)]
        six = [address for address in addresses if isinstance(address, ipaddress.IPv6Interface)]
        infos.append(IfaceInfo(name, ifindex, None, four, six))
    return infos


def _is_loopback(info: IfaceInfo) -> bool:
    """Return whether this is loopback; IfaceInfo.is_localhost() matches 127.0.0.1/32 only, not /8."""
    return any(ip.is_loopback for ip in _ips(info))


def _ips(info: IfaceInfo) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    return [*(four.ip for four in info.ip4_addrs), *(six.ip for six in info.ip6_addrs)]


# One interface in one family, over which multicast is sent and received.


class Link:
    """Sockets for one group and port, whose datagrams `read(link, sock)` reads; the owner calls close()."""

    def __init__(
        self, loop: Loop, read: Callable[[Link, socket.socket], None], info: IfaceInfo, group: str, port: int, ttl: int
    ) -> None:
        import multicast_expert  # see load_multicast_expert

        family = socket.AF_INET6 if ":" in group else socket.AF_INET
        self.info, self._where, self._loop = info, (group, port), loop
        # Members may share a host, so datagrams have to loop back to it.
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
            # Their own __exit__ refuses to close sockets that are only half open.
            for sock in (getattr(self._tx, "socket", None), *getattr(self._rx, "sockets", ())):
                if sock is not None:
                    sock.close()
            raise

    @property
    def label(self) -> str:
        """The group and the interface."""
        return f"{self._where[0]} on {self.info.machine_name}"

    def send(self, data: bytes, port: int | None = None) -> None:
        """Send, to another port of the group if one is given. Raises OSError if the interface has vanished."""
        self._tx.sendto(data, self._where if port is None else (self._where[0], port))

    def close(self) -> None:
        """Leave the group."""
        for sock in self._rx.sockets:
            self._loop.unwatch(sock)
        self._rx.__exit__(None, None, None)
        self._tx.__exit__(None, None, None)


# A member's questions, and when a beacon causes one: recorded beacons cause few questions, and no connection.

# A nonce is open for so many seconds: an answer that exceeds a leader's budget comes with the next beacon of that link,
# once in four seconds if there are four links.
OPEN_S = 5.0
MOST_OPEN = 16
# Beacons that arrive together, over several links or from several leaders, cause one question, which all receive.
GAP_S = 0.02
# Seconds between the first, second, third… question to one leader: the question or its answer may have been lost. The
# leader may also be gone, or receive nothing.
AGAIN_S = (0.2, 0.3, 0.5, 0.5, 1.0, 2.0, 5.0, 20.0)
# How many of these questions do not wait for its next beacon.
UNPROMPTED = 2
# Leaders that are remembered: the one there is, or the candidates of an election.
MOST_HEARD = 256
# The budget of all questions that beacons cause: among recorded beacons the real leader waits 2 s at most.
CAUSED = (8, 0.5)
# A leader that leaves so many questions unanswered does not receive them: one, or its answer, may be lost.
LEAST_UNANSWERED = 2
_ANSWERED = -1


class Questions:
    """The open nonces, and the leaders that have been asked."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[bytes, float] = {}  # nonce -> its end, oldest first
        # Leader -> number of questions without an answer, the time of the next one, and the leader's best address.
        self._heard: dict[bytes, tuple[int, float, str]] = {}
        self._next = clock()
        self.caused = Budget(*CAUSED, clock)  # of the questions that beacons cause

    def begin(self) -> None:
        """Start a new search: a leader that had answered may be asked again at once, as it was lost."""
        self._heard = {leader: heard for leader, heard in self._heard.items() if heard[0] != _ANSWERED}

    def wait_s(self, beacon: Beacon) -> float | None:
        """Return in how many seconds this beacon causes a question; None if its leader has just been asked."""
        now = self._clock()
        if beacon.leader not in self._heard and len(self._heard) >= MOST_HEARD:
            self._heard.clear()
        _, due, _ = self._heard.setdefault(beacon.leader, (0, now, beacon.best_address))
        return max(self._next - now, 0.0) if due <= now else None

    def retry_s(self, leader: bytes) -> float | None:
        """Return in how many seconds to ask this leader again without another beacon of it; None: not at all."""
        count, due, _ = self._heard.get(leader, (_ANSWERED, 0.0, ""))
        return max(due - self._clock(), 0.0) if 0 < count <= UNPROMPTED else None

    def ask(self) -> bytes:
        """Return a new nonce, open from now on. Its question goes to every leader so far."""
        now = self._clock()
        self._next = now + GAP_S
        for leader, (count, due, address) in self._heard.items():
            if due <= now:
                self._heard[leader] = (count + 1, now + AGAIN_S[min(max(count, 0), len(AGAIN_S) - 1)], address)
        nonce = os.urandom(NONCE_BYTES)
        self._open[nonce] = now + OPEN_S
        if len(self._open) > MOST_OPEN:
            del self._open[next(iter(self._open))]
        return nonce

    def is_answered(self, beacon: Beacon) -> bool:
        """Return whether this beacon answers an open nonce; several leaders may answer one."""
        now = self._clock()
        if not any(self._open.get(nonce, now) > now for nonce in beacon.nonces):
            return False
        self._heard[beacon.leader] = (_ANSWERED, now + CALL_S + BACKOFF_S, beacon.best_address)  # it is being dialled
        return True

    def unanswered(self) -> list[str]:
        """Return the addresses of the leaders that do not seem to receive the questions."""
        return [address for count, _, address in self._heard.values() if count >= LEAST_UNANSWERED]


# The questions that a leader receives: one beacon answers many, and two answer each, as one may be lost.

# Questions that are remembered, so that a replayed one is not answered again: one of each member of the largest world.
MOST_REMEMBERED = 16_384
# Questions that wait for an answer on one link; the oldest beyond that are dropped, and asked again.
MOST_WAITING = 1024


class Replies:
    """Nonces by the link on which they arrived. The newest is answered first: an old one is no longer open."""

    def __init__(self) -> None:
        self._seen: dict[bytes, None] = {}  # oldest first
        self._waiting: dict[Any, deque[bytes]] = {}
        self._taken: dict[Any, tuple[bytes, ...]] = {}  # by the last beacon of a link

    def add(self, link: object, nonce: bytes) -> bool:
        """Record a question; False if it was asked before."""
        if nonce in self._seen:
            return False
        self._seen[nonce] = None
        if len(self._seen) > MOST_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._waiting.setdefault(link, deque(maxlen=MOST_WAITING)).append(nonce)
        return True

    def links(self) -> list[Any]:
        """Return the links on which questions wait."""
        return list(self._waiting)

    def take(self, link: object) -> tuple[bytes, ...]:
        """Return the nonces that the next beacon on this link answers, and those of the last one that still fit."""
        waiting = self._waiting.get(link, deque())
        new = tuple(waiting.pop() for _ in range(min(len(waiting), MOST_NONCES)))
        if not waiting:
            self._waiting.pop(link, None)
        again = self._taken.pop(link, ())[: MOST_NONCES - len(new)]
        self._taken[link] = new
        return new + again


# The backend, over IPv4 and IPv6: for clusters without host names, and machines without a scheduler.
#
# Multicast only finds the leader, with few datagrams, whatever N: the leader repeats its beacon, a newcomer asks a few
# times, and no other member sends anything. Only a leader that answers a question is dialled, as a beacon alone may be
# a replayed one.

# A beacon's interval in seconds grows from the first to the last; a newcomer asks instead of waiting for it.
FIRST_BEACON_S, LAST_BEACON_S = 0.1, 1.0
GROWTH = 1.6
# In a minute the leader sends at most 10 + 60 beacons, 10 + 12 answers and 4 questions, a waiting member 2 + 2
# questions, and as many more as beacons cause (CAUSED): one, but for losses and recorded beacons.
BEACONS = (10, 1.0)
ANSWERS = (10, 0.2)
QUESTIONS = (2, 1 / 30)
# In a large world the leader may send one more answer for each 64 members, as one has room for 128.
MEMBERS_OF_AN_ANSWER = 64
# Seconds from a question to its answer, which so answers all members that ask meanwhile.
ANSWER_GAP_S = 0.005
# Members spread the questions that a beacon causes over so many seconds for each member of the world.
ASK_SPREAD_S = 50e-6
# A question on one link is repeated on the next after these seconds, as it or its answer may be lost.
ASK_AGAIN_S = (0.1, 1.0, 5.0, 20.0, 30.0)
# A candidate that receives a better one's beacon holds its own back for so many seconds, and asks that one.
HOLD_BACK_S = 0.5
# The most times that it does so: a replayed beacon must not silence it for good.
MOST_HOLDS = 4
# In an election candidates start within this many seconds, better ones sooner, so that few ever send.
SPREAD_S = 0.25
# Beacons under another key whose senders are dialled, so that the leader itself reports the mismatch.
MOST_DOUBTS = 4
# Members that are remembered because they ask: those of the largest world. And addresses that a message names.
MOST_QUERIERS, MOST_SHOWN = 16_384, 4


def backend(context: Context) -> MulticastBackend:
    """Return this backend. Raises NetworkError if no interface carries multicast, or ImportError."""
    backends = MulticastBackend(context, carriers(context.spec.settings.iface))
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
        self._beacon_timer, self._ask_timer, self._caused_timer = Timer(), Timer(), Timer()
        self._retry_timer, self._answer_timer = Timer(), Timer()
        self._wanted = False
        self._interval = FIRST_BEACON_S
        self._turns = itertools.count()
        self._questions_sent = 0
        self._holds = MOST_HOLDS
        clock = context.loop.clock
        answers, per_second = ANSWERS
        answers += (context.spec.nodes or 0) // MEMBERS_OF_AN_ANSWER
        self._beacons, self._answers = Budget(*BEACONS, clock), Budget(answers, per_second, clock)
        self._own = Budget(*QUESTIONS, clock)
        self._questions, self._replies = Questions(clock), Replies()
        self._doubts = MOST_DOUBTS
        self._queriers: dict[bytes, str] = {}  # member -> the address from which it asks this leader
        self._port = multicast_port(context.spec.attempt)
        self.faults: list[str] = []
        try:
            for info in infos:
                self._open(info)
        except BaseException:
            self.close()
            raise

    def search(self, *, wanted: bool) -> None:
        """Ask now and a few more times, or only listen."""
        self._wanted = wanted
        self._ask_later()
        if wanted:
            self._questions_sent = 0
            self._questions.begin()
            self._ask()

    def announce(self, advertisement: Advertisement | None) -> None:
        """Repeat this leader's beacon from now on, or stop."""
        self._beacon_timer.cancel()
        self._answer_timer.cancel()
        self._advertisement = advertisement
        if advertisement is not None:
            self._interval = FIRST_BEACON_S
            self._holds = MOST_HOLDS
            self._beacon_timer = self.context.loop.after(SPREAD_S * advertisement.ticket / 2**63, self._repeat)

    def tried(self) -> str:
        """Return groups and interfaces."""
        return ", ".join(link.label for link in self.links) + f" port {self._port}"

    def one_way(self, arrived: Collection[Entry]) -> list[str]:
        """Return whose multicast arrives here while ours does not seem to arrive there, for a message.

        These are leaders that do not answer, and members that ask this leader and are not among those that have
        checked in, `arrived`. It is a hint and no more: anybody can replay a beacon or question, from any address.
        """
        members = {entry.join_request.member for entry in arrived}
        # A member that was restarted has another id, and the same addresses.
        addresses = {text.partition("=")[0] for entry in arrived for text in entry.addresses.split()}
        absent = [
            address for member, address in self._queriers.items() if member not in members and address not in addresses
        ]
        ours = "arrives here, but ours does not arrive there"
        found = [(self._questions.unanswered(), ours), (absent, f"{ours}, or its TCP connections do not arrive here")]
        return [f"multicast from {_shown(which)} {what}" for which, what in found if which]

    def close(self) -> None:
        """Leave the groups."""
        self.announce(None)
        self.search(wanted=False)
        self._caused_timer.cancel()
        self._retry_timer.cancel()
        for link in self.links:
            link.close()
        self.links = []

    def _open(self, info: IfaceInfo) -> None:
        attempt = self.context.spec.attempt
        groups = [attempt.group4] * bool(info.ip4_addrs) + [attempt.group6] * bool(info.ip6_addrs)
        for group in groups:
            try:
                ttl = self.context.spec.settings.multicast_ttl
                self.links.append(Link(self.context.loop, self.received, info, group, self._port, ttl))
            except (OSError, RuntimeError) as error:  # it has vanished, or multicast_expert refuses it: others may work
                self._fault(info, error)

    def _send(self, kind: int, link: Link, nonces: tuple[bytes, ...]) -> None:
        packet = Beacon(kind, self.context.spec.attempt.tag, self.context.member, nonces=nonces)
        if (own := self._advertisement) is not None:
            packet = packet._replace(leader=own.leader, ticket=own.ticket, port=own.ports[0], addresses=own.addresses)
        try:
            link.send(pack_beacon(packet, self.context.secret))
        except OSError as error:
            self._fault(link.info, error)

    def _next_link(self) -> Link:
        return self.links[next(self._turns) % len(self.links)]

    def _fault(self, info: IfaceInfo, error: Exception) -> None:
        self.context.loop.missed(error)
        fault = f"{info.machine_name}: {reason(error)}"
        if fault not in self.faults:
            self.faults.append(fault)

    def _repeat(self) -> None:
        """Send a beacon over the links in turn, as far as the budget allows."""
        for _ in self.links:
            if not self._beacons.spend():
                break
            link = self._next_link()
            self._send(BEACON, link, self._replies.take(link))
        loop = self.context.loop
        self._beacon_timer = loop.after(loop.about(self._interval), self._repeat)
        self._interval = min(self._interval * GROWTH, LAST_BEACON_S)

    def _ask(self) -> None:
        if self.links and self._own.spend():
            self._send(QUESTION, self._next_link(), (self._questions.ask(),))
        self._ask_later()
        self._questions_sent += 1

    def _ask_later(self) -> None:
        """Schedule the next question, counted from the last one, as long as a leader is wanted."""
        self._ask_timer.cancel()
        if self._wanted:
            loop, delay = self.context.loop, ASK_AGAIN_S[min(self._questions_sent, len(ASK_AGAIN_S) - 1)]
            self._ask_timer = loop.after(loop.about(delay), self._ask)

    def _ask_about(self, packet: Beacon, link: Link) -> None:
        """Schedule a question to this beacon's leader, on the link where it arrived."""
        wait_s = self._questions.wait_s(packet)
        if wait_s is None or self._caused_timer.is_set:
            return
        loop = self.context.loop
        wait_s += ASK_SPREAD_S * (self.context.spec.nodes or 1) * loop.chance()
        self._caused_timer = loop.after(wait_s, lambda: self._ask_now(packet, link))

    def _ask_now(self, packet: Beacon, link: Link) -> None:
        if not self._is_news(packet) or not self._questions.caused.spend():
            return
        self._send(QUESTION, link, (self._questions.ask(),))
        self._ask_later()
        self._retry_timer.cancel()
        retry_s = self._questions.retry_s(packet.leader)
        if retry_s is not None:
            self._retry_timer = self.context.loop.after(retry_s, lambda: self._ask_about(packet, link))

    def _answer_soon(self, link: Link, packet: Beacon) -> None:
        """Schedule the answer to a question, unless it is scheduled."""
        if packet.nonces and self._replies.add(link, packet.nonces[0]) and not self._answer_timer.is_set:
            self._answer_timer = self.context.loop.after(ANSWER_GAP_S, self._answer_now)

    def _answer_now(self) -> None:
        """Answer all questions; those beyond the budget are answered by the next beacon."""
        for link in self._replies.links():
            if not self._answers.spend():
                return
            self._beacons.spend()  # it serves as one
            self._send(BEACON, link, self._replies.take(link))
        if self._replies.links():
            self._answer_timer = self.context.loop.after(ANSWER_GAP_S, self._answer_now)

    def received(self, link: Link, sock: socket.socket) -> None:
        """Read one datagram, from any sender."""
        try:
            data, where = sock.recvfrom(MOST_BYTES + 1)
        except OSError:  # an earlier send's error, or another reader was faster
            return
        packet = unpack_beacon(data, self.context.spec.attempt.tag, self.context.secret)
        if packet is None or (self._advertisement is not None and packet.leader == self._advertisement.leader):
            return
        source = str(where[0]).partition("%")[0]
        if not packet.genuine:
            self._doubt(packet, source)
        elif packet.kind == QUESTION and not self._is_better(packet):
            if self._advertisement is not None:
                self._note_querier(packet.leader, source)
                self._answer_soon(link, packet)
        elif self._is_news(packet):
            self._hold_back(packet)
            if packet.kind == QUESTION or not self._questions.is_answered(packet):
                self._ask_about(packet, link)
                return
            # Only the signed addresses: anybody can replay an answer, from any address.
            for address in sorted(packet.addresses, key=lambda address: address != source):
                self.context.dial(Endpoint(address, packet.port, "multicast"))

    def _note_querier(self, member: bytes, address: str) -> None:
        """Record a member that asks this leader; a link-local address is replaced by a better one."""
        is_known = not self._queriers.get(member, "fe80:").startswith("fe80:")
        if not is_known and member != NOBODY and len(self._queriers) < MOST_QUERIERS:  # earlier versions send NOBODY
            self._queriers[member] = address

    def _is_news(self, packet: Beacon) -> bool:
        """Return whether this leader matters: none is known, it is better, or it is a rival by right."""
        known = self.context.joined() if self._advertisement is None else self._advertisement.precedence
        if known is None:
            return self._wanted
        is_rival = packet.ticket == known[0] == 0 and packet.leader != known[1]
        return packet.precedence < known or is_rival

    def _is_better(self, packet: Beacon) -> bool:
        """Return whether a packet is a better candidate's, whose question has all the content of a beacon."""
        advertisement = self._advertisement
        return advertisement is not None and packet.port > 0 and packet.precedence < advertisement.precedence

    def _hold_back(self, packet: Beacon) -> None:
        if self._holds == 0 or not self._is_better(packet):
            return
        self._holds -= 1
        self._beacon_timer.cancel()
        self._beacon_timer = self.context.loop.after(HOLD_BACK_S, self._repeat)

    def _doubt(self, packet: Beacon, source: str) -> None:
        """Report a packet under another key, and dial a beacon's sender, which reports the mismatch itself."""
        self.context.reject(source)
        if packet.kind == BEACON and packet.port and self._doubts > 0 and not source.startswith("fe80"):
            self._doubts -= 1
            self.context.dial(Endpoint(source, packet.port, "multicast"))


def _shown(addresses: Iterable[str]) -> str:
    found = [*dict.fromkeys(addresses)]
    return ", ".join(found[:MOST_SHOWN]) + (" and more" if found[MOST_SHOWN:] else "")


# multicast_expert, whose asyncio sockets are loaded only on demand.

_ASYNC, _SOCKET = "multicast_expert.async_rx_socket", "AsyncMcastRxSocket"


def load_multicast_expert() -> None:
    """Import multicast_expert without asyncio, which would take half of the time. Raises any error of the import.

    Its asyncio socket is then imported on first use, by other code of this process.
    """
    if "multicast_expert" in sys.modules or "asyncio" in sys.modules:
        return
    sys.modules[_ASYNC] = stand_in = ModuleType(_ASYNC)
    setattr(stand_in, _SOCKET, None)
    try:
        import multicast_expert
    finally:
        del sys.modules[_ASYNC]
    if vars(multicast_expert).pop(_SOCKET, 0) is None:  # older versions of Python have no such socket
        multicast_expert.__getattr__ = _later  # type: ignore[method-assign]


def _later(name: str) -> object:
    if name != _SOCKET:
        raise AttributeError(f"module 'multicast_expert' has no attribute {name!r}")
    from multicast_expert.async_rx_socket import AsyncMcastRxSocket

    return AsyncMcastRxSocket
