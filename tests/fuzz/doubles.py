"""A network without a kernel, files in one directory, and errors that are documented: what targets are made of."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, TypeVar

from mingle_hooks.errors import LONGEST, MingleError
from mingle_hooks.rendezvous.connection import READ, Connection, Loop

T = TypeVar("T")
# Answers of the kernel to getsockopt: a peer that is silent.
NOTHING = bytes(256)


class Wire:
    """A socket whose other side is the target: `put` is what arrives, `sent` what was answered."""

    def __init__(self, *, at: str = "10.0.0.1", port: int = 20_000) -> None:
        self.arrived, self.sent = bytearray(), bytearray()
        self._end, self._is_open = (at, port), True

    def fileno(self) -> int:
        """Return a descriptor that no call to the kernel uses."""
        return 1000 if self._is_open else -1

    def recv_into(self, view: memoryview) -> int:
        """Take what has arrived, as much as there is room for."""
        if not self.arrived:
            raise BlockingIOError
        count = min(len(view), len(self.arrived))
        view[:count] = self.arrived[:count]
        del self.arrived[:count]
        return count

    def recv(self, count: int) -> bytes:
        """Take what has arrived; nothing is the other side's end."""
        data = bytes(self.arrived[:count])
        del self.arrived[:count]
        return data

    def recvmsg(self, count: int, _control: int) -> tuple[bytes, list[Any], int, tuple[str, int]]:
        """Take all that has arrived as one datagram, cut to this size."""
        if not self.arrived:
            raise BlockingIOError
        data = bytes(self.arrived[:count])
        self.arrived.clear()
        return data, [], 0, self._end

    def sendmsg(self, parts: tuple[bytes | memoryview, ...], _control: object = (), _flags: int = 0) -> int:
        """Keep what is sent."""
        return sum(map(self.send, parts))

    def send(self, data: bytes | memoryview, _flags: int = 0) -> int:
        """Keep what is sent."""
        self.sent += data
        return len(data)

    def getsockname(self) -> tuple[str, int]:
        """Return this side's end."""
        return self._end

    def getsockopt(self, *_option: int) -> bytes:
        """Return what the kernel would of a silent peer."""
        return NOTHING

    def setsockopt(self, *_option: object) -> None:
        """Have no options."""

    def settimeout(self, _wait: float) -> None:
        """Wait for nothing."""

    def close(self) -> None:
        """Be gone."""
        self._is_open = False


def quiet_loop() -> Loop:
    """Return a loop without sockets, whose time passes by `loop.ahead` seconds only."""
    poller: Any = SimpleNamespace(watched={}, ready=lambda _wait: [], close=lambda: None)
    poller.watch = poller.rewatch = poller.unwatch = lambda *_socket: None
    now = [0.0]
    loop: Any = Loop(lambda: now[0], poller)
    loop.ahead = lambda seconds: now.__setitem__(0, now[0] + seconds)
    return loop  # type: ignore[no-any-return]


def deliver(connection: Connection, wire: Wire, data: bytes) -> None:
    """Let data arrive at a connection, and have it read all of it, unless it ends."""
    wire.arrived += data
    while wire.arrived and not connection.closed:
        connection._ready(READ)


def rows(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and text of the lines `NUMBER TEXT`; other lines are not for anybody."""
    for line in data.split(b"\n"):
        number, _, text = line.partition(b" ")
        if number.isdigit() and len(number) <= 3 and int(number) < 256:
            yield int(number), text


def variables(data: bytes) -> dict[str, str]:
    """Return an environment from NAME=VALUE entries, as the kernel hands them on."""
    pairs = (os.fsdecode(entry).partition("=") for entry in data.split(b"\0"))
    return {name: value for name, equals, value in pairs if name and equals}


def documented(call: Callable[[], T], *codes: int) -> T | None:
    """Return what a call returns; None where it raises an error with one of these exit codes, in one line."""
    try:
        return call()
    except MingleError as wrong:
        error = wrong
    text = str(error)
    assert error.exit_code in codes, text
    assert text.isprintable(), text
    assert len(text) <= LONGEST, text
    return None


_PLACES: list[str] = []


def place() -> str:
    """Return this process's own directory, which goes with it."""
    if not _PLACES:
        _PLACES.append(tempfile.mkdtemp(prefix="mingle-fuzz-"))
        atexit.register(shutil.rmtree, _PLACES[0], ignore_errors=True)
    return _PLACES[0]


def written(name: str, data: bytes) -> str:
    """Return the path of a private file with this content."""
    path = f"{place()}/{name}"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
    return path
