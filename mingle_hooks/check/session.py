"""One check from the start of its probes to the report, and what probes and `mingle check` say to each other."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
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
)
from mingle_hooks.check.rules import judge, shared_networks, slow_flows
from mingle_hooks.errors import printable
from mingle_hooks.export.variables import own
from mingle_hooks.net.addresses import is_hostname
from mingle_hooks.net.ports import DEFAULT_RANGE
from mingle_hooks.rendezvous.connection import Callers, Loop
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
from mingle_hooks.run.messages import JOIN, LEAVE, WELCOME, Join, Leave, Link, Message, Welcome
from mingle_hooks.run.runner import facts_of, option_seconds, plan_hosts
from mingle_hooks.run.starters import Allocation, Starter
from mingle_hooks.settings import load

# What a probe and `mingle check` say to each other, over a link that both have proved themselves on.
#
# ::
#
#     probe                                     mingle check
#       JOIN, WELCOME     as a supervisor's, and then
#       FACTS   what this host is            →
#                                            ←  ORDER   probe these; count what came; send to this one
#       ANSWER  what came of it              →
#                                            ←  LEAVE
#
# All that is said is parsed into bounded types: other hosts' text ends up on a terminal and on a page.

# Beside the kinds of a supervisor's messages.
FACTS, ORDER, ANSWER = 48, 49, 50
# What the probe is told by its environment, beside the key and the way.
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
    """Another host on one network: who it is, when its turn is, whether this one begins, and the way there."""

    number: HostNumber
    turn: Annotated[int, within(0, MOST_HOSTS)]
    begins: bool
    network: Annotated[int, within(0, MOST_HOSTS)]
    mine: IpAddress
    theirs: IpAddress
    port: PortNumber
    mtu: Mtu  # the smaller one of both interfaces'


class Measured(NamedTuple):
    """What a probe knows of another host on one network: what it sent, round trip, largest packet, why TCP failed.

    `had_no_room` tells that its kernel took nothing for that host, at one time at least.
    """

    number: HostNumber
    network: Annotated[int, within(0, MOST_HOSTS)]
    sent: Annotated[int, within(0, MOST_HOSTS)]
    rtt_us: Count | None
    mtu: Mtu | None
    closed: Text
    had_no_room: bool


class HeardRow(NamedTuple):
    """Multicast on one interface as a probe reports it, with the numbers of hosts."""

    iface: Text
    hosts: Annotated[tuple[HostNumber, ...], Most(MOST_HOSTS)]
    fault: Text


class NameRow(NamedTuple):
    """The addresses of host `number`'s name as a probe found them; None where the name service did not answer."""

    number: HostNumber
    addresses: IpAddresses | None


class HostName(NamedTuple):
    """A host's number, and its name to look up."""

    number: HostNumber
    name: Annotated[str, printable_text(253)]


class ProbeOrder(NamedTuple):
    """PROBE: with so many datagrams to each peer; a turn lasts `turn_us`, the whole `most_ms` at most."""

    peers: Annotated[tuple[Peer, ...], Most(MOST_HOSTS)]
    names: Annotated[tuple[HostName, ...], Most(MOST_HOSTS)]
    datagrams: Annotated[int, Key("count"), within(1, 1000)]
    multicast: bool
    limit_ms: Annotated[int, within(0, 10**8)]
    most_ms: Annotated[int, within(0, 10**8)]
    turn_us: Annotated[int, within(1, 10**8)]


class SendOrder(NamedTuple):
    """SEND: as much as gets through to one host in this time."""

    number: HostNumber
    theirs: IpAddress
    port: Annotated[int, within(1, 65535)]
    limit_ms: Annotated[int, within(0, 10**6)]


class Arrived(NamedTuple):
    """How many datagrams came from a host on one network."""

    sender: HostNumber
    network: Annotated[int, within(0, MOST_HOSTS)]
    datagrams: Annotated[int, within(0, 1 << 20)]


class Found(NamedTuple):
    """What a probe found on PROBE: what others' names and its own are, and for how long it stood still."""

    names: Annotated[tuple[NameRow, ...], Most(MOST_HOSTS)]
    own: IpAddresses | None
    late_ms: Annotated[int, within(0, 1 << 31)]


class Counted(NamedTuple):
    """What a probe answers to COUNT."""

    met: Annotated[tuple[Measured, ...], Most(MOST_HOSTS)]
    heard: Annotated[tuple[Arrived, ...], Most(MOST_HOSTS)]
    dropped: Annotated[int, within(0, 1 << 62)]
    multicast: Annotated[tuple[HeardRow, ...], Most(MOST_HOSTS)]


class _Facts(NamedTuple):
    """What a host says of itself: report.Host's fields but its name."""

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
    """Return what a host says of itself. Raises WireError."""
    return Host(name=name, **parse(_Facts, body)._asdict())


# The datagrams between probes, which only holders of the check's key can make.
#
# ``magic | kind | from | to | network | value | time | MAC (8)``, and zeros up to its size where that is what counts.

# Asks for an echo; the echo; asks for nothing; one of a size, and that it came; a door's word, and one to all.
PING, ECHO, NOTE, SIZE, SIZED, HERE, ALL = range(1, 8)
_HEAD = struct.Struct("!4sBHHHIQ")
_MAGIC, _MAC_BYTES = b"MCHK", 8
BYTES = _HEAD.size + _MAC_BYTES
# What IP and UDP put in front.
HEADERS_4, HEADERS_6 = 28, 48


class Packet(NamedTuple):
    """From which host to which, on which network; `value` counts, or is a size in octets, `time` in nanoseconds."""

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
    """Return what a datagram says; None where it is none of ours."""
    if len(data) < BYTES or not data.startswith(_MAGIC):
        return None
    head = secret.opened(data[:BYTES], _MAC_BYTES, b"check")
    return None if head is None else Packet(*_HEAD.unpack(head)[1:])


def padding(where: str, size: int) -> int:
    """Return how many zeros make a datagram to this address a packet of so many octets."""
    return max(size - (HEADERS_6 if ":" in where else HEADERS_4) - BYTES, 0)


# What one `mingle check` is asked for: on which hosts, by which networks and ports, and for how long.

# Starting may be slow without any fault of a host: logins of 5 s are usual where a directory service is busy.
START_S = 60.0
# Up to so many hosts a check is over so long after their start, in seconds; for 256 hosts after 15.
_FEW, _FEW_S, _EACH_S = 16, 5.0, 1 / 24


class CheckRequest(NamedTuple):
    """What a check needs to know; `start_s` is for starting probes, `timeout_s` for what follows but transfers."""

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
    """Return what this call asks for. Raises UsageError, FactsError and SettingsError."""
    users = own(os.environ)
    loaded = load(users, settings)
    starter, job = plan_hosts(facts_of(users, loaded, hosts), users, hosts)
    limit_s = option_seconds(timeout, "--timeout", _FEW_S + max(len(job.hosts) - _FEW, 0) * _EACH_S)
    start_s = option_seconds(start, "--start", START_S)
    return CheckRequest(starter, job, limit_s, start_s, is_bandwidth, loaded.iface, loaded.port_range)


# Where probes report: who has come with the check's key, and what each says.

# Callers that have not said who they are; hosts are a few thousand at most.
_MOST_STRANGERS = 8192
_SILENCE_MS = 60_000  # a probe gives no signs of life, and expects none


class ProbeListener:
    """`facts` and `answers` are what hosts have said, by number; `gone` is why one that was here is not any more."""

    def __init__(self, loop: Loop, sockets: Sockets, secret: Secret, hosts: Sequence[str]) -> None:
        self._loop, self._sockets, self._secret = loop, sockets, secret
        self._numbers = {host: number for number, host in enumerate(hosts)}
        self._strangers: dict[Link, None] = {}
        self._here: dict[int, Link] = {}
        self.facts: dict[int, Body] = {}
        self.answers: dict[int, list[Body]] = {}
        self.gone: dict[int, str] = {}
        Callers(loop, sockets.listeners, self._greet)

    def send(self, number: int, kind: int, message: Message) -> None:
        """Tell a probe something, if it is here."""
        if number in self._here:
            self._here[number].send(kind, message)

    def dismiss(self) -> None:
        """Let all go."""
        for number in self._here:
            self.send(number, LEAVE, Leave(0))

    def close(self) -> None:
        """Close all."""
        for link in (*self._strangers, *self._here.values()):
            link.close()

    def _greet(self, sock: socket.socket, _where: str) -> None:
        link = Link(self._loop, sock, self._secret, is_runner=True, on_end=lambda why: self._forget(link, why))
        link.on_message = lambda kind, body: self._introduced(link, kind, body)
        self._strangers[link] = None
        if len(self._strangers) > _MOST_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.close()

    def _forget(self, link: Link, why: str) -> None:
        self._strangers.pop(link, None)
        for number, its in [*self._here.items()]:
            if its is link:
                del self._here[number]
                self.gone[number] = why

    def _introduced(self, link: Link, kind: int, body: Body) -> None:
        """Take in who holds the key. Raises WireError for one that is not meant."""
        self._strangers.pop(link, None)
        number = self._numbers.get(parse(Join, body).host)
        if kind != JOIN or number is None or number in self._here:
            raise WireError("no host of this check")
        self._here[number] = link
        link.on_message = lambda kind, body: self._received(number, kind, body)
        link.send(WELCOME, Welcome(number, self._sockets.port, _SILENCE_MS))

    def _received(self, number: int, kind: int, body: Body) -> None:
        if kind == FACTS:
            self.facts[number] = body
        elif kind == ANSWER:
            self.answers.setdefault(number, []).append(body)
        else:
            raise WireError("not a probe's message")


# Who probes whom, and when: each host is in few probes at once, and beyond some hosts each probes only some.

Round = tuple[tuple[int, int], ...]  # who begins, and with whom

# Up to so many hosts each is probed with each.
MOST_WITH_ALL = 64
# Beyond, each host begins with so many others, and as many begin with it.
_OFFSETS = 4
# Datagrams of a probe: where there are few others, each has to tell more.
FEW, MANY_DATAGRAMS, DATAGRAMS = 8, 20, 10


def probe_rounds(count: int) -> tuple[Round, ...]:
    """Return the rounds: as of a tournament in which each meets each, or a ring with some longer ways across."""
    return _tournament(count) if count <= MOST_WITH_ALL else _ring(count)


def other_hosts(count: int) -> int | None:
    """Return how many others each host probes, None where it is all of them."""
    return None if count <= MOST_WITH_ALL else 2 * len(_offsets(count))


def datagram_rounds(count: int) -> int:
    """Return how many datagrams go from one host to another."""
    return MANY_DATAGRAMS if count <= FEW else DATAGRAMS


def transfer_rounds(count: int) -> tuple[Round, ...]:
    """Return rounds of senders and receivers: each sends to the next of a ring and to the one before, one at a time."""
    if count < 2:  # noqa: PLR2004 - nobody to send to
        return ()
    edges = [(i, (i + 1) % count) for i in range(count)]
    parts = [edges[0 : count - count % 2 : 2], edges[1::2], edges[count - 1 :] if count % 2 else []]
    if count == 2:  # noqa: PLR2004 - one wire
        parts = [edges[:1]]
    both = [part if is_forth else [(b, a) for a, b in part] for part in parts for is_forth in (True, False)]
    return tuple(tuple(part) for part in both if part)


def _tournament(count: int) -> tuple[Round, ...]:
    """Return the circle method's rounds; who begins alternates, so that each begins about as often as not."""
    players: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    found = []
    for _ in range(len(players) - 1):
        half = len(players) // 2
        met = zip(players[:half], reversed(players[half:]), strict=True)
        found.append(tuple(_begun(one, other) for one, other in met if one is not None and other is not None))
        players[1:] = [players[-1], *players[1:-1]]
    return tuple(found)


def _begun(one: int, other: int) -> tuple[int, int]:
    low, high = sorted((one, other))
    return (low, high) if (low + high) % 2 else (high, low)


def _ring(count: int) -> tuple[Round, ...]:
    return tuple(tuple((i, (i + offset) % count) for i in range(count)) for offset in _offsets(count))


def _offsets(count: int) -> tuple[int, ...]:
    """Return steps that grow by the same factor, so that any two hosts are a few steps apart."""
    base = count ** (1 / _OFFSETS)
    return tuple(sorted({round(base**power) for power in range(_OFFSETS)}))


# From hosts to what each is told to probe, and from what they answer to a report.

# Beyond so many hosts only so many of them say a word by multicast; all listen.
_MOST_SPEAKERS = 64
_MTU = 1500  # of an interface that does not tell


def probe_orders(hosts: Sequence[Host], here: Sequence[int], shared: Sequence[Network]) -> tuple[dict[int, Body], int]:
    """Return what each host is told, and how many turns that takes."""
    turns = probe_rounds(len(here))
    step = -(-len(here) // _MOST_SPEAKERS)
    found: dict[int, Body] = {
        number: {"peers": [], "names": [], "count": datagram_rounds(len(here)), "multicast": place % step == 0}
        for place, number in enumerate(here)
    }
    ways = [dict(zip(its.hosts, its.addresses, strict=True)) for its in shared]
    ends = {(its.name, end.address): (end.port, end.mtu or _MTU) for its in hosts for end in its.addresses}
    for turn, pairs in enumerate(turns):
        for a, b in pairs:
            for begins, one, other in ((True, here[a], here[b]), (False, here[b], here[a])):
                order, mine, theirs = found[one], hosts[one].name, hosts[other].name
                order["names"].append({"number": other, "name": _name(hosts[other])})
                for network, at in enumerate(ways):
                    if mine in at and theirs in at and at[mine] != at[theirs]:
                        port, mtu = ends[theirs, at[theirs]]
                        row = (other, turn, begins, network, at[mine], at[theirs], port)
                        order["peers"] += _peer(row, min(mtu, ends[mine, at[mine]][1]))
    return found, len(turns)


def _peer(row: tuple[object, ...], mtu: int) -> list[Body]:
    """Return the row of one way; none where the other has no port that is free."""
    fields = ("number", "turn", "begins", "network", "mine", "theirs", "port")
    return [{**dict(zip(fields, row, strict=True)), "mtu": mtu}] if row[-1] else []


def _name(host: Host) -> str:
    """Return by which name others look a host up: the scheduler's, or its own where that is an address."""
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
    """Return the report, without findings; a host that did not answer any more is missing."""
    names = [host.name for host in hosts]
    rows: dict[tuple[int, int, int], Measured] = {}
    came: dict[tuple[int, int, int], int] = {}
    dropped: dict[int, int] = {}
    made = []
    for number, its in enumerate(hosts):
        if its.missing is not None:
            made.append(its)
            continue
        try:
            answer = parse(Counted, counted[number])
            rows |= {(number, row.number, row.network): row for row in answer.met}
            came |= {(row.sender, number, row.network): row.datagrams for row in answer.heard}
            refused = sum(row.had_no_room and row.sent < datagram_rounds(len(here)) for row in answer.met)
            had_no_room = any(row.had_no_room for row in answer.met)
            whole = _completed(its, names, parse(Found, met[number]), answer)
            made.append(whole._replace(clock=clocks.get(number), had_no_room=had_no_room, refused=refused))
            dropped[number] = answer.dropped
        except (KeyError, WireError) as wrong:
            why = f": {wrong}" if isinstance(wrong, WireError) else ""
            made.append(its._replace(missing=f"it started, then did not answer in time{why}", is_late=not why))
    names_left = {made[number].name for number in here if made[number].missing is None}
    made = [its if its.missing is not None else _overrun(n, its, dropped[n], rows, came) for n, its in enumerate(made)]
    pairs = _pairs(made, here, shared, rows, came)
    sound, unknown = (tuple(pair for pair, is_known in pairs if is_known == which) for which in (True, False))
    return Report(tuple(made), _left(shared, names_left), sound, unknown=unknown)


def _overrun(
    number: int,
    host: Host,
    dropped: int,
    rows: Mapping[tuple[int, int, int], Measured],
    came: Mapping[tuple[int, int, int], int],
) -> Host:
    """Return a host with what it dropped itself, where nothing else can have been lost on the way to it."""
    lost = sum(max(row.sent - came.get(way, 0), 0) for way, row in rows.items() if way[1] == number)
    return host._replace(dropped=dropped if lost <= dropped else 0)


def _left(shared: Sequence[Network], names: set[str]) -> tuple[Network, ...]:
    """Return the networks with those hosts that are still there."""
    found = []
    for network in shared:
        ends = [end for end in zip(network.hosts, network.addresses, strict=True) if end[0] in names]
        found.append(Network(network.name, tuple(host for host, _ in ends), tuple(address for _, address in ends)))
    return tuple(found)


def _completed(host: Host, hosts: Sequence[str], found: Found, counted: Counted) -> Host:
    """Return a host with what it found out about names and multicast. Raises WireError."""
    heard = counted.multicast
    if any(number >= len(hosts) for row in heard for number in row.hosts):
        raise WireError("hosts: no host of this check")
    return host._replace(
        late_s=found.late_ms / 1000,
        own_name=found.own,
        names=tuple(Name(hosts[row.number], row.addresses) for row in found.names if row.number < len(hosts)),
        multicast=tuple(Heard(row.iface, tuple(hosts[n] for n in sorted(set(row.hosts))), row.fault) for row in heard),
    )


def _pairs(
    hosts: Sequence[Host],
    here: Sequence[int],
    shared: Sequence[Network],
    rows: Mapping[tuple[int, int, int], Measured],
    came: Mapping[tuple[int, int, int], int],
) -> list[tuple[Pair, bool]]:
    """Return what both ends of each way say of it, and whether what did not arrive says anything."""
    count = datagram_rounds(len(here))
    found = []
    for one, other in (pair for turn in probe_rounds(len(here)) for pair in turn):
        a, b = here[one], here[other]
        for network, its in enumerate(shared):
            there, back = rows.get((a, b, network)), rows.get((b, a, network))
            if there is not None and back is not None:
                pair = Pair(hosts[a].name, hosts[b].name, its.name, rtt_us=there.rtt_us, mtu=there.mtu)
                pair = pair._replace(open_there=there.closed, open_back=back.closed)
                pair = pair._replace(sent=there.sent, there=min(came.get((a, b, network), 0), there.sent))
                pair = pair._replace(sent_back=back.sent, back=min(came.get((b, a, network), 0), back.sent))
                is_busy = any(hosts[its].late_s or hosts[its].dropped for its in (a, b))
                if is_busy or there.had_no_room or back.had_no_room:
                    found.append((pair._replace(mtu=None), _is_whole(pair, count)))
                else:
                    found.append((pair, True))
    return found


def _is_whole(pair: Pair, count: int) -> bool:
    """Tell whether all that is sent between two hosts has arrived."""
    return pair.there == pair.back == count and pair.open_there == pair.open_back == ""


def mbits(answer: Body | None) -> int | None:
    """Return what a transfer carried; None where nothing is known of it."""
    try:
        octets, took_ns = (integer(answer or {}, name, 0, 1 << 62) for name in ("octets", "ns"))
    except WireError:
        return None
    return octets * 8 * 1000 // took_ns if took_ns else None


# The time of day, which a check only compares between hosts.


def wall_s() -> float:
    """Return the seconds since 1970, as this host's clock has them."""
    return time.time()


# Of the time after the start, the part for probing; the rest is for what comes after.
_PROBE_SHARE = 0.25
# What has not come back after so many seconds, in which the probe ran, is lost: a connection begins again after 1 s,
# and after 3 s. A probe that stood still may take longer, for as long as the whole check may.
_PROBE_S = 3.5
_COUNT_S, _TRANSFER_S, _LEAVE_S = 1.0, 2.0, 1.0
# Processes that have ended are looked for so often, in seconds.
_POLL_S = 0.05
# So many slow transfers are tried again, so often: another program may have been in the way.
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
    """The probes of one check. A turn of probing takes `turn_s` at most, and all together `turns_s`, in seconds."""

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
        self._ended: dict[str, str] = {}  # host -> what its starter said last, and its status

    def start(self) -> None:
        """Start a probe on each host."""
        self._launching.start(self._names)
        self._poll_processes()

    def close(self) -> None:
        """Leave nothing behind."""
        self.listener.dismiss()
        self._until(lambda: not self._processes.running, _LEAVE_S)
        self._processes.kill(at_once=True)
        for process in self._processes.running:
            process.wait()
        self._processes.poll()
        self.listener.close()
        self._launching.close()

    def report(self) -> Report:
        """Wait for the probes, tell them what to do, and make the report of what they say."""
        self._until(self._is_complete, self._request.start_s)
        self._started = self._loop.clock()
        hosts = self._hosts()
        here = [number for number, its in enumerate(hosts) if its.missing is None]
        shared = shared_networks([hosts[number] for number in here])
        orders, turns = probe_orders(hosts, here, shared)
        turn_s = min(self.turn_s, self.turns_s / max(turns, 1))
        limit_s = min(self._request.timeout_s * _PROBE_SHARE, _PROBE_S) + turns * turn_s
        most_s = max(limit_s, self._left_s() - 2 * _COUNT_S)
        for order in orders.values():
            order |= {"do": PROBE, "limit_ms": int(limit_s * 1000), "turn_us": int(turn_s * 1_000_000)}
            order |= {"most_ms": int(most_s * 1000)}
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
        """Send orders, and return what is answered in time, with how far ahead a host's clock is: at least, at most."""
        sent_at = wall_s()
        self.listener.answers.clear()
        came_at: dict[int, float] = {}
        for number, order in orders.items():
            self.listener.send(number, ORDER, order)

        def is_complete() -> bool:
            for number in self.listener.answers.keys() - came_at.keys():
                came_at[number] = wall_s()
            return all(number in came_at or number in self.listener.gone for number in orders)

        self._until(is_complete, limit_s)
        answers = {number: its[0] for number, its in self.listener.answers.items() if number in orders}
        clocks = {}
        for number, answer in answers.items():
            if "time_ms" in answer:
                told_s = integer(answer, "time_ms", 0, 1 << 62) / 1000
                clocks[number] = (told_s - came_at.get(number, wall_s()), told_s + 0.001 - sent_at)
        return answers, clocks

    def _left_s(self) -> float:
        """Return what is left of the time after the start."""
        return self._started + self._request.timeout_s - self._loop.clock()

    # --- Who is here.

    def _until(self, holds: Callable[[], bool], limit_s: float) -> None:
        end = self._loop.clock() + limit_s
        wake = self._loop.after(limit_s, lambda: None)
        self._loop.run(lambda: holds() or self._loop.clock() >= end)
        wake.cancel()

    def _poll_processes(self) -> None:
        self._processes.poll()
        self._loop.after(_POLL_S, self._poll_processes)

    def _starter_ended(self, hosts: tuple[str, ...], status: int, said: str) -> None:
        lines = said.strip().splitlines()
        for name in hosts:
            line = next((line for line in reversed(lines) if name in line), lines[-1] if lines else "no word")
            self._ended[name] = f"did not start: {printable(line, _LONGEST_WHY)} (status {status})"

    def _is_complete(self) -> bool:
        return all(number in self.listener.facts or name in self._ended for number, name in enumerate(self._names))

    def _hosts(self) -> tuple[Host, ...]:
        silent = (
            f"no sign of it within {self._request.start_s:.1f} s: it has not started yet (--start), or does not reach"
            f" this host's port {self._launching.sockets.port} (--iface, --port-range)"
        )
        found = []
        for number, name in enumerate(self._names):
            body, its = (
                self.listener.facts.get(number),
                Host(name, self._ended.get(name, silent), name not in self._ended),
            )
            if body is not None and number not in self.listener.gone:
                try:
                    its = parse_report_host(name, body)
                except WireError as wrong:
                    its = Host(name, missing=f"it sent what no probe of this version sends: {wrong}")
            found.append(its)
        return tuple(found)

    # --- Transfers.

    def _flows(self, hosts: tuple[Host, ...], network: Network) -> tuple[Flow, ...]:
        """Let each send to two others; what is slow is tried again, with nothing else on the way."""
        numbers = {its.name: number for number, its in enumerate(hosts)}
        there = [numbers[name] for name in network.hosts]
        found: dict[tuple[int, int], Flow] = {}
        for part in transfer_rounds(len(there)):
            found |= self._transfer(hosts, network, [(there[a], there[b]) for a, b in part])
        for _ in range(_AGAIN):
            for flow in slow_flows(tuple(found.values()))[:_MOST_AGAIN]:
                way = numbers[flow.sender], numbers[flow.receiver]
                (again,) = self._transfer(hosts, network, [way]).values()
                found[way] = max(flow, again, key=lambda its: its.mbits or 0)
        return tuple(found.values())

    def _transfer(
        self, hosts: tuple[Host, ...], network: Network, ways: list[tuple[int, int]]
    ) -> dict[tuple[int, int], Flow]:
        at = dict(zip(network.hosts, network.addresses, strict=True))
        orders = {}
        for sender, receiver in ways:
            its = next(its for its in hosts[receiver].addresses if its.address == at[hosts[receiver].name])
            limit_ms = int(_TRANSFER_S * 1000)
            where = {"theirs": its.address, "port": its.port, "number": receiver, "limit_ms": limit_ms}
            orders[sender] = {"do": SEND, **where}
        answers, _ = self.gather(orders, _TRANSFER_S + _COUNT_S)
        return {
            (sender, receiver): Flow(hosts[sender].name, hosts[receiver].name, network.name, mbits(answers.get(sender)))
            for sender, receiver in ways
        }
