"""COMMAND's output, passed on in whole lines as far as there are some."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from mingle_hooks.rendezvous.poller import READ
from mingle_hooks.supervise.protocol.messages import DRAINED, ERR, MOST_TAIL, OUT

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.supervise.protocol.link import Link

# A line longer than this goes in pieces.
LONGEST = 64 * 1024
_READ_BYTES = 256 * 1024
_PIPE_BYTES = 1 << 20  # what any user may ask for
# The pipes are left alone while more than this waits for the runner, until less than the second does.
MOST_WAITING, FEW_WAITING = 1 << 20, 1 << 18
# Of a line that has not ended, such as a bar of progress, the runner hears at least so often that it grows.
TELL_S = 0.5


class Pipe:
    """One of COMMAND's two streams."""

    def __init__(self, descriptor: int, kind: int) -> None:
        self._descriptor, self.kind = descriptor, kind
        self._rest = b""  # of a line that has not ended
        self._buffer = bytearray(_READ_BYTES)  # one for all: to get and to free so much each time costs as much again
        self._view = memoryview(self._buffer)
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except (AttributeError, OSError):  # Python 3.10's first; or this user has too many large ones
            pass

    def fileno(self) -> int:
        """Return its descriptor."""
        return self._descriptor

    def read(self) -> memoryview | None:
        """Return what has come, nothing at the end, None where nothing has; it holds until the next read."""
        try:
            return self._view[: os.readv(self._descriptor, [self._buffer])]
        except BlockingIOError:
            return None

    def lines(self, data: memoryview) -> tuple[bytes | memoryview, ...]:
        """Return the whole lines up to here, or a piece of one that is too long, in parts; keep the rest."""
        cut = self._buffer.rfind(b"\n", 0, len(data)) + 1
        if not cut:
            self._rest += data
            return (self.take(),) if len(self._rest) >= LONGEST else ()
        before, self._rest = self._rest, bytes(data[cut:])
        return before, data[:cut]

    def take(self) -> bytes:
        """Return the rest of the last line, once."""
        rest, self._rest = self._rest, b""
        return rest

    def close(self) -> None:
        """Read no more."""
        os.close(self._descriptor)


class Relay:
    """Both streams of one attempt; `on_end()` comes when both have ended and all has been handed to the kernel."""

    def __init__(self, loop: Loop, link: Link, stdout: int, stderr: int, on_end: Callable[[], None]) -> None:
        self._loop, self._link, self._on_end = loop, link, on_end
        self._pipes = [Pipe(stdout, OUT), Pipe(stderr, ERR)]
        self._is_paused = False
        self._tail = b""
        self._told_at = 0.0
        link.tell_of_room(self._room)
        for pipe in self._pipes:
            self._watch(pipe)

    @property
    def tail(self) -> str:
        """Return the last lines that came, from the first whole one on."""
        tail = self._tail[-MOST_TAIL:]
        whole = tail.partition(b"\n")[2] if len(self._tail) > MOST_TAIL else tail
        return (whole or tail).decode(errors="replace")

    @property
    def is_paused(self) -> bool:
        """Whether the runner has to read first."""
        return self._is_paused

    def catch_up(self) -> None:
        """Read what is in the pipes by now, at most what they hold."""
        for pipe in [*self._pipes]:
            for _ in range(_PIPE_BYTES // _READ_BYTES):
                if not self._read(pipe):
                    break

    def close(self) -> None:
        """Pass on what is there, and be done: whoever still holds a pipe is none of ours."""
        if self._pipes:
            self.catch_up()
        for pipe in [*self._pipes]:
            self._end(pipe)

    def _watch(self, pipe: Pipe) -> None:
        def ready(_events: int) -> None:
            self._read(pipe)

        self._loop.watch(pipe, READ, ready)

    def _read(self, pipe: Pipe) -> bool:
        """Pass on what has come; tell whether there may be more."""
        data = pipe.read()
        if data is None:
            return False
        if not data:
            self._end(pipe)
            return False
        self._tail = (self._tail + data[-MOST_TAIL - 1 :])[-MOST_TAIL - 1 :]
        parts = pipe.lines(data)
        now = self._loop.clock()
        if parts or now - self._told_at > TELL_S:
            self._told_at = now
            self._link.send_output(pipe.kind, *parts)
            self._pause()
        return True

    def _pause(self) -> None:
        if self._link.waiting_bytes > MOST_WAITING and not self._is_paused:
            self._is_paused = True
            for pipe in self._pipes:
                self._loop.unwatch(pipe)  # not less: an end would be told again and again

    def _room(self) -> None:
        if self._is_paused and self._link.waiting_bytes < FEW_WAITING:
            self._is_paused = False
            for pipe in self._pipes:
                self._watch(pipe)

    def _end(self, pipe: Pipe) -> None:
        self._loop.unwatch(pipe)
        rest = pipe.take()
        if rest:
            self._link.send_output(pipe.kind, rest)
        pipe.close()
        self._pipes.remove(pipe)
        if not self._pipes:
            self._link.send_output(DRAINED, b"")
            self._on_end()
