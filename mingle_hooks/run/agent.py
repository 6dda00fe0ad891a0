"""The supervisor's parent: where either of the two is killed, the other ends all that is left.

Both are subreapers. A pipe from the warden tells the supervisor of each signal, and by its end of the warden's.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

from mingle_hooks import values
from mingle_hooks.errors import MingleError, NetworkError, UsageError
from mingle_hooks.files import UnfitError, close_descriptors_except, contents, own_program_argv
from mingle_hooks.net.addresses import hostname
from mingle_hooks.rendezvous.connection import READ, Loop, Timer, dial
from mingle_hooks.rendezvous.wire import Body, Secret, WireError
from mingle_hooks.run import messages, processes
from mingle_hooks.run.messages import (
    CLEAN,
    DRAINED,
    ENDED,
    ERR,
    JOIN,
    MOST_STACKS,
    MOST_TAIL,
    OUT,
    RUNNER,
    STACKS,
    SUPERVISOR,
    WELCOME,
    Clean,
    Ended,
    Formed,
    Join,
    Link,
    Stacks,
    Start,
    Welcome,
)
from mingle_hooks.run.messages import FORMED as FORMED_FRAME
from mingle_hooks.run.processes import Descriptor, Reaped, Tree

# What a starter says to a supervisor: on its command line, and what nobody else may see in its environment.

Where = tuple[str, int]

KEY, AT = "MINGLE_RUN_KEY", "MINGLE_RUN_AT"
_KEY_DIGITS = 64


class Options(NamedTuple):
    """Which place this is, and where the environment comes from."""

    host: str = ""
    local: str = ""
    environ: str = ""
    is_stdin: bool = False
    keep: tuple[str, ...] = ()

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Options:
        """Return what stands there. Raises UsageError for what no starter writes."""
        words, found = iter(arguments), cls()
        for word in words:
            if word == "--stdin":
                found = found._replace(is_stdin=True)
            elif word == "--keep":
                found = found._replace(keep=(*found.keep, next(words, "")))
            elif word == "--host":
                found = found._replace(host=next(words, ""))
            elif word == "--local":
                found = found._replace(local=next(words, ""))
            elif word == "--environ":
                found = found._replace(environ=next(words, ""))
            else:
                raise _bad("an option of a supervisor's", word)
        return found

    def words(self) -> tuple[str, ...]:
        """Return the place alone, as a command line."""
        host = ("--host", self.host) if self.host else ()
        return (*host, "--local", self.local) if self.local else host


class Task(NamedTuple):
    """Whom a supervisor looks for, and who it is."""

    key: bytes
    places: tuple[Where, ...]
    host: str
    local: int

    @classmethod
    def find(cls, options: Options, environ: Mapping[str, str]) -> Task:
        """Return a supervisor's task; it is where Slurm says where the starter did not. Raises UsageError."""
        digits, local = environ.get(KEY, ""), options.local or environ.get("SLURM_LOCALID") or "0"
        try:
            key = bytes.fromhex(digits)
        except ValueError:
            key = b""
        if len(digits) != _KEY_DIGITS or not key:
            raise _bad("a run's key", f"none in {KEY}")
        if not local.isdecimal():
            raise _bad("a number", f"{local} (--local)")
        host = options.host or environ.get("SLURMD_NODENAME", "")
        if not host:
            host = hostname()
        return cls(key, parse_addresses(environ.get(AT, "")), host, int(local))


def parse_addresses(text: str) -> tuple[Where, ...]:
    """Return what MINGLE_RUN_AT names: "10.77.0.1 4711,fd77::1 4711". Raises UsageError."""
    found = []
    for place in text.split(","):
        address, _, port = place.partition(" ")
        if not address or not port.isdecimal():
            raise _bad("addresses and ports", f"{text} ({AT})")
        found.append((address, int(port)))
    return tuple(found)


def _bad(expected: str, seen: str) -> UsageError:
    return UsageError(expected, seen, "`mingle run`, which starts this program")


# COMMAND's process: `mingle exec`, which becomes COMMAND once the world has formed.
#
# The supervisor's child goes on as that: a new interpreter, and loading what both need, would cost each host 20 ms.

FORMED, ATTEMPT, FACTS = "MINGLE_RUN_FORMED", "MINGLE_ATTEMPT", "MINGLE_RUN"
_PROGRAM = "mingle_hooks.cli.main"
_CANNOT_BEGIN = 73  # EX_CANTCREAT, as PlaceError's
_STDERR_command = 2


class Command(NamedTuple):
    """COMMAND's process, and the pipes that it writes to."""

    pid: int
    stdout: int
    stderr: int
    formed: int


def command_environ(own: Mapping[str, str], start: Start) -> dict[str, str]:
    """Return COMMAND's environment, without what opens the runner's door."""
    mine = {name: value for name, value in own.items() if name not in (KEY, AT)}
    facts = {FACTS: values.to_json(dict(start.facts))} if start.facts else {}
    return {**mine, **start.environ, ATTEMPT: str(start.attempt), **facts}


def prepare_command() -> None:
    """Load what `mingle exec` needs, while the other hosts are waited for."""


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
        close_descriptors_except(
            0, 1, _STDERR_command, telling
        )  # a copy of the supervisor's connections here would hide its end
        processes.forget_signals()
        processes.release_signals()
        _exec({**command_environ(own, start), FORMED: str(telling)}, ("exec", *start.options, "--", *start.command))
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else _CANNOT_BEGIN)
    except BaseException as wrong:  # noqa: BLE001 - nothing may go back into the supervisor's code
        seen = f"{wrong.filename}: {wrong.strerror}" if isinstance(wrong, OSError) else str(wrong)
        os.write(_STDERR_command, f"mingle run: cannot start: {seen}\n".encode(errors="replace"))
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
_READ_BYTES_relay = 256 * 1024
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
        self._buffer = bytearray(
            _READ_BYTES_relay
        )  # one for all: to get and to free so much each time costs as much again
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
            for _ in range(_PIPE_BYTES // _READ_BYTES_relay):
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
_READ_BYTES_stacks = 64 * 1024


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
        self._environ = {name: value for name, value in own.items() if name not in (KEY, AT)}
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
            data = os.read(self._spies[pid][1].fileno(), _READ_BYTES_stacks)
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


# One attempt on this host: COMMAND from its start until nothing of it is left.

# What COMMAND leaves behind has so long after TERM, in seconds.
_LEFTOVER_GRACE_S = 1.0
# Output is awaited so long after the last process is gone: somebody else may hold the pipe.
_DRAIN_S = 1.0
_MOST_FORMED_BYTES = 4096


class Attempt:
    """COMMAND, its output and its end; `report(kind, body)` tells the runner."""

    def __init__(
        self, loop: Loop, start: Start, own: Mapping[str, str], output: Link, report: Callable[[int, Body], None]
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
        self._report(STACKS, Stacks(self.number, text).body())

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
            self._report(FORMED_FRAME, Formed(self.number, world["nodes"], *where, spent).body())

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
        said = Ended(self.number, status, child.signal, self._formed, is_oom, self._relay.tail)
        self._report(ENDED, said.body())
        if not self.tree.is_ending:  # else what is left has the grace that the runner gave
            self.tree.end(_LEFTOVER_GRACE_S)

    def _empty(self) -> None:
        if self.is_clean:
            return
        self.is_clean = True
        self._report(CLEAN, Clean(self.number, self.tree.killed).body())
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


# The way to the runner: all of its addresses at once, until one has proved that it holds the run's key.

# Dial again after so long, in seconds, where it was refused.
_AGAIN_S = 0.5
# One that has greeted and says nothing more is not waited for longer, where another has greeted.
_PATIENCE_S = 3.0


class Approach:
    """Dials; `on_welcome(where, link, welcome)` comes once, with the control connection, `on_end(reason)` with its end.

    Whoever gets the link sets its `on_message`.
    """

    def __init__(
        self,
        loop: Loop,
        secret: Secret,
        places: Sequence[Where],
        join: Join,
        on_welcome: Callable[[Where, Link, Welcome], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._loop, self._secret, self._join = loop, secret, join
        self._on_welcome, self._on_end = on_welcome, on_end
        self._links: dict[Where, Link] = {}
        self._greeted: list[Where] = []  # in order; the first has been told who this is
        self.is_over = False
        for where in places:
            self._dial(where)

    def close(self, but: Link | None = None) -> None:
        """Give up, but for one link."""
        self.is_over = True
        for link in self._links.values():
            if link is not but:
                link.close()

    def _dial(self, where: Where) -> None:
        if self.is_over:
            return
        try:
            sock = dial(*where)
        except OSError as error:
            self._loop.missed(error)
            self._loop.after(_AGAIN_S, lambda: self._dial(where))
            return
        link = Link(self._loop, sock, self._secret, is_runner=False, on_end=lambda reason: self._lost(where, reason))
        link.on_proved = lambda: self._proved(where)
        link.on_message = lambda kind, body: self._said(where, kind, body)
        self._links[where] = link

    def _proved(self, where: Where) -> None:
        self._greeted.append(where)
        if self._greeted[0] == where:
            self._introduce()

    def _introduce(self) -> None:
        """Tell the first that greeted who this is."""
        if not self._greeted:
            return
        first = self._greeted[0]
        self._links[first].send(JOIN, self._join.body())
        self._loop.after(_PATIENCE_S, lambda: self._overdue(first))

    def _overdue(self, where: Where) -> None:
        if not self.is_over and self._greeted[:1] == [where] and len(self._greeted) > 1:
            self._links[where].close()
            self._lost(where, "it does not answer")

    def _lost(self, where: Where, reason: str) -> None:
        if self.is_over:
            self._on_end(reason)
            return
        was_first = self._greeted[:1] == [where]
        if where in self._greeted:
            self._greeted.remove(where)
        self._loop.after(_AGAIN_S, lambda: self._dial(where))
        if was_first:
            self._introduce()

    def _said(self, where: Where, kind: int, body: Body) -> None:
        if kind != WELCOME or self.is_over:
            return
        welcome, link = Welcome.parse(body), self._links[where]
        self.close(but=link)
        self._on_welcome(where, link, welcome)


# Signs of life, both ways: one datagram a second, and how long ago the runner's last word was.


class Pulse:
    """Sends signs, and calls `on_silence()` once when the runner was silent for too long.

    The runner's signs are read when the next sign is due: one wake-up a second.
    """

    def __init__(
        self, loop: Loop, secret: Secret, address: str, welcome: Welcome, on_silence: Callable[[], None]
    ) -> None:
        self._loop, self._secret, self._number, self._on_silence = loop, secret, welcome.number, on_silence
        self._tag = messages.heartbeat_tag(secret)
        self._silence_s = welcome.silence_ms / 1000
        self._interval_s = messages.heartbeat_interval_s(self._silence_s)
        self._sent = self._taken = 0
        self._heard_at = self._beat_at = loop.clock()
        self._timer: Timer | None = None
        self._sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.settimeout(0)
        host, _, zone = address.partition("%")
        self._sock.connect((host, welcome.port, 0, int(zone or 0)) if ":" in host else (host, welcome.port))
        self._beat()

    def heard(self) -> None:
        """Take note of any word of the runner."""
        self._heard_at = self._loop.clock()

    def close(self) -> None:
        """Say and expect no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._sock.close()

    def _beat(self) -> None:
        now = self._loop.clock()
        # A stop of this process, as of a job that is suspended, is not the runner's silence.
        self._heard_at += max(now - self._beat_at - 2 * self._interval_s, 0.0)
        self._beat_at = now
        self._take()
        if now - self._heard_at > self._silence_s:
            self._on_silence()
            return
        self._sent += 1
        try:
            self._sock.send(
                messages.pack_heartbeat(
                    self._secret, self._tag, SUPERVISOR, messages.Heartbeat(self._number, self._sent)
                )
            )
        except OSError:  # the next may get through
            pass
        self._timer = self._loop.after(self._interval_s, self._beat)

    def _take(self) -> None:
        """Read what has come; a number that is not higher than the last is an old sign, or somebody's copy."""
        while True:
            try:
                data = self._sock.recv(messages.BYTES + 1)
            except BlockingIOError:
                return
            except OSError:  # what became of an earlier one
                continue
            sign = messages.unpack_heartbeat(self._secret, self._tag, RUNNER, data)
            if sign is not None and sign.number == self._number and sign.sequence > self._taken:
                self._taken = sign.sequence
                self.heard()


# The runner, as a supervisor sees it: two connections and signs of life, which are lost together.

# A runner that does not answer for so long is none, in seconds.
_APPROACH_S = 30.0


class Runner:
    """`on_message(kind, body)` gets its words, none before output can be sent; `on_lost(reason)` comes once."""

    def __init__(
        self,
        loop: Loop,
        secret: Secret,
        places: Sequence[Where],
        join: Join,
        on_message: Callable[[int, Body], None],
        on_lost: Callable[[str], None],
        on_idle: Callable[[], None],
    ) -> None:
        self._loop, self._secret, self._join = loop, secret, join
        self._on_message, self._on_lost, self._on_idle = on_message, on_lost, on_idle
        self._early: list[tuple[int, Body]] = []  # said before there was a way for output
        self._control: Link | None = None
        self._pulse: Pulse | None = None
        self._is_lost = self._is_open = False
        self.output: Link | None = None
        self._approach = Approach(loop, secret, places, join, self._welcome, self._lose)
        loop.after(_APPROACH_S, self._overdue)

    @property
    def is_found(self) -> bool:
        """Whether it has said who this is."""
        return self._control is not None

    def send(self, kind: int, body: Body) -> None:
        """Tell it something."""
        if self._control is not None:
            self._control.send(kind, body)

    def close(self) -> None:
        """Say no more; what the kernel has taken still arrives."""
        self._is_lost = True
        self._approach.close()
        for part in (self._control, self.output, self._pulse):
            if part is not None:
                part.close()

    def _overdue(self) -> None:
        if not self.is_found:
            self._lose("none answers")

    def _welcome(self, where: Where, link: Link, welcome: Welcome) -> None:
        self._control, link.on_message = link, self._said
        self._pulse = Pulse(self._loop, self._secret, where[0], welcome, lambda: self._lose("it is silent"))
        try:
            sock = dial(*where)
        except OSError as error:
            self._lose(error.strerror or "no second connection")
            return
        output = self.output = Link(self._loop, sock, self._secret, is_runner=False, on_end=self._lose)
        output.on_proved = self._open
        output.on_message = lambda _kind, _body: self._hear()

    def _open(self) -> None:
        if self.output is not None:
            self.output.send(JOIN, self._join._replace(is_output=True).body())
        self._is_open = True
        early, self._early = self._early, []
        for kind, body in early:
            self._on_message(kind, body)
        if not early:
            self._loop.after(0.0, self._on_idle)

    def _hear(self) -> None:
        if self._pulse is not None:
            self._pulse.heard()

    def _said(self, kind: int, body: Body) -> None:
        self._hear()
        if self._is_open:
            self._on_message(kind, body)
        else:
            self._early.append((kind, body))

    def _lose(self, reason: str) -> None:
        if not self._is_lost:
            self.close()
            self._on_lost(reason)


# The supervisor: it obeys the runner, tells what becomes of COMMAND, and ends all where the runner is lost.

NO_RUNNER_SUPERVISOR = 75  # EX_TEMPFAIL: trying again makes sense
_STDERR_supervisor = 2
# Without a runner, COMMAND has so long after TERM, in seconds.
_LOST_GRACE_S = 2.0
# A signal that comes to the warden and to the supervisor within this time is one.
_SAME_S = 1.0


def run_agent(task: Task, warden: int) -> int:
    """Return the exit status that the runner says, or NO_RUNNER."""
    with Loop() as loop:
        supervisor = Supervisor(loop, task, warden)
        loop.run(lambda: supervisor.status is not None)
    return NO_RUNNER_SUPERVISOR if supervisor.status is None else supervisor.status


def say_on_stderr(text: str) -> None:
    """Write a line where the scheduler takes it, if anybody reads it."""
    try:
        os.write(_STDERR_supervisor, f"mingle run: {hostname()}: {text}\n".encode())
    except OSError:
        pass


class Supervisor:
    """One host's part of a run; `status` is its exit status once all is done."""

    def __init__(self, loop: Loop, task: Task, warden: int) -> None:
        self._loop, self._own = loop, dict(os.environ)
        self.status: int | None = None
        self._leaving: int | None = None  # with which status, once nothing is left
        self._attempt: Attempt | None = None
        self._passed_on: set[int] = set()
        self._noticed: dict[int, float] = {}
        self._listen(warden)
        join = messages.Join(task.host, task.local, os.getpid(), is_output=False)
        self._runner = Runner(loop, Secret(task.key), task.places, join, self._said, self._lost, prepare_command)

    def _listen(self, warden: int) -> None:
        """Hear the signals that come here or to the warden, and the warden's end."""
        reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        processes.write_signals_to(writing)
        processes.release_signals()
        for end in (Descriptor(reading), Descriptor(warden)):
            self._loop.watch(end, READ, lambda _events, end=end: self._hear(end))  # type: ignore[misc]

    def _hear(self, end: Descriptor) -> None:
        numbers = os.read(end.fileno(), 4096)
        if not numbers:
            self._loop.unwatch(end)
            self._runner.close()  # what COMMAND dies of from here on is not its own failure
            self._lost("the warden is gone")
        for number in dict.fromkeys(numbers):
            if number == signal.SIGCHLD:
                self._reap()
            else:
                self._notice(number)

    def _reap(self) -> None:
        if self._attempt is None:
            processes.reap()
        else:
            self._attempt.tree.reap()
        self._leave()

    def _notice(self, number: int) -> None:
        """Tell the runner, which decides what it means."""
        now = self._loop.clock()
        if now - self._noticed.get(number, -_SAME_S) < _SAME_S:
            return
        self._noticed[number] = now
        if self._runner.is_found:
            self._runner.send(messages.NOTICED, messages.Noticed(number).body())
        else:
            self._runner.close()
            self._lost("stopped before a runner was found")

    def _said(self, kind: int, body: Body) -> None:
        """Obey. Raises WireError."""
        if kind == messages.START:
            self._start(messages.Start.parse(body))
        elif kind == messages.SIGNAL:
            self._pass_on(messages.Signal.parse(body))
        elif kind == messages.DUMP:
            self._dump(messages.Dump.parse(body))
        elif kind == messages.END:
            self._end(messages.End.parse(body))
        elif kind == messages.LEAVE:
            self._leaving = messages.Leave.parse(body).status
            if self._attempt is not None:
                self._attempt.tree.end(0.0)
            self._leave()
        else:
            raise WireError("not a runner's message")

    def _start(self, start: messages.Start) -> None:
        output = self._runner.output
        if output is None or (self._attempt is not None and not self._attempt.is_clean):
            raise WireError("START in an attempt")
        if self._attempt is not None:
            self._attempt.close()
        try:
            self._attempt = Attempt(self._loop, start, self._own, output, self._runner.send)
        except OSError as wrong:  # no descriptor, process or memory is left
            processes.kill_all()  # where it had begun
            self._attempt = None
            tail = f"mingle run: cannot start: {wrong.strerror}\n"
            status = NetworkError.exit_code
            ended = messages.Ended(start.attempt, status, None, formed=False, is_oom=False, tail=tail)
            self._runner.send(messages.ENDED, ended.body())
            self._runner.send(messages.CLEAN, messages.Clean(start.attempt, 0).body())
            output.send_output(messages.DRAINED)

    def _pass_on(self, said: messages.Signal) -> None:
        if self._attempt is not None and said.id not in self._passed_on:
            self._passed_on.add(said.id)
            self._attempt.tree.signal(said.signal)

    def _dump(self, said: messages.Dump) -> None:
        if self._attempt is not None and self._attempt.number == said.attempt:
            self._attempt.dump(said.within_ms / 1000)

    def _end(self, said: messages.End) -> None:
        if self._attempt is not None and self._attempt.number == said.attempt:
            self._attempt.tree.end(said.grace_ms / 1000)

    def _lost(self, reason: str) -> None:
        """End all without a runner."""
        if self._leaving is None:
            self._leaving = NO_RUNNER_SUPERVISOR
            say_on_stderr(f"the runner is lost: {reason}")
        if self._attempt is not None:
            self._attempt.tree.end(_LOST_GRACE_S)
        self._leave()

    def _leave(self) -> None:
        """Go once nothing is left."""
        if self._leaving is None:
            return
        if self._attempt is None or self._attempt.is_clean:
            self.status = self._leaving
            self._runner.close()


# The caller's environment, where a scheduler hands on nothing: from a private file, or from standard input.

MOST_BYTES = 16 * 1024 * 1024
_STDIN = 0


def take_environ(program: str, options: Options) -> None:
    """Become the same program with that environment, which the kernel then shows as its own: a sweep finds it by that.

    Raises UsageError where the file is not this user's alone.
    """
    environ = merge_environ(os.environ, _read(options), options.keep)
    argv = [*own_program_argv(program), *options.words()]
    os.execve(argv[0], argv, environ)  # noqa: S606 - ourselves


def merge_environ(own: Mapping[str, str], data: bytes, keep: tuple[str, ...]) -> dict[str, str]:
    """Return the variables of a file; of those with one of these prefixes this host's own, where it has them."""
    pairs = (entry.partition("=") for entry in os.fsdecode(data).split("\0"))
    given = {name: value for name, equals, value in pairs if name and equals}
    return {**given, **{name: value for name, value in own.items() if name.startswith(keep)}}


def _read(options: Options) -> bytes:
    if options.is_stdin:
        with open(_STDIN, "rb", closefd=False) as file:
            return file.read(MOST_BYTES)
    private = stat.S_IRWXG | stat.S_IRWXO
    try:
        return contents(options.environ, most_bytes=MOST_BYTES, refused_mode=private, owners=(os.getuid(),))
    except UnfitError as wrong:
        raise UsageError(wrong.expected, wrong.seen, wrong.remedy) from None
    except OSError as wrong:
        raise UsageError("the run's environment", f"{options.environ}: {wrong.strerror}", "mingle run again") from None


NO_RUNNER_WARDEN = 75  # EX_TEMPFAIL: trying again makes sense
_STDERR_warden = 2


def run_warden(arguments: Sequence[str]) -> int:
    """Return the exit status of a supervisor, with nothing of it left."""
    _fill_standard_descriptors()
    try:
        options = Options.parse(arguments)
        if options.environ or options.is_stdin:
            take_environ("agent", options)
        task = Task.find(options, os.environ)
    except MingleError as wrong:
        os.write(_STDERR_warden, f"mingle run: {wrong}\n".encode())
        return wrong.exit_code
    return _begin(task)


def _begin(task: Task) -> int:
    """Fork the supervisor: it has a small parent, and what it loads is its own."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    processes.adopt_orphans()
    processes.hold_signals()
    child = os.fork()
    if not child:
        os.close(writing)
        return _supervise(task, reading)
    return _guard(child, writing)  # the other end stays open: a signal after the supervisor's end breaks no pipe


def _guard(child: int, pipe: int) -> int:
    """Wait for the supervisor, and end what it left."""
    processes.write_signals_to(pipe)
    processes.release_signals()
    _, status = os.waitpid(child, 0)
    processes.kill_all()
    return max(os.waitstatus_to_exitcode(status), 0) if os.WIFEXITED(status) else NO_RUNNER_WARDEN


def _supervise(task: Task, warden: int) -> int:

    os.setsid()  # PBS, at a job's end, kills the whole session that it began: one of the two has to see that
    processes.adopt_orphans()
    try:
        return run_agent(task, warden)
    except Exception:  # noqa: BLE001 - a bug: what runs must end, and the report needs the trace
        import traceback

        os.write(_STDERR_warden, f"mingle run: {traceback.format_exc()}".encode())
        return NO_RUNNER_WARDEN


def _fill_standard_descriptors() -> None:
    """Put something in the place of a standard stream that is closed, so that no pipe of ours gets its number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR_warden:
        pass
    os.close(descriptor)
