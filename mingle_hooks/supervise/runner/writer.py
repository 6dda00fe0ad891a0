"""One of the runner's own streams, written without blocking wherever its other end can hold one up."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from typing import TYPE_CHECKING

from mingle_hooks.rendezvous.poller import WRITE
from mingle_hooks.supervise.node.descriptor import Descriptor

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.loop import Loop

_PIPE_BYTES = 1 << 20


def is_same_file(first: int, second: int) -> bool:
    """Tell whether two descriptors lead to the same place."""
    try:
        return os.path.sameopenfile(first, second)
    except OSError:
        return False


def unblocked(descriptor: int) -> int | None:
    """Return a descriptor of the same pipe or terminal that does not block, None for what is never full.

    It is opened anew: a stream's own flags belong to all who have it, the user's shell included.
    """
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISFIFO(mode) or os.isatty(descriptor):
            _widen(descriptor)
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            return os.open(f"/proc/self/fd/{descriptor}", flags)
        return os.dup(descriptor) if stat.S_ISSOCK(mode) else None
    except OSError:
        return None


def _widen(descriptor: int) -> None:
    """Make a pipe as large as any user may: writes are then few."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    except (AttributeError, OSError):  # no pipe; Python 3.10's first; or this user has too many large ones
        pass


class Writer:
    """Takes all that it is given.

    `on_gone()` comes where nobody reads, `on_fault(descriptor, reason)` once where something cannot be written,
    `on_room()` when some of what waits has been taken.
    """

    def __init__(
        self,
        loop: Loop,
        descriptor: int,
        on_gone: Callable[[], None],
        on_fault: Callable[[int, str], None],
        on_room: Callable[[], None],
    ) -> None:
        self._loop, self._descriptor = loop, descriptor
        self._on_gone, self._on_fault, self._on_room = on_gone, on_fault, on_room
        own = unblocked(descriptor)
        self._to = Descriptor(descriptor if own is None else own)
        self._is_socket = own is not None and stat.S_ISSOCK(os.fstat(own).st_mode)
        self._sock = socket.socket(fileno=os.dup(own)) if self._is_socket and own is not None else None
        self._waits = own is not None
        self._queue: list[memoryview] = []
        self._is_gone = self._has_failed = False
        self.waiting_bytes = self.taken_bytes = 0

    def write(self, data: bytes | memoryview) -> None:
        """Write, or keep for when there is room."""
        if self._is_gone:
            return
        left = memoryview(data)
        if not self._queue:
            left = self._put(left)
        if left:
            if not self._queue:
                self._loop.watch(self._to, WRITE, lambda _events: self._flush())
            self._queue.append(left)
            self.waiting_bytes += len(left)

    def forget(self) -> None:
        """Drop what waits."""
        if self._queue:
            self._loop.unwatch(self._to)
        self._queue, self.waiting_bytes = [], 0

    def _put(self, data: memoryview) -> memoryview:
        """Write as much as there is room for; return the rest."""
        while data:
            try:
                count = self._sock.send(data, socket.MSG_DONTWAIT) if self._sock else os.write(self._to.fileno(), data)
            except BlockingIOError:
                if self._waits:
                    return data
                import select

                select.select([], [self._descriptor], [])  # somebody else made it so
                continue
            except OSError as error:
                self._fail(error)
                return data[:0]
            self.taken_bytes += count
            data = data[count:]
        return data

    def _flush(self) -> None:
        while self._queue:
            before = self._queue[0]
            left = self._put(before)
            if not self._queue:  # it has failed
                break
            self.waiting_bytes -= len(before) - len(left)
            if left:
                self._queue[0] = left
                break
            del self._queue[0]
        if not self._queue:
            self._loop.unwatch(self._to)
        self._on_room()

    def _fail(self, error: OSError) -> None:
        self.forget()
        if error.errno in (errno.EPIPE, errno.ECONNRESET, errno.EIO):
            self._is_gone = True
            self._on_gone()
        elif error.errno == errno.EBADF:  # it was closed from the beginning, and nobody wants it
            self._is_gone = True
        elif not self._has_failed:
            self._has_failed = True
            self._on_fault(self._descriptor, error.strerror or str(error.errno))
