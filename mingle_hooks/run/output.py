"""COMMAND's output and the runner's messages, on the runner's stdout and stderr, and in the files of --log-dir.

A reader that stops reading, or a file system that hangs, holds up nothing but output: pipes are written without
blocking, files, once open, by a thread. What waits is bounded, as the runner reads nothing from agents while much of
it waits.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from io import FileIO
from queue import SimpleQueue
from typing import Any

from mingle_hooks.errors import MingleError, PlaceError, limit
from mingle_hooks.files import open_to_append
from mingle_hooks.rendezvous.connection import READ, WRITE, Loop
from mingle_hooks.run.messages import ERR, OUT
from mingle_hooks.run.processes import widen_pipe


def open_nonblocking(descriptor: int) -> int | None:
    """Return a descriptor of the same pipe, terminal, socket or device that does not block; None for a file.

    It is opened anew: the flags of the stream itself belong to all processes that have it, the user's shell included.
    """
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISFIFO(mode) or os.isatty(descriptor):
            widen_pipe(descriptor)
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            return os.open(f"/proc/self/fd/{descriptor}", flags)
        return os.dup(descriptor) if stat.S_ISSOCK(mode) or stat.S_ISCHR(mode) else None
    except OSError:
        return None


# How long close() waits for the rest, in seconds.
_CLOSE_S = 2.0
_Parts = tuple[bytes | memoryview, ...]


class FileWriter:
    """Writes files in a thread, as a write may hang for minutes where a file system does.

    `on_room()` comes in the loop when some of what waits has been written. A writer calls start() first; the owner
    calls close().
    """

    def __init__(self, loop: Loop, on_room: Callable[[], None]) -> None:
        self._loop, self._on_room = loop, on_room
        # What to do, how many bytes that writes, and whom to tell of an error.
        self._queue: SimpleQueue[tuple[Callable[[], None], int, Callable[[Any], None]] | None] = SimpleQueue()
        self._errors: SimpleQueue[Callable[[], None]] = SimpleQueue()
        # A daemon, as this process has to end though its file system may never answer.
        self._thread = threading.Thread(target=self._run, daemon=True)
        woken, wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)  # by which the thread wakes the loop
        self._woken, self._wakes = FileIO(woken), FileIO(wakes, "w")
        loop.watch(self._woken, READ, lambda _events: self._report())
        self._given_bytes = self.taken_bytes = 0
        self._written_bytes = 0  # changed by the thread alone, which reports an error first

    @property
    def waiting_bytes(self) -> int:
        """How much is not written yet; a call counts as one byte."""
        return self._given_bytes - self.taken_bytes

    def start(self) -> None:
        """Start the thread, once. Raises LimitError if no thread is left."""
        if self._thread.ident is None:
            try:
                self._thread.start()
            except RuntimeError as error:
                raise limit(error) or error from None

    def write(self, descriptor: int, parts: _Parts, on_error: Callable[[OSError], None]) -> None:
        """Write soon; `on_error(error)` comes in the loop, for each write that fails."""
        size = sum(map(len, parts))
        self._given_bytes += size
        self._queue.put((partial(_write_all, descriptor, [*parts]), size, on_error))

    def call(self, write: Callable[[], None], on_error: Callable[[Any], None]) -> None:
        """Call what writes by itself, or closes a file, after all before; `on_error(error)` is as in write()."""
        self._given_bytes += 1
        self._queue.put((write, 1, on_error))

    def close(self) -> None:
        """End, after a moment for what is not written yet."""
        self._queue.put(None)
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_S)
        self._loop.unwatch(self._woken)
        if not self._thread.is_alive():
            self._woken.close()
            self._wakes.close()

    def _report(self) -> None:
        self._woken.read(4096)
        written = self._written_bytes
        while not self._errors.empty():
            self._errors.get()()
        self.taken_bytes = written
        self._on_room()

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            call, size, on_error = job
            try:
                call()
            except (OSError, MingleError) as error:
                self._errors.put(partial(on_error, error))
            self._written_bytes += size
            self._wakes.write(b".")


def _write_all(descriptor: int, parts: list[bytes | memoryview]) -> None:
    while parts:
        try:
            count = os.writev(descriptor, parts)
        except BlockingIOError:  # somebody else made it so
            select.select([], [descriptor], [])
            continue
        while parts and count >= len(parts[0]):
            count -= len(parts.pop(0))
        if parts:
            parts[0] = memoryview(parts[0])[count:]


class Writer:
    """One of the runner's own streams: a pipe, terminal, socket or device written without blocking, a file by `files`.

    `on_gone()` comes if there is no reader, `on_fault(reason)` once if something cannot be written,
    `on_room()` when some of what waits has been read.
    """

    def __init__(self, loop: Loop, files: FileWriter, descriptor: int) -> None:
        self._loop, self._files = loop, files
        self.on_gone: Callable[[], None] = lambda: None
        self.on_room: Callable[[], None] = lambda: None
        self.on_fault: Callable[[str], None] = lambda _reason: None
        own = open_nonblocking(descriptor)
        self._is_file = own is None
        if self._is_file:
            files.start()
        self._to = descriptor if own is None else own
        is_socket = own is not None and stat.S_ISSOCK(os.fstat(own).st_mode)
        self._sock = socket.socket(fileno=os.dup(self._to)) if is_socket else None
        self._queue: deque[memoryview] = deque()
        self._is_gone = self._has_failed = False
        self.waiting_bytes = self.taken_bytes = 0

    def fileno(self) -> int:
        """Return the descriptor that it writes to."""
        return self._to

    def write(self, *parts: bytes | memoryview) -> None:
        """Write, or queue until there is room."""
        if self._is_gone:
            return
        if self._is_file:
            self._files.write(self._to, parts, self._fail)
            return
        was_waiting = bool(self._queue)
        self._queue.extend(map(memoryview, parts))
        self.waiting_bytes += sum(map(len, parts))
        if not was_waiting:
            self._put()
            if self._queue:
                self._loop.watch(self, WRITE, lambda _events: self._flush())

    def forget(self) -> None:
        """Drop the output that waits."""
        self._loop.unwatch(self)
        self._queue.clear()
        self.waiting_bytes = 0

    def _put(self) -> None:
        """Write as much as there is room for."""
        while self._queue:
            data = self._queue[0]
            try:
                count = self._sock.send(data, socket.MSG_DONTWAIT) if self._sock else os.write(self._to, data)
            except BlockingIOError:
                return
            except OSError as error:
                self._fail(error)
                return
            self.taken_bytes += count
            self.waiting_bytes -= count
            if count < len(data):
                self._queue[0] = data[count:]
            else:
                self._queue.popleft()

    def _flush(self) -> None:
        self._put()
        if not self._queue:
            self._loop.unwatch(self)
        self.on_room()

    def _fail(self, error: OSError) -> None:
        self.forget()
        is_lost = error.errno == errno.EIO and not self._is_file  # a terminal; a file may be written again
        if is_lost or error.errno in (errno.EPIPE, errno.ECONNRESET):
            self._is_gone = True
            self.on_gone()
        elif error.errno == errno.EBADF:  # it was closed from the beginning, and nobody wants it
            self._is_gone = True
        elif not self._has_failed:
            self._has_failed = True
            self.on_fault(error.strerror or str(error.errno))


STDOUT, STDERR = 1, 2
# With more bytes than the first waiting for a reader, no more output is accepted until fewer than the second wait.
MOST_WAITING, FEW_WAITING = 4 << 20, 1 << 20
# A longer line is written in pieces.
LONGEST_LINE = 1 << 20
# More than is allocated and freed for one frame.
_LARGE_BYTES = 2 << 20
# Colours of a terminal that can be read on dark and on light.
_COLOURS = (36, 33, 32, 35, 34, 31)


def label_lines(label: bytes, lines: bytes) -> _Parts:
    """Return whole lines with a label in front of each, in parts: joining them would cost more than all the rest.

    The last line gets an end, if it has none.
    """
    found = lines.replace(b"\n", b"\n" + label)
    return (label, memoryview(found)[: -len(label)]) if lines.endswith(b"\n") else (label, found, b"\n")


class _Stream:
    """One stream of one member: its label, and the beginning of a line that has not ended."""

    def __init__(self, label: bytes) -> None:
        self.label, self.rest = label, b""

    def take(self, data: bytes) -> _Parts:
        """Return the output that can be written now, in parts."""
        if not self.label:
            return (data,)
        data = self.rest + data if self.rest else data
        cut = len(data) if len(data) >= LONGEST_LINE else data.rfind(b"\n") + 1
        self.rest = data[cut:]
        return label_lines(self.label, data[:cut]) if cut else ()

    def end(self) -> _Parts:
        """Return the rest, in parts."""
        data, self.rest = self.rest, b""
        return label_lines(self.label, data) if data else ()


class Output:
    """Writes members' output, unchanged where a member has no label.

    `on_gone()` comes once if nobody reads stdout; `hold(bool)` stops and resumes the reading of output.
    """

    def __init__(self, loop: Loop, on_gone: Callable[[], None], hold: Callable[[bool], None]) -> None:
        self._hold, self._is_held, self.is_last = hold, False, False
        # From the end of a large block on, glibc keeps freed memory, which the kernel would have to clear each time:
        # M_TRIM_THRESHOLD of malloc(3) becomes twice the block's size. It saves a quarter of all time.
        bytes(_LARGE_BYTES)
        self.files = FileWriter(loop, self._room)
        self._out = self._err = Writer(loop, self.files, STDOUT)
        if not os.path.sameopenfile(STDOUT, STDERR):
            self._err = Writer(loop, self.files, STDERR)
            self._out.on_fault = self._fault
        self._writers = {self._out, self._err}
        self._out.on_gone, self._out.on_room, self._err.on_room = on_gone, self._room, self._room
        self._streams: dict[int, dict[int, _Stream]] = {}  # place -> kind -> stream

    @property
    def waiting_bytes(self) -> int:
        """How many bytes wait for a reader, or for a file system."""
        return sum(writer.waiting_bytes for writer in self._writers) + self.files.waiting_bytes

    @property
    def taken_bytes(self) -> int:
        """How many bytes readers and files have taken so far."""
        return sum(writer.taken_bytes for writer in self._writers) + self.files.taken_bytes

    def begin(self, place: int, label: str, colour: int) -> None:
        """Give a place the label of its member, which may be empty."""
        self.end(place)
        coloured = f"\x1b[{_COLOURS[colour % len(_COLOURS)]}m{label}\x1b[0m"
        self._streams[place] = {}
        for kind, descriptor in ((OUT, STDOUT), (ERR, STDERR)):
            has_colour = label and os.isatty(descriptor) and not os.environ.get("NO_COLOR")
            self._streams[place][kind] = _Stream((coloured if has_colour else label).encode())

    def take(self, place: int, kind: int, data: bytes) -> None:
        """Write a member's output."""
        if place in self._streams:
            self._write(kind, self._streams[place][kind].take(data))

    def end(self, place: int) -> None:
        """Write the rest of a member's last lines."""
        for kind, stream in self._streams.get(place, {}).items():
            self._write(kind, stream.end())

    def show(self, text: str) -> None:
        """Write one of the runner's own messages to stderr."""
        self._err.write(text.encode(sys.stderr.encoding or "utf-8", "backslashreplace"))

    def give_up(self) -> int:
        """Drop the output that waits for readers; return how many bytes that were."""
        waiting = self.waiting_bytes
        for writer in self._writers:
            writer.forget()
        return waiting

    def _write(self, kind: int, parts: _Parts) -> None:
        (self._out if kind == OUT else self._err).write(*parts)
        if not self._is_held and not self.is_last and self.waiting_bytes > MOST_WAITING:
            self._is_held = True
            self._hold(True)  # noqa: FBT003 - a callback

    def _room(self) -> None:
        if self._is_held and self.waiting_bytes < FEW_WAITING:
            self._is_held = False
            self._hold(False)  # noqa: FBT003 - a callback

    def _fault(self, reason: str) -> None:
        """Report on stderr, which is another file, that output is lost."""
        self.show(f"mingle run: its output cannot be written ({reason}) and is lost\n")


EVENTS = "events.jsonl"


class Logs:
    """--log-dir: each member's output in a file of its own, and the run's events in events.jsonl.

    `on_fault(text)` comes once if one cannot be written; then nothing more is.
    """

    def __init__(self, directory: str, files: FileWriter, on_fault: Callable[[str], None]) -> None:
        self._directory, self._files, self._on_fault = directory, files, on_fault
        self._has_failed = False
        self._members: dict[int, int] = {}  # place -> descriptor
        try:
            os.makedirs(directory, exist_ok=True)
            self._events = open_to_append(f"{directory}/{EVENTS}", 0o666)
        except OSError as error:
            raise PlaceError("a directory for logs", f"{directory}: {error.strerror}", "another --log-dir") from None
        files.start()

    def begin(self, place: int, name: str) -> None:
        """Open the file of a member's attempt."""
        if (descriptor := self._members.pop(place, None)) is not None:
            self._close(descriptor)
        try:
            self._members[place] = open_to_append(f"{self._directory}/{name}", 0o666)
        except OSError as error:
            self._fail(error)

    def take(self, place: int, data: bytes) -> None:
        """Write a member's output as it is."""
        if place in self._members:
            self._write(self._members[place], data)

    def note(self, text: str) -> None:
        """Write a message of the runner into every member's file."""
        for descriptor in self._members.values():
            self._write(descriptor, text.encode(errors="backslashreplace"))

    def event(self, line: bytes) -> None:
        """Write a line of events.jsonl."""
        self._write(self._events, line)

    def close(self) -> None:
        """Close all files. Nothing may be written afterwards."""
        for descriptor in (*self._members.values(), self._events):
            self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        self._files.call(partial(os.close, descriptor), self._fail)  # only then NFS may report a full disk

    def _write(self, descriptor: int, data: bytes) -> None:
        if not self._has_failed:
            self._files.write(descriptor, (data,), self._fail)

    def _fail(self, error: OSError) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._on_fault(f"no more logs are written below {self._directory}: {error.strerror}")
