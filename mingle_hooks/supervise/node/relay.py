"""COMMAND's output, passed on in whole lines as far as there are some."""

from __future__ import annotations

import fcntl
import os

from mingle_hooks.rendezvous.poller import READ
from mingle_hooks.supervise.protocol.messages import DRAINED, ERR, MOST_TAIL, OUT
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.supervise.protocol.link import Link

# A line longer than this goes in pieces.
LONGEST = 64 * 1024
_READ_BYTES = 64 * 1024
_PIPE_BYTES = 1 << 20  # what any user may ask for
# The pipes are left alone while more than this waits for the runner, until less than the second does.
MOST_WAITING, FEW_WAITING = 1 << 20, 1 << 18


class Pipe:
    """One of COMMAND's two streams."""

    def __init__(self, descriptor: int, kind: int) -> None:
        self._descriptor, self.kind = descriptor, kind
        self.rest = b""  # of a line that has not ended
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except (AttributeError, OSError):  # Python 3.10's first; or this user has too many large ones
            pass

    def fileno(self) -> int:
        """Return its descriptor."""
        return self._descriptor

    def read(self) -> bytes | None:
        """Return what has come, b"" at the end, None where nothing has."""
        try:
            return os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return None

    def lines(self, data: bytes) -> bytes:
        """Return the whole lines up to here, and a piece of one that is too long; keep the rest."""
        data = self.rest + data if self.rest else data
        cut = data.rfind(b"\n") + 1 or (len(data) if len(data) >= LONGEST else 0)
        self.rest = data[cut:]
        return data[:cut] if self.rest else data

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
        self._tail = (self._tail + data)[-MOST_TAIL - 1 :] if len(data) <= MOST_TAIL else data[-MOST_TAIL - 1 :]
        lines = pipe.lines(data)
        if lines:
            self._link.send_output(pipe.kind, lines)
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
        if pipe.rest:
            self._link.send_output(pipe.kind, pipe.rest)
        pipe.close()
        self._pipes.remove(pipe)
        if not self._pipes:
            self._link.send_output(DRAINED, b"")
            self._on_end()
