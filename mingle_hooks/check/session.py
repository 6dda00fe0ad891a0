"""One check, from the start of its probes to the report, and the messages between probes and `mingle check`."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

from mingle_hooks.check.report import (
    Address,
    Count,
    Flow,
    Heard,
    Host,
    IpAddress,
    Mtu,
    Name,
    Network,
    Pair,
    PortNumber,
    Report,
    Space,
    Text,
    network_ends,
)
from mingle_hooks.check.rules import judge, shared_networks, slow_flows
from mingle_hooks.errors import printable
from mingle_hooks.export.variables import own
from mingle_hooks.net.addresses import is_hostname
from mingle_hooks.net.ports import DEFAULT_RANGE
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.fingerprint import LONGEST
from mingle_hooks.rendezvous.wire import (
    Body,
    Key,
    Most,
    Secret,
    WireError,
    integer,
    nested,
    parse,
    printable_text,
    within,
)
from mingle_hooks.run.hub import Launching, Sockets
from mingle_hooks.run.messages import JOIN, LEAVE, WELCOME, Join, Leave, Link, Message, Reception, Welcome
from mingle_hooks.run.runner import facts_of, option_seconds, plan_hosts
from mingle_hooks.run.starters import Allocation, Starter
from mingle_hooks.settings import load

# The messages between a probe and `mingle check`, on a link on which both have proved that they hold the key.
#
# ::
#
#     probe                                     mingle check
#       JOIN, WELCOME     as an agent's, and then
#       FACTS   what this host is            →
#                                            ←  ORDER   probe hosts; count what arrived; send to a host
#       ANSWER  the results                  →
#                                            ←  LEAVE
#
# All of it is parsed into bounded types: text of other hosts is shown on a terminal and on a page.

# These are distinct from the kinds of an agent's messages.
FACTS, ORDER, ANSWER = 48, 49, 50
# Variables of a probe, beside its key and the addresses of `mingle check`.
IFACE, PORTS = "MINGLE_IFACE", "MINGLE_PORT_RANGE"
PROBE, COUNT, SEND = "probe", "count", "send"

MOST_ADDRESSES, MOST_OF_HOST = 32, 256
MOST_HOSTS = 1 << 16

HostNumber = Annotated[int, within(0, MOST_HOSTS)]
IpAddresses = Annotated[tuple[IpAddress, ...], Most(MOST_ADDRESSES)]


class _Guest(NamedTuple):
    iface: Text
    address: IpAddress


def _guest(body: Body, name: str) -> tuple[str, str]:
    """Return a guest as a plain pair, as JSON has it."""
    iface, address = nested(_Guest)(body, name)
    return iface, address


class Peer(NamedTuple):
    """Another host on one network: its number, its turn, whether this host begins, and the addresses of both."""

    number: HostNumber
    turn: Annotated[int, within(0, MOST_HOSTS)]
    begins: bool
    network: Annotated[int, within(0, MOST_HOSTS)]
    mine: IpAddress
    theirs: IpAddress
    port: PortNumber
    mtu: Mtu  # the smaller one of the two interfaces'


class Measured(NamedTuple):
    """What a probe measured to another host on one network; `closed` is why TCP failed, "" if it did not.

    `had_no_room`: its kernel's neighbour table had no room for that host, at least once.
    """

    number: HostNumber
    network: Annotated[int, within(0, MOST_HOSTS)]
    sent: Annotated[int, within(0, MOST_HOSTS)]
    rtt_us: Count | None
    mtu: Mtu | None
    closed: Text
    had_no_room: bool


class HeardRow(NamedTuple):
    """Multicast on one interface, with the numbers of the hosts that were heard."""

    iface: Text
    hosts: Annotated[tuple[HostNumber, ...], Most(MOST_HOSTS)]
    fault: Text


class NameRow(NamedTuple):
    """The addresses of host `number`'s name on the probe's host; None if the name service did not answer."""

    number: HostNumber
    addresses: IpAddresses | None


class HostName(NamedTuple):
    """A host's number, and the name to look up."""

    number: HostNumber
    name: Annotated[str, printable_text(253)]


class ProbeOrder(NamedTuple):
    """PROBE: send datagrams to each peer; a turn lasts `turn_us`, all of it `most_ms` at most."""

    peers: Annotated[tuple[Peer, ...], Most(MOST_HOSTS)]
    names: Annotated[tuple[HostName, ...], Most(MOST_HOSTS)]
    datagrams: Annotated[int, Key("count"), within(1, 1000)]
    multicast: bool
    limit_ms: Annotated[int, within(0, 10**8)]
    most_ms: Annotated[int, within(0, 10**8)]
    turn_us: Annotated[int, within(1, 10**8)]


class SendOrder(NamedTuple):
    """SEND: send as much as possible to one host in this time."""

    number: HostNumber
    theirs: IpAddress
    port: Annotated[int, within(1, 65535)]
    limit_ms: Annotated[int, within(0, 10**6)]


class Arrived(NamedTuple):
    """How many datagrams of a host arrived on one network."""

    sender: HostNumber
    network: Annotated[int, within(0, MOST_HOSTS)]
    datagrams: Annotated[int, within(0, 1 << 20)]


class Found(NamedTuple):
    """The answer to PROBE: addresses of others' names and its own, and for how long the probe did not run."""

    names: Annotated[tuple[NameRow, ...], Most(MOST_HOSTS)]
    own: IpAddresses | None
    late_ms: Annotated[int, within(0, 1 << 31)]


class Counted(NamedTuple):
    """The answer to COUNT."""

    met: Annotated[tuple[Measured, ...], Most(MOST_HOSTS)]
    heard: Annotated[tuple[Arrived, ...], Most(MOST_HOSTS)]
    dropped: Annotated[int, within(0, 1 << 62)]
    multicast: Annotated[tuple[HeardRow, ...], Most(MOST_HOSTS)]


class _Facts(NamedTuple):
    """FACTS: the fields of report.Host, except its name."""

    hostname: Annotated[str, printable_text(253)]
    identity: Annotated[str, printable_text(253)]
    gpus: Annotated[int, within(0, 1 << 16)] | None
    fingerprint: Annotated[str, printable_text(LONGEST)]
    addresses: Annotated[tuple[Address, ...], Most(MOST_ADDRESSES)]
    every: Annotated[tuple[IpAddress, ...], Most(MOST_OF_HOST)]
    guests: Annotated[tuple[Annotated[tuple[str, str], _guest], ...], Most(MOST_ADDRESSES)]
    spaces: Annotated[tuple[Space, ...], Most(MOST_ADDRESSES)]
    faults: Annotated[tuple[Text, ...], Most(MOST_ADDRESSES)]


def parse_report_host(name: str, body: Body) -> Host:
    """Return a host with its facts. Raises WireError."""
    return Host(name=name, **parse(_Facts, body)._asdict())


# The datagrams between probes, which only holders of the check's key can make.
#
# ``magic | kind | from | to | network | value | time | MAC (8)``; a SIZE has zeros after it, up to its size.

# A ping and its echo; one that needs no echo; one of a given size, and its confirmation; a TCP listener's greeting; a
# multicast.
PING, ECHO, NOTE, SIZE, SIZED, HERE, ALL = range(1, 8)
_HEAD = struct.Struct("!4sBHHHIQ")
_MAGIC, _MAC_BYTES = b"MCHK", 8
BYTES = _HEAD.size + _MAC_BYTES
# The headers of IP and UDP.
HEADERS_4, HEADERS_6 = 28, 48


class Packet(NamedTuple):
    """A datagram from host `sender` to host `to`; `value` is a counter, or a size in octets; `time` in nanoseconds."""

    kind: int
    sender: int
    to: int
    network: int = 0
    value: int = 0
    time: int = 0


def pack_packet(secret: Secret, packet: Packet) -> bytes:
    """Return the datagram."""
    return secret.sealed(_HEAD.pack(_MAGIC, *packet), _MAC_BYTES, b"check")


def unpack_packet(secret: Secret, data: bytes) -> Packet | None:
    """Return the packet in a datagram; None if no holder of the key made it."""
    if len(data) < BYTES or not data.startswith(_MAGIC):
        return None
    head = secret.opened(data[:BYTES], _MAC_BYTES, b"check")
    return None if head is None else Packet(*_HEAD.unpack(head)[1:])


def padding(where: str, size: int) -> int:
    """Return how many zeros make a datagram to this address a packet of `size` octets."""
    return max(size - (HEADERS_6 if ":" in where else HEADERS_4) - BYTES, 0)


# The options of one `mingle check`: hosts, networks, ports and deadlines.

# Starting may be slow without any fault of a host: logins take 5 s if a directory service is busy.
START_S = 60.0
# Up to this many hosts a check takes this long after their start, in seconds; each further host adds: 15 s for 256.
_FEW, _FEW_S, _EACH_S = 16, 5.0, 1 / 24


class CheckRequest(NamedTuple):
    """A check: `start_s` bounds the start of the probes, `timeout_s` all that follows except transfers."""

    starter: Starter
    job: Allocation
    timeout_s: float
    start_s: float = START_S
    is_bandwidth: bool = False
    iface: tuple[object, ...] = ()
    port_range: range = DEFAULT_RANGE


def check_request(
    settings: Mapping[str, object], hosts: str | None, timeout: str | None, start: str | None, *, is_bandwidth: bool
) -> CheckRequest:
    """Return the check that these options describe. Raises UsageError, FactsError and SettingsError."""
    users = own(os.environ)
    loaded = load(users, settings)
    starter, job = plan_hosts(facts_of(users, loaded, hosts), users, hosts)
    limit_s = option_seconds(timeout, "--timeout", _FEW_S + max(len(job.hosts) - _FEW, 0) * _EACH_S)
    start_s = option_seconds(start, "--start", START_S)
    return CheckRequest(starter, job, limit_s, start_s, is_bandwidth, loaded.iface, loaded.port_range)


# The probes' reports: which probes are connected, and what each has sent.

# Callers that have not sent JOIN; hosts are a few thousand at most.
_MOST_STRANGERS = 8192
_SILENCE_MS = 60_000  # probes send no heartbeats, and expect none


class ProbeListener:
    """Collects `facts` and `answers` by host number; `gone` has why the connection of a host ended."""

    def __init__(self, loop: Loop, sockets: Sockets, secret: Secret, hosts: Sequence[str]) -> None:
        self._sockets = sockets
        self._numbers = {host: number for number, host in enumerate(hosts)}
        self._here: dict[int, Link] = {}
        self.facts: dict[int, Body] = {}
        self.answers: dict[int, list[Body]] = {}
        self.gone: dict[int, str] = {}
        self._reception = Reception(loop, sockets.listeners, secret, self._introduced, _MOST_STRANGERS)
        self._reception.on_end = self._ended

    def send(self, number: int, kind: int, message: Message) -> None:
        """Send a message to a probe, if it is connected."""
        if number in self._here:
            self._here[number].send_message(kind, message)

    def dismiss(self) -> None:
        """Have all probes exit."""
        for number in self._here:
            self.send(number, LEAVE, Leave(0))

    def close(self) -> None:
        """Close all connections."""
        self._reception.close()
        for link in self._here.values():
            link.close()

    def _ended(self, link: Link, why: str) -> None:
        for number, other in [*self._here.items()]:
            if other is link:
                del self._here[number]
                self.gone[number] = why

    def _introduced(self, link: Link, kind: int, body: Body) -> None:
        """Accept a probe of this check. Raises WireError for any other caller."""
        self._reception.admit(link)
        number = self._numbers.get(parse(Join, body).host)
        if kind != JOIN or number is None or number in self._here:
            raise WireError("no host of this check")
        self._here[number] = link
        link.on_message = lambda kind, body: self._received(number, kind, body)
        link.send_message(WELCOME, Welcome(number, self._sockets.port, _SILENCE_MS))

    def _received(self, number: int, kind: int, body: Body) -> None:
        if kind == FACTS:
            self.facts[number] = body
        elif kind == ANSWER:
            self.answers.setdefault(number, []).append(body)
        else:
            raise WireError("not a probe's message")


# Which hosts probe each other, and when: few at once, and of many hosts each probes only some.

Round = tuple[tuple[int, int], ...]  # pairs; the first host of each begins

# Up to this many hosts, all pairs are probed.
MOST_WITH_ALL = 64
# Beyond, each host begins with this many others, and as many begin with it.
_OFFSETS = 4
# Datagrams to each host. Among few hosts, each has to count more.
FEW, MANY_DATAGRAMS, DATAGRAMS = 8, 20, 10


def probe_rounds(count: int) -> tuple[Round, ...]:
    """Return the rounds: a tournament in which all meet, or, for many hosts, a ring with some longer steps across."""
    return _tournament(count) if count <= MOST_WITH_ALL else _ring(count)


def other_hosts(count: int) -> int | None:
    """Return how many others each host probes; None for all."""
    return None if count <= MOST_WITH_ALL else 2 * len(_offsets(count))


def datagram_rounds(count: int) -> int:
    """Return how many datagrams a host sends to each other host."""
    return MANY_DATAGRAMS if count <= FEW else DATAGRAMS


def transfer_rounds(count: int) -> tuple[Round, ...]:
    """Return rounds of senders and receivers: each sends to both of its neighbours in a ring, one at a time."""
    if count < 2:  # noqa: PLR2004 - no host to send to
        return ()
    edges = [(i, (i + 1) % count) for i in range(count)]
    parts = [edges[0 : count - count % 2 : 2], edges[1::2], edges[count - 1 :] if count % 2 else []]
    if count == 2:  # noqa: PLR2004 - one wire
        parts = [edges[:1]]
    both = [part if is_forth else [(b, a) for a, b in part] for part in parts for is_forth in (True, False)]
    return tuple(tuple(part) for part in both if part)


def _tournament(count: int) -> tuple[Round, ...]:
    """Return the circle method's rounds; each host begins about half of its probes."""
    players: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    half = len(players) // 2
    rounds = []
    for _ in range(len(players) - 1):
        pairs = zip(players[:half], reversed(players[half:]), strict=True)
        rounds.append(tuple(_ordered(one, other) for one, other in pairs if one is not None and other is not None))
        players[1:] = [players[-1], *players[1:-1]]
    return tuple(rounds)


def _ordered(one: int, other: int) -> tuple[int, int]:
    low, high = sorted((one, other))
    return (low, high) if (low + high) % 2 else (high, low)


def _ring(count: int) -> tuple[Round, ...]:
    return tuple(tuple((i, (i + offset) % count) for i in range(count)) for offset in _offsets(count))


def _offsets(count: int) -> tuple[int, ...]:
    """Return steps that grow by the same factor, so that any two hosts are a few steps apart."""
    base = count ** (1 / _OFFSETS)
    return tuple(sorted({round(base**power) for power in range(_OFFSETS)}))


# From hosts to the orders of their probes, and from the answers to a report.

# Of more hosts than this, only this many send multicast; all listen.
_MOST_SPEAKERS = 64
_MTU = 1500  # of an interface that does not report one

Rows = dict[tuple[int, int, int], Measured]  # from host, to host, network
Arrivals = dict[tuple[int, int, int], int]  # the same -> datagrams that arrived


def probe_orders(hosts: Sequence[Host], here: Sequence[int], shared: Sequence[Network]) -> tuple[dict[int, Body], int]:
    """Return the order of each host's probe, and how many turns that takes."""
    turns = probe_rounds(len(here))
    step = -(-len(here) // _MOST_SPEAKERS)
    orders: dict[int, Body] = {
        number: {"peers": [], "names": [], "count": datagram_rounds(len(here)), "multicast": place % step == 0}
        for place, number in enumerate(here)
    }
    networks = [network_ends(hosts, network) for network in shared]
    for turn, pairs in enumerate(turns):
        for a, b in pairs:
            for begins, number, other in ((True, here[a], here[b]), (False, here[b], here[a])):
                host = hosts[other]
                orders[number]["names"].append({"number": other, "name": _name_to_look_up(host)})
                for network, ends in enumerate(networks):
                    mine, theirs = ends.get(hosts[number].name), ends.get(host.name)
                    if mine and theirs and mine.address != theirs.address and theirs.port:  # 0: it found no free port
                        mtu = min(theirs.mtu or _MTU, mine.mtu or _MTU)
                        peer = Peer(other, turn, begins, network, mine.address, theirs.address, theirs.port, mtu)
                        orders[number]["peers"].append(peer._asdict())
    return orders, len(turns)


def _name_to_look_up(host: Host) -> str:
    """Return the name that others know a host by: the job's, or the host's own if that is an address."""
    is_address = ":" in host.name or not host.name.strip("0123456789.")
    return host.hostname if is_address or host.name == "localhost" or not is_hostname(host.name) else host.name


def assemble_report(
    hosts: Sequence[Host],
    here: Sequence[int],
    shared: Sequence[Network],
    met: Mapping[int, Body],
    counted: Mapping[int, Body],
    clocks: Mapping[int, tuple[float, float]],
) -> Report:
    """Return the report, without findings; a host that stopped answering is missing."""
    names = [host.name for host in hosts]
    rows: Rows = {}
    arrived: Arrivals = {}
    dropped: dict[int, int] = {}
    found = [*hosts]
    for number in here:
        try:
            answer = parse(Counted, counted[number])
            found[number] = _completed(hosts[number], names, parse(Found, met[number]), answer, len(here))
        except (KeyError, WireError) as wrong:
            why = f": {wrong}" if isinstance(wrong, WireError) else ""
            missing = f"it started, then did not answer in time{why}"
            found[number] = hosts[number]._replace(missing=missing, is_late=not why)
            continue
        found[number] = found[number]._replace(clock=clocks.get(number))
        rows |= {(number, row.number, row.network): row for row in answer.met}
        arrived |= {(row.sender, number, row.network): row.datagrams for row in answer.heard}
        dropped[number] = answer.dropped
    for number, count in dropped.items():
        lost = sum(max(row.sent - arrived.get(way, 0), 0) for way, row in rows.items() if way[1] == number)
        if lost <= count:  # nothing else was lost on the way to it
            found[number] = found[number]._replace(dropped=count)
    pairs = [*_pairs(found, here, shared, rows, arrived)]
    sound, unknown = (tuple(pair for pair, is_known in pairs if is_known == which) for which in (True, False))
    present = {found[number].name for number in dropped}
    networks = tuple(
        network._replace(
            hosts=tuple(host for host in network.hosts if host in present),
            addresses=tuple(end.address for host, end in network_ends(hosts, network).items() if host in present),
        )
        for network in shared
    )
    return Report(tuple(found), networks, sound, unknown=unknown)


def _completed(host: Host, hosts: Sequence[str], found: Found, counted: Counted, count: int) -> Host:
    """Return one of `count` hosts with what its probe found. Raises WireError."""
    heard = counted.multicast
    if any(number >= len(hosts) for row in heard for number in row.hosts):
        raise WireError("hosts: no host of this check")
    return host._replace(
        late_s=found.late_ms / 1000,
        own_name=found.own,
        names=tuple(Name(hosts[row.number], row.addresses) for row in found.names if row.number < len(hosts)),
        multicast=tuple(Heard(row.iface, tuple(hosts[n] for n in sorted(set(row.hosts))), row.fault) for row in heard),
        had_no_room=any(row.had_no_room for row in counted.met),
        refused=sum(row.had_no_room and row.sent < datagram_rounds(count) for row in counted.met),
    )


def _pairs(
    hosts: Sequence[Host], here: Sequence[int], shared: Sequence[Network], rows: Rows, arrived: Arrivals
) -> Iterator[tuple[Pair, bool]]:
    """Yield the pairs that both ends measured, and whether losses between them are known to be real."""
    count = datagram_rounds(len(here))
    for one, other in (pair for turn in probe_rounds(len(here)) for pair in turn):
        a, b = here[one], here[other]
        for network, shared_network in enumerate(shared):
            there, back = rows.get((a, b, network)), rows.get((b, a, network))
            if there is None or back is None:
                continue
            pair = Pair(
                hosts[a].name,
                hosts[b].name,
                shared_network.name,
                there.sent,
                min(arrived.get((a, b, network), 0), there.sent),
                back.sent,
                min(arrived.get((b, a, network), 0), back.sent),
                there.rtt_us,
                there.mtu,
                there.closed,
                back.closed,
            )
            is_busy = any(hosts[number].late_s or hosts[number].dropped for number in (a, b))
            if is_busy or there.had_no_room or back.had_no_room:
                is_whole = pair.there == pair.back == count and pair.open_there == pair.open_back == ""
                yield pair._replace(mtu=None), is_whole
            else:
                yield pair, True


def mbits(answer: Body | None) -> int | None:
    """Return the throughput of a transfer in Mbit/s; None if it is not known."""
    try:
        octets, took_ns = (integer(answer or {}, name, 0, 1 << 62) for name in ("octets", "ns"))
    except WireError:
        return None
    return octets * 8 * 1000 // took_ns if took_ns else None


# The check itself.

# The share for probing of the time after the start; the rest is for what follows.
_PROBE_SHARE = 0.25
# What has not arrived after this many seconds, in which the probe ran, is lost: TCP connects again after 1 s and 3 s. A
# probe that does not run at times may take longer, up to the time of the whole check.
_PROBE_S = 3.5
_COUNT_S, _TRANSFER_S, _LEAVE_S = 1.0, 2.0, 1.0
# How often the starters' ends are looked for, in seconds.
_POLL_S = 0.05
# This many slow transfers are tried again, this often: another program may have used the network.
_MOST_AGAIN, _AGAIN = 8, 2
_LONGEST_WHY = 200


def run_check(request: CheckRequest) -> Report:
    """Return the report. Raises UsageError, NetworkError and PlaceError."""
    with Loop() as loop:
        session = Session(loop, request)
        try:
            session.start()
            return session.report()
        finally:
            session.close()


class Session:
    """The probes of one check. A turn of probing takes at most `turn_s` seconds, all turns `turns_s`."""

    turn_s, turns_s = 0.04, 1.0

    def __init__(self, loop: Loop, request: CheckRequest) -> None:
        self._loop, self._request, self._began = loop, request, loop.clock()
        self._started = self._began
        environ = {PORTS: f"{request.port_range.start}-{request.port_range.stop - 1}"}
        if request.iface:
            environ[IFACE] = ",".join(wish.text for wish in request.iface)  # type: ignore[attr-defined]
        self._launching = Launching(
            loop,
            request.starter,
            request.job,
            "probe",
            iface=request.iface,
            port_range=request.port_range,
            environ=environ,
        )
        self._launching.on_end = self._starter_ended
        self._processes = self._launching.processes
        self._names = request.job.hosts
        self.listener = ProbeListener(loop, self._launching.sockets, self._launching.secret, self._names)
        self._ended: dict[str, str] = {}  # host -> the last line of its starter's output, and its status

    def start(self) -> None:
        """Start a probe on each host."""
        self._launching.start(self._names)
        self._poll_processes()

    def close(self) -> None:
        """End all probes, and close the sockets."""
        self.listener.dismiss()
        self._until(lambda: not self._processes.running, _LEAVE_S)
        self._processes.kill(at_once=True)
        for process in self._processes.running:
            process.wait()
        self._processes.poll()
        self.listener.close()
        self._launching.close()

    def report(self) -> Report:
        """Wait for the probes, send them their orders, and return the report of their answers."""
        self._until(self._is_complete, self._request.start_s)
        self._started = self._loop.clock()
        hosts = self._hosts()
        here = [number for number, host in enumerate(hosts) if host.missing is None]
        shared = shared_networks([hosts[number] for number in here])
        orders, turns = probe_orders(hosts, here, shared)
        turn_s = min(self.turn_s, self.turns_s / max(turns, 1))
        limit_s = min(self._request.timeout_s * _PROBE_SHARE, _PROBE_S) + turns * turn_s
        most_s = max(limit_s, self._left_s() - 2 * _COUNT_S)
        for order in orders.values():
            order |= {"do": PROBE, "limit_ms": int(limit_s * 1000), "most_ms": int(most_s * 1000)}
            order |= {"turn_us": int(turn_s * 1_000_000)}
        met, _ = self.gather(orders, most_s + _COUNT_S)
        counted, clocks = self.gather({number: {"do": COUNT} for number in here}, max(self._left_s(), _COUNT_S))
        found = assemble_report(hosts, here, shared, met, counted, clocks)
        found = found._replace(others=other_hosts(len(here)))
        if self._request.is_bandwidth and shared:
            found = found._replace(flows=self._flows(hosts, found.networks[0]))
        return judge(found._replace(took_s=round(self._loop.clock() - self._began, 3)))

    def gather(
        self, orders: Mapping[int, Body], limit_s: float
    ) -> tuple[dict[int, Body], dict[int, tuple[float, float]]]:
        """Send orders; return the answers that arrive in time, and how far each host's clock is ahead.

        The latter is in seconds: at least, at most.
        """
        sent_at = time.time()
        self.listener.answers.clear()
        arrived_at: dict[int, float] = {}
        for number, order in orders.items():
            self.listener.send(number, ORDER, order)

        def is_complete() -> bool:
            for number in self.listener.answers.keys() - arrived_at.keys():
                arrived_at[number] = time.time()
            return all(number in arrived_at or number in self.listener.gone for number in orders)

        self._until(is_complete, limit_s)
        answers = {number: bodies[0] for number, bodies in self.listener.answers.items() if number in orders}
        clocks = {}
        for number, answer in answers.items():
            if "time_ms" in answer:
                clock_s = integer(answer, "time_ms", 0, 1 << 62) / 1000
                clocks[number] = (clock_s - arrived_at.get(number, time.time()), clock_s + 0.001 - sent_at)
        return answers, clocks

    def _left_s(self) -> float:
        """Return how much is left of the time after the start, in seconds."""
        return self._started + self._request.timeout_s - self._loop.clock()

    # --- The hosts.

    def _until(self, holds: Callable[[], bool], limit_s: float) -> None:
        end = self._loop.clock() + limit_s
        wake = self._loop.after(limit_s, lambda: None)
        self._loop.run(lambda: holds() or self._loop.clock() >= end)
        wake.cancel()

    def _poll_processes(self) -> None:
        self._processes.poll()
        self._loop.after(_POLL_S, self._poll_processes)

    def _starter_ended(self, hosts: tuple[str, ...], status: int, output: str) -> None:
        lines = output.strip().splitlines()
        for name in hosts:
            line = next((line for line in reversed(lines) if name in line), lines[-1] if lines else "no word")
            self._ended[name] = f"did not start: {printable(line, _LONGEST_WHY)} (status {status})"

    def _is_complete(self) -> bool:
        return all(number in self.listener.facts or name in self._ended for number, name in enumerate(self._names))

    def _hosts(self) -> tuple[Host, ...]:
        return tuple(self._host(number, name) for number, name in enumerate(self._names))

    def _host(self, number: int, name: str) -> Host:
        if number in self.listener.facts and number not in self.listener.gone:
            try:
                return parse_report_host(name, self.listener.facts[number])
            except WireError as wrong:
                return Host(name, missing=f"it sent what no probe of this version sends: {wrong}")
        if name in self._ended:
            return Host(name, self._ended[name])
        silent = (
            f"no sign of it within {self._request.start_s:.1f} s: it has not started yet (--start), or does not reach"
            f" this host's port {self._launching.sockets.port} (--iface, --port-range)"
        )
        return Host(name, silent, is_late=True)

    # --- Transfers.

    def _flows(self, hosts: tuple[Host, ...], network: Network) -> tuple[Flow, ...]:
        """Have each host send to two others; slow transfers are tried again, alone."""
        numbers = {host.name: number for number, host in enumerate(hosts)}
        there = [numbers[name] for name in network.hosts]
        found: dict[tuple[int, int], Flow] = {}
        for part in transfer_rounds(len(there)):
            found |= self._transfer(hosts, network, [(there[a], there[b]) for a, b in part])
        for _ in range(_AGAIN):
            for flow in slow_flows(tuple(found.values()))[:_MOST_AGAIN]:
                way = numbers[flow.sender], numbers[flow.receiver]
                (again,) = self._transfer(hosts, network, [way]).values()
                found[way] = max(flow, again, key=lambda flow: flow.mbits or 0)
        return tuple(found.values())

    def _transfer(
        self, hosts: tuple[Host, ...], network: Network, ways: list[tuple[int, int]]
    ) -> dict[tuple[int, int], Flow]:
        ends = network_ends(hosts, network)
        orders = {}
        for sender, receiver in ways:
            end = ends[hosts[receiver].name]
            order = SendOrder(receiver, end.address, end.port, int(_TRANSFER_S * 1000))
            orders[sender] = {"do": SEND, **order._asdict()}
        answers, _ = self.gather(orders, _TRANSFER_S + _COUNT_S)
        return {
            (sender, receiver): Flow(hosts[sender].name, hosts[receiver].name, network.name, mbits(answers.get(sender)))
            for sender, receiver in ways
        }
