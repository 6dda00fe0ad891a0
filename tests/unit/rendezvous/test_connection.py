"""The poller, the loop with its timers, and connections that hand over whole frames."""

from __future__ import annotations

import errno
import select
import signal
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from unittest.mock import Mock

import pytest
from support.gathering import PATIENCE_S, Clock, until

from mingle_hooks.rendezvous import connection
from mingle_hooks.rendezvous.connection import (
    LONGEST_SLEEP_S,
    READ,
    ROOM_S,
    STALLED_S,
    WRITE,
    Callers,
    Connection,
    Lookup,
    Loop,
    Poller,
    dial,
)
from mingle_hooks.rendezvous.wire import WireError, frame

# The poller's promises, by epoll(7) and by poll(2).


@pytest.fixture(params=["epoll", "poll"])
def poller(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Poller]:
    """Give a poller of each kind."""
    if request.param == "poll":
        monkeypatch.delattr(select, "epoll")
    made = Poller()
    yield made
    made.close()


def call(_events: int) -> None:
    """Do nothing; it is only compared."""


def test_ready_sockets_are_returned_with_their_events(poller: Poller) -> None:
    """An empty socket can be written, one with data read too, and a peer's end makes it ready for both."""
    one, other = socket.socketpair()
    with one, other:
        poller.watch(one, READ | WRITE, call)
        poller.watch(other, READ, call)
        assert poller.ready(0.0) == [(one.fileno(), WRITE)]
        other.send(b"a")
        assert poller.ready(0.0) == [(one.fileno(), READ | WRITE)]
        poller.rewatch(one, READ, call)
        assert poller.ready(0.0) == [(one.fileno(), READ)]
        for _ in range(2):
            poller.unwatch(one)
            assert poller.ready(0.0) == []
        assert list(poller.watched) == [other.fileno()]
        one.close()
        assert poller.ready(0.0) == [(other.fileno(), READ | WRITE)]


def test_a_wait_lasts_at_least_its_timeout(poller: Poller) -> None:
    """After a shorter wait the loop would ask for the next timer again and again."""
    began = time.monotonic()
    assert poller.ready(0.02) == []
    assert time.monotonic() - began >= 0.02


# Timers ring in order, and sockets are served.


def test_timers_ring_in_the_order_of_their_time_and_cancelled_ones_do_not() -> None:
    """Two of the same time ring in the order they were set; cancelling one that has rung is harmless."""
    clock, rung = Clock(), []
    clock.stop()
    with Loop(clock) as loop:
        dues = [loop.due_in()]
        loop.after(2.0, lambda: rung.append("late"))
        dues.append(loop.due_in())
        loop.after(0.5, lambda: rung.append("never")).cancel()
        soon = loop.after(0.5, lambda: rung.append("soon"))
        dues.append(loop.due_in())
        clock.ahead = 3.0
        assert [*dues, loop.due_in()] == pytest.approx([LONGEST_SLEEP_S, LONGEST_SLEEP_S, 0.5, 0.0])
        loop.run(lambda: len(rung) >= 2)
        soon.cancel()
    assert rung == ["soon", "late"]


def test_timers_that_are_due_come_before_data_that_arrived_meanwhile() -> None:
    """A process that was stopped past its deadline reads no frame that arrived meanwhile first."""
    one, other = socket.socketpair()
    clock, seen = Clock(), []
    with one, other, Loop(clock) as loop:
        loop.watch(one, READ, lambda _events: seen.append(one.recv(1).decode()))
        loop.after(5.0, lambda: seen.append("deadline"))
        other.send(b"w")
        clock.ahead = 10.0
        loop.run(lambda: len(seen) > 1)
    assert seen == ["deadline", "w"]


def test_a_system_without_that_clock_has_the_monotonic_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox may refuse it, and other systems do not name it."""
    monkeypatch.setattr(time, "clock_gettime", Mock(side_effect=OSError))
    assert connection._steadiest() == time.CLOCK_MONOTONIC
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    assert connection._steadiest() == time.CLOCK_MONOTONIC


def test_a_delay_varies_by_a_fifth() -> None:
    """Members then do not act in step."""
    with Loop() as loop:
        assert all(0.8 <= loop.about(1.0) <= 1.2 for _ in range(100))
        assert len({loop.about(1.0) for _ in range(20)}) > 1


# A channel hands over whole frames, whatever the pieces, and ends once.


class Ends:
    """A connection, the plain socket at its other end, and what the connection reported."""

    def __init__(self) -> None:
        mine, self.other = socket.socketpair()
        mine.settimeout(0)
        self.other.settimeout(PATIENCE_S)
        self.clock = Clock()
        self.clock.stop()
        self.loop = Loop(self.clock)
        self.frames: list[tuple[int, bytes]] = []
        self.ends: list[str] = []
        self.connection = Connection(self.loop, mine, lambda *frame: self.frames.append(frame), self.ends.append)

    def __enter__(self) -> Ends:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.connection.close()
        self.other.close()
        self.loop.__exit__(None, None, None)

    def until(self, happens: Callable[[], object]) -> None:
        """Serve until something happens."""
        until(self.loop, happens)

    def later(self, seconds: float) -> None:
        """Let time pass, and serve what is due."""
        self.clock.ahead += seconds
        self.loop.turn(0.0)

    def ended(self) -> list[str]:
        """Serve until the connection ends, and return what it reported."""
        self.until(lambda: self.ends)
        return self.ends


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Give both ends of a connection."""
    with Ends() as found:
        yield found


def test_a_frame_that_stops_half_way_ends_the_connection(ends: Ends) -> None:
    """A changed length asks for bytes that nobody sends; each byte restarts the wait, and a whole frame ends it."""

    def arrives(data: bytes) -> None:
        for byte in data:
            ends.other.send(bytes([byte]))
            ends.loop.turn(PATIENCE_S)
            ends.later(STALLED_S - 1.0)

    data = frame(1, b"one")
    arrives(data[:-1])
    ends.later(100.0)  # its owner has set no bound yet
    ends.connection.stalled_s = STALLED_S
    arrives(data[-1:] + data)
    ends.later(100.0)
    arrives(data[:-1])
    assert (ends.frames, ends.ends) == ([(1, b"one")] * 2, [])
    ends.later(STALLED_S)
    ends.later(STALLED_S)
    assert ends.ends == ["the rest of a frame has not come"]


def test_frames_arrive_whole_in_whatever_pieces_their_bytes_come(ends: Ends) -> None:
    """They may come byte by byte, or several at once."""
    data = frame(1, b"one") + frame(2, b"") + frame(3, b"three")
    for byte in data:
        ends.other.send(bytes([byte]))
        ends.loop.turn(PATIENCE_S)
    ends.other.send(data)
    ends.until(lambda: len(ends.frames) == 6)
    assert ends.frames == [(1, b"one"), (2, b""), (3, b"three")] * 2
    assert ends.ends == []


def test_a_frame_that_is_too_large_ends_the_connection_before_it_has_arrived(ends: Ends) -> None:
    """The length alone is enough, and a proved peer may send more than a stranger, whom tests/fuzz has."""
    ends.connection.most_bytes = 2000
    ends.other.send(frame(1, bytes(2000)) + struct.pack("!IB", 2001, 1))
    assert ends.ended() == ["a frame of 2001 bytes, more than 2000"]
    assert ends.frames == [(1, bytes(2000))]


def test_a_slow_reader_gets_everything_in_order_and_its_sender_hears_of_the_room(ends: Ends) -> None:
    """Data that the kernel does not take waits, and is sent as soon as there is room, which the sender is told."""
    rooms: list[int] = []
    ends.connection.on_room = lambda: rooms.append(ends.connection.waiting_bytes)
    sent = [bytes([number]) * 400_000 for number in range(10)]
    for data in sent:
        ends.connection.send(data)
    assert rooms == []
    got = bytearray()
    ends.other.settimeout(0)

    def read() -> bool:
        try:
            while True:
                got.extend(ends.other.recv(50_000))
        except BlockingIOError:
            return len(got) == 4_000_000

    ends.until(read)
    assert bytes(got) == b"".join(sent)
    assert rooms == sorted(rooms, reverse=True)
    assert rooms[-1] == 0


def test_a_peer_that_never_reads_is_dropped_and_what_waits_for_it_is_bounded(ends: Ends) -> None:
    """The end is not reported within send(), but soon after."""
    while ends.connection.waiting_bytes <= connection.MOST_WAITING_BYTES:
        ends.connection.send(bytes(4_000_000))
    assert ends.ends == []
    assert ends.ended() == ["it does not read"]


def test_sending_to_a_closed_peer_ends_the_connection_after_its_last_frames(ends: Ends) -> None:
    """A caller that iterates over connections does not expect them to change."""
    ends.other.send(frame(9, b"farewell"))
    ends.other.close()
    ends.connection.send(b"x" * 10)
    ends.connection.send(b"x" * 10)
    assert ends.ends == []
    assert len(ends.ended()) == 1
    assert ends.frames == [(9, b"farewell")]


def test_a_connection_that_is_refused_ends_once() -> None:
    """It ends at once on loopback, later elsewhere."""
    with socket.socket() as free, Loop() as loop:
        free.bind(("127.0.0.1", 0))
        ends: list[str] = []
        connection = Connection(loop, dial("127.0.0.1", free.getsockname()[1]), lambda *_frame: None, ends.append)
        connection.send(b"hello")
        loop.run(lambda: bool(ends))
        assert (len(ends), connection.closed) == (1, True)
        connection.send(b"nobody gets this")


def test_after_close_no_callback_is_called(ends: Ends) -> None:
    """Data that has arrived in the same turn is ignored too."""
    ends.connection.send(bytes(1_000_000))
    ends.other.send(frame(1, b""))
    ends.connection.close()
    ends.connection._ready(3)
    assert (ends.frames, ends.ends) == ([], [])


def test_a_refused_frame_is_the_last_one_of_its_connection(ends: Ends) -> None:
    """WireError ends the connection, and nothing else."""

    def refuse(_kind: int, _payload: bytes) -> None:
        raise WireError("no")

    ends.connection.on_frame = refuse
    ends.other.send(frame(1, b"") * 3)
    assert ends.ended() == ["no"]


@pytest.mark.parametrize("address", ["localhost", "dead", "", "1.2.3", "::x", "\0"])
def test_only_addresses_are_dialled(address: str) -> None:
    """A name would make connect() wait for a name server."""
    with pytest.raises((OSError, ValueError)):
        dial(address, 1)


def test_data_that_waits_for_many_peers_is_held_once() -> None:
    """The roster of thousands goes to each of them, and some read slowly."""
    data = bytes(8_000_000)
    with Ends() as one, Ends() as other:
        tracemalloc.start()
        for ends in (one, other):
            ends.connection.send(data)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert one.connection.waiting_bytes > 1_000_000 < other.connection.waiting_bytes
        assert held < 100_000


def test_a_peer_that_is_gone_raises_no_sigpipe(ends: Ends) -> None:
    """A program that calls mingle may have SIGPIPE at its default, which would kill it."""
    raised: list[int] = []
    before = signal.signal(signal.SIGPIPE, lambda number, _frame: raised.append(number))
    try:
        ends.connection.send(bytes(4_000_000))  # more than the kernel takes
        near, far = socket.socketpair()
        for sock in (near, ends.other):
            sock.close()
        connection._resolve("127.0.0.1", far)
        assert raised == []
        ends.connection._flush()
        assert raised == []
        with Ends() as others:
            others.other.close()
            others.connection.send(b"x")
        assert raised == []
    finally:
        signal.signal(signal.SIGPIPE, before)


def test_an_event_of_a_closed_socket_does_not_make_a_look_up_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of the same turn may have closed it, and the look-up may have its descriptor: no answer has come yet."""
    answers, found = threading.Event(), []

    def look(*_name: object, **_hints: object) -> list[object]:
        answers.wait(PATIENCE_S)
        return [(0, 0, 0, "", ("10.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look)
    with Loop() as loop:
        lookup = Lookup(loop, "node1", lambda host, addresses: found.append((host, addresses)))
        lookup._ready(READ)
        assert found == []
        answers.set()
        until(loop, lambda: found)
    assert found == [("node1", ["10.0.0.1"])]


@pytest.mark.parametrize("make", [Lookup, Connection], ids=["look-up", "connection"])
def test_a_socket_that_cannot_be_watched_is_closed(
    monkeypatch: pytest.MonkeyPatch, make: Callable[..., object]
) -> None:
    refusal = Mock(side_effect=OSError(errno.ENOSPC, "no watches left"))
    with Loop() as loop, socket.socket() as sock:
        monkeypatch.setattr(loop, "watch", refusal)
        with pytest.raises(OSError, match="no watches left"):
            make(*((loop, "localhost", Mock()) if make is Lookup else (loop, sock, Mock(), Mock())))
        ((its, *_),) = [call.args for call in refusal.call_args_list]
        assert its.fileno() == -1


# Listeners without a descriptor for another caller wait, unless they are left meanwhile.


def test_a_port_that_is_left_while_it_waits_for_a_descriptor_is_not_listened_to_again(clock: Clock) -> None:
    """A listener that was shut down is always ready, and has no connection."""
    with ExitStack() as stack:
        loop = stack.enter_context(Loop(clock))
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        callers = stack.enter_context(closing(Callers(loop, listeners, Mock())))
        callers._wait(listeners[0])
        callers.leave(listeners[0].getsockname()[1])
        clock.ahead += ROOM_S
        loop.turn(0.0)
        assert [*loop.poller.watched] == [listeners[1].fileno()]
