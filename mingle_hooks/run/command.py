"""One attempt on a host: COMMAND from its start until nothing of it is left, its output, and its stacks."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import NamedTuple

from mingle_hooks import values
from mingle_hooks.files import close_descriptors_except
from mingle_hooks.rendezvous.connection import READ, Loop, Timer
from mingle_hooks.run import messages, processes
from mingle_hooks.run.messages import (
    CLEAN,
    DRAINED,
    ENDED,
    ERR,
    MOST_STACKS,
    MOST_TAIL,
    OUT,
    STACKS,
    Clean,
    Ended,
    Formed,
    Link,
    Message,
    Stacks,
    Start,
)
from mingle_hooks.run.processes import Descriptor, Reaped, Tree

# COMMAND's process: `mingle exec`, which becomes COMMAND once the world has formed.
#
# The supervisor's child goes on as that: a new interpreter, and loading what both need, would cost each host 20 ms.

FORMED, ATTEMPT, FACTS = "MINGLE_RUN_FORMED", "MINGLE_ATTEMPT", "MINGLE_RUN"
_PROGRAM = "mingle_hooks.cli.main"
_CANNOT_BEGIN = 73  # EX_CANTCREAT, as PlaceError's
_STDERR = 2


class Command(NamedTuple):
    """COMMAND's process, and the pipes that it writes to."""

    pid: int
    stdout: int
    stderr: int
    formed: int


def command_environ(own: Mapping[str, str], start: Start) -> dict[str, str]:
    """Return COMMAND's environment, without what opens the runner's door."""
    mine = {name: value for name, value in own.items() if name not in (messages.KEY, messages.AT)}
    facts = {FACTS: values.to_json(dict(start.facts))} if start.facts else {}
    return {**mine, **start.environ, ATTEMPT: str(start.attempt), **facts}


def begin_command(own: Mapping[str, str], start: Start) -> Command:
    """Start it. Raises OSError for want of descriptors or processes."""
    ends: list[int] = []
    try:
        for _ in range(3):
            ends += os.pipe2(os.O_CLOEXEC)
        processes.hold_signals()
        pid = os.fork()
    except OSError:
        processes.release_signals()
        for end in ends:
            os.close(end)
        raise
    out, stdout, err, stderr, formed, telling = ends
    if not pid:
        _become(own, start, stdout, stderr, telling)
    processes.release_signals()
    for theirs, ours in ((stdout, out), (stderr, err), (telling, formed)):
        os.close(theirs)
        os.set_blocking(ours, False)
    return Command(pid, out, err, formed)


def _become(own: Mapping[str, str], start: Start, stdout: int, stderr: int, telling: int) -> None:
    """Become `mingle exec`; what goes wrong is told where COMMAND's errors are."""
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.umask(start.umask)
        os.chdir(start.directory)
        os.set_inheritable(telling, True)  # noqa: FBT003 - os's own
        # A copy of the supervisor's connections here would hide its end.
        close_descriptors_except(0, 1, _STDERR, telling)
        processes.forget_signals()
        processes.release_signals()
        _exec({**command_environ(own, start), FORMED: str(telling)}, ("exec", *start.options, "--", *start.command))
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else _CANNOT_BEGIN)
    except BaseException as wrong:  # noqa: BLE001 - nothing may go back into the supervisor's code
        seen = f"{wrong.filename}: {wrong.strerror}" if isinstance(wrong, OSError) else str(wrong)
        os.write(_STDERR, f"mingle run: cannot start: {seen}\n".encode(errors="replace"))
    finally:
        os._exit(_CANNOT_BEGIN)


def _exec(environ: Mapping[str, str], arguments: tuple[str, ...]) -> None:
    """Run mingle's command line in this process, which knows Python's own modules and those beside mingle."""
    os.environ.clear()
    os.environ.update(environ)
    sys.argv[1:] = arguments
    # This interpreter runs isolated (-I); plugins of the caller may be found by PYTHONPATH.
    sys.path += filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
    import_module(_PROGRAM).main()


# COMMAND's output, passed on in whole lines as far as there are some.

# A line longer than this goes in pieces.
LONGEST = 64 * 1024
_RELAY_BYTES = 256 * 1024
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
        # One for all: to get and to free so much each time costs as much again.
        self._buffer = bytearray(_RELAY_BYTES)
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
            for _ in range(_PIPE_BYTES // _RELAY_BYTES):
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


# What COMMAND's Python processes are doing: by py-spy, or by the faulthandler of those that have it enabled.
#
# A program has faulthandler's handlers with PYTHONFAULTHANDLER=1 or faulthandler.enable(). SIGABRT then makes it write
# the stacks of all its threads, and end, which is what comes next anyway. Other signals mean other things to programs:
# torchrun's agent ends its workers at SIGQUIT, and USR1 and USR2 warn of limits and preemption.

# So many py-spy at once; what is signalled has this last part of the time.
MOST_AT_ONCE, WRITE_S = 8, 3.0
_LOOK_S = 0.02
_STACKS_BYTES = 64 * 1024


def py_spy(path: str) -> str | None:
    """Return where py-spy is."""
    places = (os.path.join(folder, "py-spy") for folder in path.split(os.pathsep) if folder)
    return next((place for place in places if os.path.isfile(place) and os.access(place, os.X_OK)), None)


def spawn_py_spy(argv: list[str], environ: Mapping[str, str]) -> tuple[int, int]:
    """Start a program; return its process and the end of a pipe with all that it says. Raises OSError."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, writing, 1),
        (os.POSIX_SPAWN_DUP2, writing, 2),
    ]
    try:
        os.set_blocking(reading, False)
        return os.posix_spawn(argv[0], argv, environ, file_actions=actions), reading
    except OSError:
        os.close(reading)
        raise
    finally:
        os.close(writing)


def forbid_core(pid: int) -> None:
    """Have the kernel write no memory of a process to a disk as it aborts; 1 also forbids a core to a program."""
    import resource

    try:
        hard = resource.prlimit(pid, resource.RLIMIT_CORE)[1]
        resource.prlimit(pid, resource.RLIMIT_CORE, (min(1, hard) if hard >= 0 else 1, hard))
    except (OSError, ValueError):  # it ended meanwhile, or is another user's
        pass


class StackReader:
    """Takes them, of all Python processes below this one; `on_done(text)` comes once, within the time given."""

    def __init__(self, loop: Loop, own: Mapping[str, str], within_s: float, on_done: Callable[[str], None]) -> None:
        self._loop, self._on_done = loop, on_done
        self._environ = {name: value for name, value in own.items() if name not in (messages.KEY, messages.AT)}
        self._program = py_spy(own.get("PATH", ""))
        self._pids = [pid for pid in processes.descendants() if processes.is_python(pid)]
        self._waiting = [*self._pids] if self._program else []
        self._spies: dict[int, tuple[int, Descriptor]] = {}  # whose stacks -> py-spy's process and its output
        self._said: dict[int, bytes] = {}
        self._signalled: list[int] = []
        self._is_over = False
        self._until = loop.clock() + within_s
        loop.after(max(within_s - WRITE_S, 0.0), self._no_more_spies)
        self._spy()

    def _spy(self) -> None:
        """Go on to the next; behind the last, to those that py-spy had nothing of."""
        while self._waiting and len(self._spies) < MOST_AT_ONCE:
            self._begin(self._waiting.pop(0))
        if not self._spies and not self._is_over:
            self._is_over = True
            self._signal()

    def _begin(self, pid: int) -> None:
        try:
            spy, reading = spawn_py_spy([str(self._program), "dump", "--pid", str(pid)], self._environ)
        except OSError as wrong:  # no descriptor or process is left, or it is no program
            self._said[pid] = f"py-spy: {wrong.strerror}".encode()
            return
        end = Descriptor(reading)
        self._spies[pid], self._said[pid] = (spy, end), b""
        self._loop.watch(end, READ, lambda _events: self._read(pid))

    def _read(self, pid: int) -> None:
        try:
            data = os.read(self._spies[pid][1].fileno(), _STACKS_BYTES)
        except BlockingIOError:
            return
        self._said[pid] = (self._said[pid] + data)[:MOST_STACKS]
        if not data:
            self._close(pid)
            self._spy()

    def _close(self, pid: int) -> int:
        spy, end = self._spies.pop(pid)
        self._loop.unwatch(end)
        end.close()
        return spy

    def _no_more_spies(self) -> None:
        """Leave those that take too long."""
        self._waiting.clear()
        processes.send_signal([self._close(pid) for pid in [*self._spies]], signal.SIGKILL)
        self._spy()

    def _signal(self) -> None:
        """Have those write that py-spy had nothing of, as far as they can, and wait until they have."""
        here = {*processes.descendants()}
        left = [pid for pid in self._pids if pid in here and b"Thread " not in self._said.get(pid, b"")]
        self._signalled = [pid for pid in left if processes.catches_signal(pid, signal.SIGABRT)]
        for pid in self._signalled:
            forbid_core(pid)
        processes.send_signal(self._signalled, signal.SIGABRT)
        processes.send_signal(self._signalled, signal.SIGCONT)  # one that is stopped hears nothing
        self._until = min(self._until, self._loop.clock() + WRITE_S)
        self._look()

    def _look(self) -> None:
        """Wait for the end of those that were signalled: by then they have written."""
        if self._loop.clock() < self._until and any(processes.is_running(pid) for pid in self._signalled):
            self._loop.after(_LOOK_S, self._look)
        else:
            self._on_done(self._text()[:MOST_STACKS])

    def _text(self) -> str:
        return "\n".join(map(self._of, self._pids)) or "no Python process is here"

    def _of(self, pid: int) -> str:
        said = self._said.get(pid, b"").decode(errors="replace").strip()
        if b"Thread " in self._said.get(pid, b""):
            return said
        if pid in self._signalled:
            return f"process {pid}: what faulthandler wrote at SIGABRT is in its output"
        why = said or ("py-spy took too long" if self._program else "py-spy is not on PATH")
        return f"process {pid}: no stack ({why}, and PYTHONFAULTHANDLER=1 is not set)"


# One attempt.

# What COMMAND leaves behind has so long after TERM, in seconds.
_LEFTOVER_GRACE_S = 1.0
# Output is awaited so long after the last process is gone: somebody else may hold the pipe.
_DRAIN_S = 1.0
_MOST_FORMED_BYTES = 4096


class Attempt:
    """COMMAND, its output and its end; `report(kind, body)` tells the runner."""

    def __init__(
        self, loop: Loop, start: Start, own: Mapping[str, str], output: Link, report: Callable[[int, Message], None]
    ) -> None:
        self._loop, self._report, self.number = loop, report, start.attempt
        self._memory = processes.OomCounter.here()
        self._formed = False
        self.is_clean = self.is_drained = False
        self._drain: Timer | None = None
        self._own = own
        self._stacks: StackReader | None = None
        self.tree = Tree(loop, self._ended, self._empty)
        begun = begin_command(own, start)
        self._pid = begun.pid
        self._relay = Relay(loop, output, begun.stdout, begun.stderr, self._drained)
        self._telling: Descriptor | None = Descriptor(begun.formed)
        loop.watch(self._telling, READ, lambda _events: self._told())

    def close(self) -> None:
        """Wait for no more output."""
        if not self.is_drained:
            self._relay.close()

    def dump(self, within_s: float) -> None:
        """Take the stacks of all Python processes, once, and tell the runner."""
        if self._stacks is None:
            self._stacks = StackReader(self._loop, self._own, within_s, self._dumped)

    def _dumped(self, text: str) -> None:
        self._report(STACKS, Stacks(self.number, text[:MOST_STACKS]))

    def _told(self) -> None:
        """Read what `mingle exec` says of the world, or that it has ended without a word."""
        if self._telling is None:
            return
        try:
            data = os.read(self._telling.fileno(), _MOST_FORMED_BYTES)
        except BlockingIOError:
            return
        self._hush()
        if data:
            world = values.from_json(data)
            self._formed = True
            where, spent = (world["addr"], world["port"]), tuple(world["spent"])
            self._report(messages.FORMED, Formed(self.number, world["nodes"], *where, spent))

    def _hush(self) -> None:
        """Hear no more of the world; who still holds the pipe has left it open."""
        if self._telling is not None:
            self._loop.unwatch(self._telling)
            self._telling.close()
            self._telling = None

    def _ended(self, child: Reaped) -> None:
        if child.pid != self._pid:
            return
        self._told()
        self._hush()
        self._relay.catch_up()
        status = child.status if child.signal is None else 128 + child.signal
        is_oom = self._memory.has_grown()
        self._report(ENDED, Ended(self.number, status, child.signal, self._formed, is_oom, self._relay.tail))
        if not self.tree.is_ending:  # else what is left has the grace that the runner gave
            self.tree.end(_LEFTOVER_GRACE_S)

    def _empty(self) -> None:
        if self.is_clean:
            return
        self.is_clean = True
        self._report(CLEAN, Clean(self.number, self.tree.killed))
        if not self.is_drained:
            self._drain = self._loop.after(_DRAIN_S, self._overdue)

    def _overdue(self) -> None:
        if self._relay.is_paused:  # the runner is slow; nothing is lost for that
            self._drain = self._loop.after(_DRAIN_S, self._overdue)
        else:
            self.close()

    def _drained(self) -> None:
        self.is_drained = True
        if self._drain is not None:
            self._drain.cancel()
