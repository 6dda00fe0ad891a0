"""What a probe answers, and to whom; what its kernel drops or refuses; and multicast."""

import errno
import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from support.gathering import PATIENCE_S, no_descriptor_left, until

from mingle_hooks.check import probes
from mingle_hooks.check.probes import Call, Datagrams, Multicast, Packet, ProbeRun, ProbeServer, Transfer, pack_packet
from mingle_hooks.check.report import Measured, Peer, ProbeOrder
from mingle_hooks.net.addresses import Preference, bound, candidates
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.wire import Secret, parse

SECRET, ANOTHER = Secret(b"a" * 32), Secret(b"b" * 32)
HERE = "127.0.0.1"
Make = Callable[[int], tuple[Datagrams, int]]


@pytest.fixture
def loop() -> Iterator[Loop]:
    """Give a loop of the test's own."""
    with Loop() as loop:
        yield loop


@pytest.fixture
def datagrams(loop: Loop) -> Iterator[Make]:
    """Give a function that opens the datagrams of a host by its number, and returns them with their port."""
    with ExitStack() as stack:

        def make(number: int) -> tuple[Datagrams, int]:
            found = stack.enter_context(closing(Datagrams(loop, SECRET)))
            found.number = number
            return found, opened(found)

        yield make


@pytest.fixture
def caller() -> Iterator[socket.socket]:
    """Give a socket that sends datagrams."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(PATIENCE_S)
        yield sock


def opened(part: Datagrams | ProbeServer) -> int:
    """Open a free port, and return it."""
    if isinstance(part, Datagrams):
        return next(port for port in range(20_000, 25_000) if part.open(HERE, port))
    listener = next(filter(None, (bound(HERE, port, hold=False) for port in range(20_000, 25_000))))
    part.take(listener)
    return int(listener.getsockname()[1])


def test_only_what_is_signed_for_this_host_is_answered(loop: Loop, datagrams: Make, caller: socket.socket) -> None:
    """Another key, another host's number, noise, and a datagram that is too short get no answer."""
    probe, port = datagrams(3)
    ping, size = Packet(probes.PING, 1, 3, 0, 5, 77), Packet(probes.SIZE, 1, 3, 0, 1500)
    right = pack_packet(SECRET, ping), pack_packet(SECRET, size) + bytes(1500 - 28 - 31)
    for data in (
        pack_packet(ANOTHER, ping),
        pack_packet(SECRET, ping._replace(to=2)),
        right[0][:-1],
        right[1][:-1],
        b"MCHK" + bytes(40),
        *right,
    ):
        caller.sendto(data, (HERE, port))
    until(loop, lambda: probe.heard() == [[1, 0, 1]])
    loop.turn(0.1)
    answers = [probes.unpack_packet(SECRET, caller.recv(4096)) for _ in range(2)]
    caller.settimeout(0)
    with pytest.raises(BlockingIOError):
        caller.recv(4096)
    assert answers == [Packet(probes.ECHO, 3, 1, 0, 5, 77), Packet(probes.SIZED, 3, 1, 0, 1500)]
    assert [probes.padding(*its) for its in ((HERE, 1500), ("fd00::1", 1500), (HERE, 40))] == [1441, 1421, 0]
    options = [probe._sockets[HERE].getsockopt(socket.IPPROTO_IP, name) for name in (10, 11)]
    assert options == [2, 1], "nothing is fragmented, and the kernel tells of errors (linux/in.h)"


@pytest.mark.parametrize(
    ("errors", "is_taken", "tries"),
    [
        ((errno.ENOBUFS,), False, 1),
        ((errno.EINVAL,), False, 1),
        ((errno.EHOSTUNREACH,), True, 2),  # of an earlier datagram
        ((errno.EHOSTUNREACH, errno.ENOBUFS), False, 2),
        ((errno.EPERM,) * 9, True, 3),  # refused for good: lost like any other
    ],
)
def test_no_room_in_the_kernel_is_not_a_loss(
    loop: Loop, errors: tuple[int, ...], tries: int, *, is_taken: bool
) -> None:
    """A datagram for which there is no room is not sent; with any other error it counts as sent."""
    sock: Any = mock.Mock(**{"sendto.side_effect": [*(OSError(error, "") for error in errors), None][:3]})
    probe = Datagrams(loop, SECRET)
    probe._sockets[HERE] = sock
    assert probe.send(HERE, (HERE, 9), Packet(probes.NOTE, 0, 1)) == is_taken
    assert sock.sendto.call_count == tries


def test_datagrams_that_the_kernel_drops_are_counted(datagrams: Make, caller: socket.socket) -> None:
    """The kernel has room for some of them only, as long as they are not read."""
    probe, port = datagrams(0)
    for sock in probe._sockets.values():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    assert probe.dropped() == 0
    for value in range(100):
        caller.sendto(pack_packet(SECRET, Packet(probes.PING, 1, 0, 0, value)), (HERE, port))
    ((_, _, heard),) = probe.heard()
    assert (heard < 100, heard + probe.dropped()) == (True, 100)


def test_an_error_of_a_datagram_is_read_once(loop: Loop, datagrams: Make, caller: socket.socket) -> None:
    """An error about a closed port wakes the loop once, and the next datagram is sent all the same."""
    (probe, _), (other, port) = datagrams(0), datagrams(1)
    caller.bind((HERE, 0))
    closed = caller.getsockname()[1]
    caller.close()
    for value in range(3):
        assert probe.send(HERE, (HERE, closed), Packet(probes.NOTE, 0, 1, value=value))
        assert probe.send(HERE, (HERE, port), Packet(probes.NOTE, 0, 1, value=value))
    until(loop, lambda: other.heard() == [[0, 0, 3]])
    until(loop, lambda: not loop.poller.ready(0.0))


def test_multicast_passes_over_a_port_that_another_program_has(loop: Loop, caller: socket.socket) -> None:
    """Each host listens where it can, and all send to every port."""
    secret = taken(caller)
    with closing(Multicast(loop, secret, [Preference("lo", None)])) as one:
        caller.close()
        with closing(Multicast(loop, secret, [Preference("lo", None)])) as two:
            one.number, two.number = 1, 2
            one.send()
            two.send()
            until(loop, lambda: [part.received()[0]["hosts"] for part in (one, two)] == [[2], [1]])
            assert [part.received()[0]["fault"] for part in (one, two)] == ["", ""]


def taken(sock: socket.socket) -> Secret:
    """Return a key of which the first port is this socket's from now on."""
    while True:
        secret = Secret(os.urandom(32))
        try:
            sock.bind(("", *candidates(secret.mac(b"group"), 1)))
        except OSError:  # somebody else's by chance
            continue
        return secret


COUNT, TURN_S = 3, 0.04
# Nobody listens on discard's port of the test machine's own.
PEER = Peer(1, 0, begins=False, network=0, mine="127.0.0.1", theirs="127.0.0.1", port=9, mtu=1500)

ORDER = ProbeOrder((PEER,), (), COUNT, multicast=False, limit_ms=0, most_ms=0, turn_us=int(TURN_S * 1_000_000))


class Kernel:
    """A kernel that has room for datagrams from some time on; it knows what was sent when, and who was called."""

    number = 0

    def __init__(self, monkeypatch: pytest.MonkeyPatch, has_room_at: float = 0.0) -> None:
        self.has_room_at, self.now, self.sent = has_room_at, 0.0, 0
        self.trace: list[tuple[float, int, int, int, int]] = []
        self.calls: list[tuple[float, tuple[str, int]]] = []
        self.ends: dict[int, Callable[[str], None]] = {}
        monkeypatch.setattr(probes, "Call", self._call)

    def send(self, _mine: str, where: tuple[str, int], packet: Packet) -> bool:
        self.trace.append((round(self.now, 1), packet.kind, packet.network, packet.value, where[1]))
        self.sent += self.now >= self.has_room_at
        return self.now >= self.has_room_at

    def sized(self, *sizes: int) -> list[float]:
        """Return when packets of these sizes were sent, by default of all."""
        return [at for at, kind, _, value, _ in self.trace if kind == probes.SIZE and value in (sizes or (value,))]

    def _call(
        self, _loop: Loop, _secret: Secret, _number: int, where: tuple[str, int], end: Callable[..., None]
    ) -> Any:
        self.calls.append((round(self.now, 1), where))
        self.ends[where[1]] = end
        return SimpleNamespace(read=lambda: None, end=end)


def met(
    kernel: Kernel, for_s: float, *peers: Peer, count: int = COUNT, echo: Callable[[ProbeRun], object] = id
) -> Measured:
    """Return what is known of the first peer after some seconds, in which its answers come by `echo`."""
    datagrams: Datagrams = kernel  # type: ignore[assignment]
    with Loop(clock=lambda: kernel.now) as loop:
        meeting = ProbeRun(loop, SECRET, datagrams, ORDER._replace(peers=peers or (PEER,), datagrams=count))
        while kernel.now < for_s:
            loop.turn(0.0)
            echo(meeting)
            kernel.now += TURN_S / COUNT
        return parse(Measured, meeting.measured()[0])


@pytest.mark.parametrize("has_room_at", [0.0, 1.2, 99.0])
def test_what_the_kernel_does_not_take_is_sent_again(monkeypatch: pytest.MonkeyPatch, has_room_at: float) -> None:
    """Each is sent once, and only then is there a call; what is never taken counts as not sent."""
    kernel = Kernel(monkeypatch, has_room_at)
    found = met(kernel, 3.0)
    count = COUNT if has_room_at < 3.0 else 0
    assert (found.sent, kernel.sent, found.had_no_room) == (count, count, has_room_at > 0.0)
    assert bool(kernel.calls) == bool(count)


@pytest.mark.parametrize(("late_s", "again_s"), [(0.0, 0.1), (0.5, 0.5)])
def test_where_answers_are_late_nothing_is_sent_again_soon(
    monkeypatch: pytest.MonkeyPatch, late_s: float, again_s: float
) -> None:
    """A host is busy then, or all are: each datagram more would make them later. All of it is sent in the end."""
    kernel = Kernel(monkeypatch)
    monkeypatch.setattr(time, "monotonic_ns", lambda: 10**12)
    late = Packet(probes.ECHO, 1, 0, time=10**12 - int(late_s * 10**9))
    met(kernel, 9.0, PEER._replace(begins=True), echo=lambda run: run.back(late))
    first, second, *more = kernel.sized(PEER.mtu)
    assert (second - first, len(more)) == (pytest.approx(again_s, abs=0.11), 2)


@pytest.mark.parametrize("rtt_ms", [0, 3])
def test_a_round_trip_that_takes_long_is_measured_again(monkeypatch: pytest.MonkeyPatch, rtt_ms: int) -> None:
    """Only the largest packet is sent again: the host may have stood still for a moment, or it is far off."""
    kernel, answered = Kernel(monkeypatch), []

    def answer(run: ProbeRun) -> None:
        run.back(Packet(probes.ECHO, 1, 0, time=time.monotonic_ns() - 10**9))
        for _ in kernel.sized()[len(answered) :]:
            answered.append(time.monotonic_ns() - rtt_ms * 10**6)
            run.back(Packet(probes.SIZED, 1, 0, value=PEER.mtu, time=answered[-1]))

    found = met(kernel, 9.0, PEER._replace(begins=True), echo=answer)
    assert (found.rtt_us or 0) // 1000 >= rtt_ms
    assert kernel.sized() == kernel.sized(PEER.mtu)
    assert len(kernel.sized()) == 4 if rtt_ms else len(kernel.sized()) < 4


@pytest.mark.parametrize(("count", "kinds"), [(32, "PPPP"), (33, "PNNP")])
def test_of_many_ways_the_last_datagram_and_some_before_are_answered(
    monkeypatch: pytest.MonkeyPatch, count: int, kinds: str
) -> None:
    """The last answer shows that all have arrived; every other one costs a datagram."""
    kernel = Kernel(monkeypatch)
    peers = (PEER._replace(number=number, begins=True, turn=number * 1000) for number in range(count))
    met(kernel, 0.1, *peers, count=len(kinds))
    sent = [kind for _, kind, *_ in kernel.trace if kind != probes.SIZE]
    assert "".join({probes.PING: "P", probes.NOTE: "N"}[kind] for kind in sent) == kinds


def test_a_second_port_of_an_address_only_receives(loop: Loop, datagrams: Make, caller: socket.socket) -> None:
    """This host sends from the first port; only answers to its own datagrams are passed on."""
    probe, port = datagrams(0)
    second, back = opened(probe), []
    probe.on_back = back.append
    assert not probe.open(HERE, port)
    notes = [Packet(probes.NOTE, 1, 0, 0, value) for value in (1, 1, 1023, 1024)]
    answers = [Packet(kind, 1, 0) for kind in (probes.ECHO, probes.SIZED)]
    for packet in (*notes, *answers, Packet(probes.HERE, 1, 0)):
        caller.sendto(pack_packet(SECRET, packet), (HERE, second))
    until(loop, lambda: probe.heard() == [[1, 0, 2]] and len(back) == 2)
    assert (back, probe.dropped()) == (answers, 0)
    assert probe.send(HERE, (HERE, caller.getsockname()[1]), Packet(probes.SIZE, 0, 1, 0, 600))
    data, where = caller.recvfrom(4096)
    assert (len(data), where) == (572, (HERE, port))
    probe.close()
    assert probe.open(HERE, port)


def test_a_caller_is_greeted_and_told_how_much_has_arrived(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told once; a transfer sends until then."""
    monkeypatch.setattr(probes, "COUNTED_S", 0.02)
    with closing(ProbeServer(loop, SECRET)) as server, socket.socket() as caller:
        server.number = 3
        port = opened(server)
        caller.connect((HERE, port))
        caller.sendall(b"12345")
        ends: list[str] = []
        transfer = Transfer(loop, SECRET, 3, (HERE, port), ends.append)
        until(loop, lambda: ends)
        octets, took_ns = transfer.count or (0, 0)
        assert (ends, octets > 1 << 10, 2 * 10**7 <= took_ns < 10**12) == ([""], True, True)
        until(loop, lambda: len(caller.recv(100, socket.MSG_PEEK)) > probes.BYTES)
        data = caller.recv(100)
        count, took_ns = probes.COUNTED.unpack(data[probes.BYTES :])
        assert (probes.unpack_packet(SECRET, data), count) == (Packet(probes.HERE, 3, 0), 5)
        assert 2 * 10**7 <= took_ns < 10**12
        server.close()
        with pytest.raises(ConnectionResetError):
            caller.recv(1)


def test_strangers_neither_stay_nor_use_up_descriptors(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest makes room for the next, where so many are there and where no descriptor is left."""
    monkeypatch.setattr(probes, "MOST_STRANGERS", 2)
    with closing(ProbeServer(loop, SECRET)) as server, ExitStack() as stack:
        port = opened(server)
        callers = [stack.enter_context(socket.socket()) for _ in range(4)]

        def received(caller: socket.socket) -> bytes:
            until(loop, lambda: select.select([caller], [], [], 0)[0])
            return caller.recv(100)

        for number, is_full in enumerate((False, False, False, True)):
            with no_descriptor_left(256) if is_full else nullcontext():
                callers[number].connect((HERE, port))
                assert received(callers[number])
            if number >= 2:
                with pytest.raises(ConnectionResetError):
                    received(callers[number - 2])


@pytest.mark.parametrize(
    ("parts", "end"),
    [
        ([HELLO := pack_packet(SECRET, Packet(probes.HERE, 3, 0))], ""),
        ([HELLO[:9], HELLO[9:] + b"more"], ""),
        ([HELLO[:9], b""], "it closed the connection"),
        ([pack_packet(SECRET, Packet(probes.NOTE, 3, 0))], probes.OTHER),
        ([pack_packet(SECRET, Packet(probes.HERE, 4, 0))], probes.OTHER),
        ([pack_packet(ANOTHER, Packet(probes.HERE, 3, 0))], probes.OTHER),
        ([], "over"),
    ],
)
def test_how_a_call_ends(loop: Loop, parts: list[bytes], end: str) -> None:
    """A call ends once, and the other side notices it at once."""
    with socket.create_server((HERE, 0)) as server:
        ends: list[str] = []
        call = Call(loop, SECRET, 3, server.getsockname(), ends.append)
        there, _ = server.accept()
        with there:
            for part in parts:
                if part:
                    there.sendall(part)
                else:
                    there.shutdown(socket.SHUT_WR)
                loop.turn(0.5)
            for _ in range(2):
                call.end("over")
                call.read()
            assert (ends, {*loop.poller.watched}) == ([end], set())
            with pytest.raises(ConnectionResetError):
                there.recv(1)


def test_what_is_sent_where_nothing_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest packet is sent first and alone, then all sizes again, at growing intervals."""
    kernel = Kernel(monkeypatch)
    peer = PEER._replace(begins=True, turn=3, network=1, port=7, free_port=8, mtu=65_521)
    late = Measured(1, 1, 3, None, None, probes.LATE, had_no_room=False, free_closed=probes.LATE)
    assert met(kernel, 9.0, peer) == late
    sizes = 65_521, 65_520, 9000, 8900, 4092, 2044, 1500, 1460, 1450, 1400, 1280, 576
    pings = [row for row in kernel.trace if row[1] == probes.PING]
    free = [(at, probes.PING, (1 << 15) + 1, 0, 8) for at in (0.1, 0.6, 1.7, 3.7, 5.7)]
    assert pings == [(0.1, probes.PING, 1, 0, 7), free[0], *((0.1, probes.PING, 1, n, 7) for n in (1, 2)), *free[1:]]
    sized = [(0.2, 65_521), *((at, size) for at in (0.7, 1.7, 3.7) for size in sizes)]
    assert [row for row in kernel.trace if row not in pings] == [(at, probes.SIZE, 1, size, 7) for at, size in sized]
    assert kernel.calls == [(at, (HERE, port)) for at in (0.1, 1.6, 3.1) for port in (7, 8)]


@pytest.mark.parametrize(
    ("left_out", "changed"),
    [
        (None, {}),
        ("echo", {}),
        ("size", {"rtt_us": 2000, "mtu": 1400}),
        ("free", {"free_closed": probes.NO_ECHO}),
        ("port", {"closed": probes.LATE}),
        ("port 8", {"free_closed": probes.LATE}),
    ],
)
def test_all_is_known_once_the_last_answer_has_come(
    monkeypatch: pytest.MonkeyPatch, left_out: str | None, changed: dict[str, Any]
) -> None:
    """Nothing is sent after that; to a peer that begins, only its port has to be known."""
    kernel, now_ns = Kernel(monkeypatch), 10**12
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    peers = PEER._replace(begins=True, port=7, free_port=8), PEER._replace(number=2, port=9)
    datagrams: Datagrams = kernel  # type: ignore[assignment]
    with Loop(clock=lambda: kernel.now) as loop:
        run = ProbeRun(loop, SECRET, datagrams, ORDER._replace(peers=peers))
        while len(kernel.trace) < 8:
            assert not run.is_done
            loop.turn(0.0)
            kernel.now += TURN_S / COUNT
        back = Packet(probes.ECHO, 1, 0, time=now_ns - 2_000_999)
        packets = {"echo": back, "free": back._replace(network=1 << 15)}
        packets["size"] = back._replace(kind=probes.SIZED, value=1500, time=now_ns - 1_234_567)
        for packet in (back, back._replace(sender=5), packets["size"]._replace(value=1400, time=back.time), back):
            run.back(packet)
        for what, packet in packets.items():
            if what != left_out:
                run.back(packet)
        for what, port in {"port": 7, "port 8": 8, "port 9": 9}.items():
            if what != left_out:
                kernel.ends[port]("")
        kernel.ends[9]("too late")
        assert run.is_done == (left_out is None)
        rows = [parse(Measured, row) for row in run.measured()]
        sent = len(kernel.trace)
        for _ in range(9):
            kernel.now += 1
            loop.turn(0.0)
    whole = Measured(1, 0, COUNT, 1234, 1500, "", had_no_room=False, free_closed="")
    assert rows == [whole._replace(**changed), Measured(2, 0, COUNT, None, None, "", had_no_room=False)]
    assert (len(kernel.trace), len(kernel.calls)) == (sent, 3)


def test_why_multicast_is_not_heard_on_an_interface(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other interfaces are used all the same. Each other host is listed once, and no other datagram counts."""
    eth0, ib0 = (mock.Mock(**{"info.machine_name": name}) for name in ("eth0", "ib0"))
    ib0.send.side_effect = OSError(101, "No network")
    none = BlockingIOError(11, "none")
    infos = [SimpleNamespace(machine_name=name, ip4_addrs=()) for name in ("eth0", "ib0", "gone")]
    link = mock.Mock(side_effect=[eth0, ib0, OSError(19, "No such device")])
    monkeypatch.setattr(probes.multicast, "carriers", mock.Mock(side_effect=[infos, none]))
    monkeypatch.setattr(probes.multicast, "Link", link)
    part = Multicast(loop, SECRET, [])
    part.number = 1
    part.send()
    own, two, three, other = (Packet(kind, sender, 0) for kind, sender in ((7, 1), (7, 2), (7, 3), (1, 4)))
    data = [pack_packet(SECRET, packet) for packet in (three, own, two, two, other)]
    link.call_args.args[1](eth0, mock.Mock(**{"recv.side_effect": [*data, bytes(40), none]}))
    assert part.received() == [
        {"iface": "eth0", "hosts": [2, 3], "fault": ""},
        {"iface": "ib0", "hosts": [], "fault": "No network"},
        {"iface": "gone", "hosts": [], "fault": "No such device"},
    ]
    part.close()
    assert (eth0.close.call_count, ib0.close.call_count) == (1, 1)
    assert Multicast(loop, SECRET, []).received() == [{"iface": "", "hosts": [], "fault": "none"}]
