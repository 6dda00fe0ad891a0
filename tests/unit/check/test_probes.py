"""What a probe answers on its port, and to whom; and what the check takes from a probe."""

from __future__ import annotations

import errno
import os
import socket
import time
from typing import TYPE_CHECKING

import pytest

from mingle_hooks.check.probes import LATE, OTHER, Call, Datagrams, Multicast, ProbeRun, ProbeServer
from mingle_hooks.check.session import (
    ECHO,
    NOTE,
    PING,
    SIZE,
    SIZED,
    Measured,
    Packet,
    Peer,
    pack_packet,
    padding,
    unpack_packet,
)
from mingle_hooks.net import ports
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.wire import Secret, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECRET, ANOTHER = Secret(b"a" * 32), Secret(b"b" * 32)
HERE = "127.0.0.1"
# A bound on what hangs, not a measure.
LIMIT_S = 30.0


@pytest.fixture
def loop() -> Iterator[Loop]:
    """Give a loop of the test's own."""
    with Loop() as made:
        yield made


def until(loop: Loop, holds: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    loop.run(lambda: bool(holds()) or time.monotonic() > end)
    assert holds()


def opened(part: Datagrams | ProbeServer) -> int:
    """Open a free port, and return it."""
    return next(port for port in range(20_000, 25_000) if part.open(HERE, port))


def test_only_what_is_signed_for_this_host_is_answered(loop: Loop) -> None:
    """Another key, another host's number, noise and a size that is not its own get nothing."""
    probe = Datagrams(loop, SECRET, time.monotonic_ns, lambda _its: None)
    probe.number = 3
    port = opened(probe)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller:
        caller.settimeout(LIMIT_S)
        ping, size = Packet(PING, 1, 3, 0, 5, 77), Packet(SIZE, 1, 3, 0, 1500)
        for data in (
            pack_packet(ANOTHER, ping),
            pack_packet(SECRET, ping._replace(to=2)),
            pack_packet(SECRET, size) + bytes(9),
            b"MCHK" + bytes(40),
            pack_packet(SECRET, ping),
            pack_packet(SECRET, size) + bytes(padding(HERE, 1500)),
        ):
            caller.sendto(data, (HERE, port))
        until(loop, lambda: probe.heard() == [[1, 0, 1]])
        loop.turn(0.1)
        answers = [unpack_packet(SECRET, caller.recv(4096)) for _ in range(2)]
        caller.settimeout(0)
        with pytest.raises(BlockingIOError):
            caller.recv(4096)
    assert answers == [Packet(ECHO, 3, 1, 0, 5, 77), Packet(SIZED, 3, 1, 0, 1500)]
    probe.close()


def test_one_datagram_that_comes_twice_counts_once(loop: Loop) -> None:
    """So that a copy does not make up for a loss."""
    probe = Datagrams(loop, SECRET, time.monotonic_ns, lambda _its: None)
    port = opened(probe)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller:
        for value in (0, 0, 1):
            caller.sendto(pack_packet(SECRET, Packet(PING, 1, 0, 2, value)), (HERE, port))
        until(loop, lambda: probe.heard() == [[1, 2, 2]])
    probe.close()


class Full:
    """A socket that the kernel has no room for, or whose last datagram went wrong."""

    def __init__(self, *errors: int) -> None:
        self.errors, self.sent = [*errors], 0

    def sendto(self, _data: bytes, _where: tuple[str, int]) -> None:
        if self.errors:
            number = self.errors.pop(0)
            raise OSError(number, os.strerror(number))
        self.sent += 1

    def close(self) -> None:
        """As a socket."""

    def fileno(self) -> int:
        return -1


def test_what_the_kernel_has_no_room_for_is_told_from_what_is_lost(loop: Loop) -> None:
    """An error of an earlier datagram is neither, and one that is refused for good is lost like any other."""
    probe = Datagrams(loop, SECRET, time.monotonic_ns, lambda _its: None)
    for errors, was_taken, sent in (
        ((errno.ENOBUFS,), False, 0),
        ((errno.EINVAL,), False, 0),
        ((errno.EHOSTUNREACH,), True, 1),
        ((errno.EHOSTUNREACH, errno.ENOBUFS), False, 0),
        ((errno.EPERM,) * 9, True, 0),
    ):
        sock = probe._sockets[HERE] = Full(*errors)  # type: ignore[assignment]
        assert probe.send(HERE, (HERE, 9), Packet(NOTE, 0, 1)) == was_taken
        assert sock.sent == sent
    probe.close()


def test_what_is_not_kept_is_counted(loop: Loop) -> None:
    """The kernel has room for so much only, as long as nobody reads."""
    probe = Datagrams(loop, SECRET, time.monotonic_ns, lambda _its: None)
    port = opened(probe)
    for sock in probe._sockets.values():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    assert probe.dropped() == 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller:
        for value in range(100):
            caller.sendto(pack_packet(SECRET, Packet(PING, 1, 0, 0, value)), (HERE, port))
    ((_, _, heard),) = probe.heard()
    assert (heard < 100, heard + probe.dropped()) == (True, 100)
    probe.close()


def test_what_became_of_a_datagram_keeps_nobody_busy(loop: Loop) -> None:
    """That nobody is there is told once, and the next one goes its way."""
    probe, other = (Datagrams(loop, SECRET, time.monotonic_ns, lambda _its: None) for _ in range(2))
    opened(probe)
    other.number = 1
    port = opened(other)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:
        nobody.bind((HERE, 0))
        closed = nobody.getsockname()[1]
    for value in range(3):
        assert probe.send(HERE, (HERE, closed), Packet(NOTE, 0, 1, value=value))
        assert probe.send(HERE, (HERE, port), Packet(NOTE, 0, 1, value=value))
    until(loop, lambda: other.heard() == [[0, 0, 3]])
    until(loop, lambda: not loop.poller.ready(0.0))
    for part in (probe, other):
        part.close()


def test_a_call_knows_who_answers(loop: Loop) -> None:
    """The host that is meant, another one of the check, or a stranger."""
    server = ProbeServer(loop, SECRET)
    server.number = 3
    port = opened(server)
    ends: list[str] = []
    for secret, number in ((SECRET, 3), (SECRET, 4), (ANOTHER, 3)):
        Call(loop, secret, number, (HERE, port), ends.append)
        until(loop, lambda: ends)
        assert ends.pop() == ("" if (secret, number) == (SECRET, 3) else OTHER)
    server.shut()
    Call(loop, SECRET, 3, (HERE, port), ends.append)
    until(loop, lambda: ends)
    assert ends == ["Connection refused"]
    server.close()


def test_multicast_passes_over_a_port_that_another_program_has(loop: Loop) -> None:
    """All know where to send, and each hears where it can."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        secret = taken(other)
        one = Multicast(loop, secret, ["lo"])
    two = Multicast(loop, secret, ["lo"])
    one.number, two.number = 1, 2
    try:
        one.send()
        two.send()
        until(loop, lambda: [its.received()[0]["hosts"] for its in (one, two)] == [[2], [1]])
    finally:
        one.close()
        two.close()
    assert [its.received()[0]["fault"] for its in (one, two)] == ["", ""]


def taken(sock: socket.socket) -> Secret:
    """Return a key of which the first port is this socket's from now on."""
    while True:
        secret = Secret(os.urandom(32))
        try:
            sock.bind(("", *ports.candidates(secret.mac(b"group"), 1)))
        except OSError:  # somebody else's by chance
            continue
        return secret


COUNT, TURN_S = 3, 0.04
# Nobody listens on discard's port of the test machine's own.
PEER = Peer(1, 0, begins=False, network=0, mine="127.0.0.1", theirs="127.0.0.1", port=9, mtu=1500)


class Kernel:
    """Takes datagrams from some time on."""

    number = 0

    def __init__(self, has_room_at: float) -> None:
        self.has_room_at, self.now, self.sent = has_room_at, 0.0, 0

    def send(self, _mine: str, _where: tuple[str, int], _its: Packet) -> bool:
        self.sent += self.now >= self.has_room_at
        return self.now >= self.has_room_at


def met(kernel: Kernel, for_s: float) -> Measured:
    """Return what is known of the one peer after so many seconds."""
    datagrams: Datagrams = kernel  # type: ignore[assignment]
    with Loop(clock=lambda: kernel.now) as loop:
        meeting = ProbeRun(loop, SECRET, datagrams, lambda: 0, [PEER], COUNT, TURN_S)
        while kernel.now < for_s:
            loop.turn(0.0)
            kernel.now += TURN_S / COUNT
        (row,) = meeting.measured()
    return parse(Measured, row)


@pytest.mark.parametrize("has_room_at", [0.0, 1.2])
def test_what_the_kernel_does_not_take_is_sent_again(has_room_at: float) -> None:
    """Each once; that there was no room is told."""
    kernel = Kernel(has_room_at)
    found = met(kernel, 3.0)
    assert (found.sent, kernel.sent, found.had_no_room) == (COUNT, COUNT, has_room_at > 0.0)
    assert found.closed not in ("", LATE)


def test_what_the_kernel_never_takes_has_not_been_sent() -> None:
    """Nor is there a call, which would find no more room."""
    found = met(Kernel(99.0), 3.0)
    assert (found.sent, found.had_no_room, found.closed) == (0, True, LATE)
