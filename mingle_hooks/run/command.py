"""One attempt on a host: COMMAND from its start until nothing of it is left, its output, and its stacks."""

from __future__ import annotations

import os
import re
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from io import FileIO
from typing import NoReturn

from mingle_hooks import values
from mingle_hooks.errors import printable
from mingle_hooks.files import close_descriptors_except
from mingle_hooks.rendezvous.connection import READ, Loop
from mingle_hooks.rendezvous.wire import parse
from mingle_hooks.run import messages, processes
from mingle_hooks.run.messages import MOST_STACKS, MOST_TAIL, AgentMessage, Link, Start
from mingle_hooks.run.processes import Reaped, Tree

FORMED, ATTEMPT, FACTS = "MINGLE_RUN_FORMED", "MINGLE_ATTEMPT", "MINGLE_RUN"
_PROGRAM = "mingle_hooks.cli.main"
_CANNOT_BEGIN = 73  # EX_CANTCREAT, as PlaceError's
_STDERR = 2


def without_runner(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the runner's key and addresses."""
    return {name: value for name, value in environ.items() if name not in (messages.KEY, messages.AT)}


def begin_command(own: Mapping[str, str], start: Start) -> tuple[int, int, int, int]:
    """Start COMMAND's process, `mingle exec` until the world has formed, in a fork: an interpreter would cost 20 ms.

    Return its pid, and the pipes of its stdout, its stderr, and its world. Raises OSError for want of descriptors or
    processes.
    """
    ends: list[int] = []
    processes.hold_signals()
    try:
        for _ in range(3):
            ends += os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if not pid:
            _become(own, start, *ends[1::2])
    except OSError:
        for end in ends:
            os.close(end)
        raise
    finally:
        processes.release_signals()
    for end in ends[1::2]:
        os.close(end)
    for end in ends[::2]:
        os.set_blocking(end, False)
    return pid, ends[0], ends[2], ends[4]


def _become(own: Mapping[str, str], start: Start, stdout: int, stderr: int, formed: int) -> NoReturn:
    """Become `mingle exec`; an error goes to COMMAND's stderr."""
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.umask(start.umask)
        os.chdir(start.directory)
        os.set_inheritable(formed, True)  # noqa: FBT003 - os's own
        # A copy of the agent's connections here would hide its end.
        close_descriptors_except(0, 1, _STDERR, formed)
        processes.forget_signals()
        processes.release_signals()
        facts = {FACTS: values.to_json(dict(start.facts))} if start.facts else {}
        variables = {ATTEMPT: str(start.attempt), **facts, FORMED: str(formed)}
        environ = {**without_runner(own), **start.environ, **variables}
        os.environ.clear()
        os.environ.update(environ)
        sys.argv[1:] = ("exec", *start.options, "--", *start.command)
        # This interpreter runs isolated (-I); plugins of the caller may be found by PYTHONPATH.
        sys.path += filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
        import_module(_PROGRAM).main()
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else _CANNOT_BEGIN)
    except BaseException as wrong:  # noqa: BLE001 - nothing may go back into the agent's code
        seen = f"{wrong.filename}: {wrong.strerror}" if isinstance(wrong, OSError) else str(wrong)
        os.write(_STDERR, f"mingle run: cannot start: {seen}\n".encode(errors="replace"))
    finally:
        os._exit(_CANNOT_BEGIN)


# A line of COMMAND's output longer than this goes in pieces.
LONGEST = 64 * 1024
_RELAY_BYTES = 256 * 1024
# With more than this waiting for the runner the pipes are not read, until less than the second is.
MOST_WAITING, FEW_WAITING = 1 << 20, 1 << 18
# How much of stderr is searched for the exception that ended COMMAND: torchrun's own lines and those of its workers.
_MOST_SEARCHED = 64 * 1024
# Seconds between messages about a line that grows and has not ended, such as a progress bar.
GROWING_S = 0.5


class Pipe:
    """One of COMMAND's two streams."""

    def __init__(self, descriptor: int, kind: int) -> None:
        self.file, self.kind = FileIO(descriptor), kind
        self._rest = b""  # of a line that has not ended
        # One for all reads: to allocate and free so much each time costs as much again.
        self._buffer = bytearray(_RELAY_BYTES)
        processes.widen_pipe(descriptor)

    def read(self) -> memoryview | None:
        """Return what has come, nothing at the end, None if nothing has; valid until the next read."""
        count = self.file.readinto(self._buffer)
        return None if count is None else memoryview(self._buffer)[:count]

    def lines(self, data: memoryview) -> tuple[bytes | memoryview, ...]:
        """Return the whole lines so far, or a piece of one that is too long, in parts; keep the rest."""
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


class Relay:
    """Both streams of one attempt."""

    def __init__(self, loop: Loop, link: Link, stdout: int, stderr: int) -> None:
        self._loop, self._link = loop, link
        self._pipes = [Pipe(stdout, messages.OUT), Pipe(stderr, messages.ERR)]
        self.is_paused = False  # the runner has to read first
        self._tail, self._stderr = b"", bytearray()
        self._sent_at = 0.0
        link.on_room = self._room
        for pipe in self._pipes:
            self._watch(pipe)

    @property
    def tail(self) -> str:
        """Return the last lines that came, from the first whole one on."""
        tail = self._tail
        if len(tail) > MOST_TAIL:
            tail = tail.partition(b"\n")[2] or tail[1:]
        return tail.decode(errors="replace")

    @property
    def exception(self) -> str:
        """Return the line of the exception that COMMAND wrote last, or of that which ended torchrun's worker."""
        text = self._stderr[-_MOST_SEARCHED:].decode(errors="replace")
        return printable(root_exception(text), messages.MOST_EXCEPTION)

    def catch_up(self) -> None:
        """Read what is in the pipes by now, at most what they hold."""
        for _ in range(processes.PIPE_BYTES // _RELAY_BYTES):
            for pipe in [*self._pipes]:
                self._read(pipe)

    def close(self) -> None:
        """Pass on what is there, and end: a process that still holds a pipe is none of ours."""
        self.catch_up()
        for pipe in [*self._pipes]:
            self._end(pipe)
        self.is_paused = False  # it waits for no room any more

    def _watch(self, pipe: Pipe) -> None:
        self._loop.watch(pipe.file, READ, lambda _events: self._read(pipe))

    def _read(self, pipe: Pipe) -> None:
        """Pass on what has come."""
        data = pipe.read()
        if data is None:
            return
        if not data:
            self._end(pipe)
            return
        self._tail = (self._tail + data[-MOST_TAIL - 1 :])[-MOST_TAIL - 1 :]
        if pipe.kind == messages.ERR:
            self._stderr += data
            if len(self._stderr) > 4 * _MOST_SEARCHED:  # seldom, as it copies
                del self._stderr[:-_MOST_SEARCHED]
        parts = pipe.lines(data)
        now = self._loop.clock()
        if parts or now - self._sent_at > GROWING_S:
            self._sent_at = now
            self._link.send_output(pipe.kind, *parts)
            self._pause()

    def _pause(self) -> None:
        if self._link.waiting_bytes > MOST_WAITING and not self.is_paused:
            self.is_paused = True
            for pipe in self._pipes:
                self._loop.unwatch(pipe.file)  # a pipe's end would be reported again and again

    def _room(self) -> None:
        if self.is_paused and self._link.waiting_bytes < FEW_WAITING:
            self.is_paused = False
            for pipe in self._pipes:
                self._watch(pipe)

    def _end(self, pipe: Pipe) -> None:
        self._loop.unwatch(pipe.file)
        rest = pipe.take()
        if rest:
            self._link.send_output(pipe.kind, rest)
        pipe.file.close()
        self._pipes.remove(pipe)
        if not self._pipes:
            self._link.send_output(messages.DRAINED, b"")


# What COMMAND died of, by what it wrote to stderr.

_TRACEBACK = "Traceback (most recent call last):"
_ORIGINAL = "Original "
# The words between the exceptions of one chain, of which the last counts: Python's, and a DataLoader's, which puts the
# traceback of its process into the message of another exception.
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause", _ORIGINAL)
# torchrun's last words: a box that names each worker that failed, the first one last.
_TORCHRUN = "ChildFailedError"
_FAILURE = re.compile(
    r"^  rank +: (\d+).*\n  exitcode +: (-?\d+).*\n  error_file.*\n  traceback : (.*(?:\n  .*)*)", re.MULTILINE
)
# What torchrun's log says next when it has found that a worker failed; its other lines look alike.
_NOTICE = re.compile(r"^[A-Z]\d{4} .*torch/distributed/elastic/multiprocessing/api.py", re.MULTILINE)
_LOG = re.compile(r"\[rank\d|[A-Z]\d{4} .*torch/distributed/")


def root_exception(text: str) -> str:
    """Return the line of the exception or signal that ended Python's part of COMMAND; empty where there is none.

    Under torchrun it is that of the worker which torchrun names as the first to fail. Of workers that failed in the
    same second it may name another: one that lost its connection to the first is no cause.
    """
    exceptions = _exceptions(text) or [("", "")]
    if _TORCHRUN not in exceptions[-1][1]:
        return exceptions[-1][1]
    workers = [(prefix, line) for prefix, line in exceptions if _TORCHRUN not in line]
    reasons = [_worker_reason(text, workers, *failure) for failure in _FAILURE.findall(text)]
    *others, first = reasons or [line for _, line in workers[:1]] or [""]
    others = [reason for reason in others if "SIGTERM" not in reason]  # torchrun ends those that still run
    return next((reason for reason in (first, *others) if not messages.ECHO.search(reason)), first)


def _worker_reason(text: str, workers: list[tuple[str, str]], rank: str, code: str, why: str) -> str:
    """Return the line for a worker in torchrun's box: its exception or signal, else its exit code."""
    recorded = _exceptions(why.replace("\n  ", "\n"))  # the worker's script has torch's @record
    has_ranks = any(prefix.startswith("[rank") for prefix, _ in workers)
    own = [one for one in workers if (one[0] == f"[rank{rank}]: " if has_ranks else code == "1")]
    if recorded or own:
        return (recorded[-1:] or own)[0][1]
    if why.startswith("Signal "):
        return f"rank {rank}: {why.partition(' received')[0]}"
    before, *after = _NOTICE.split(text, maxsplit=1)
    said = before.rstrip().rpartition("\n")[2] if after else ""  # such as the text of sys.exit()
    return f"rank {rank}: exit code {code}" + (f' after "{said}"' if said and not _LOG.match(said) else "")


def _exceptions(text: str) -> list[tuple[str, str]]:
    """Return the exceptions of all tracebacks, each with what stands before its lines, such as torch's "[rank3]: "."""
    found: list[tuple[str, str]] = []
    open_prefixes: dict[str, bool] = {}  # of tracebacks so far -> whether the exception is still to come
    for line in text.splitlines():
        before, traceback, after = line.partition(_TRACEBACK)
        if is_first := bool(traceback) and not after.strip():
            open_prefixes[before.removesuffix(_ORIGINAL).replace("+ Exception Group ", "| ")] = True
        prefix = max((known for known in open_prefixes if line.startswith(known)), key=len, default=None)
        rest = line.removeprefix(prefix or "")
        if prefix is None or not rest or rest[0].isspace():
            continue
        if rest.startswith(_CHAINED):
            for last in [at for at, (known, _) in enumerate(found) if known == prefix][-1:]:
                del found[last]
        elif open_prefixes[prefix] and not is_first:
            found.append((prefix, rest.strip()))
            open_prefixes[prefix] = False
    return found


# The stacks of COMMAND's Python processes come from py-spy, or from faulthandler, with PYTHONFAULTHANDLER=1 or
# faulthandler.enable(): SIGABRT then makes a process write the stacks of all its threads, and end, which it would next
# anyway. Other signals have other meanings: torchrun's agent ends its workers at SIGQUIT, and USR1 and USR2 warn.

# How many py-spy run at once, and the last seconds of the time, reserved for processes that get SIGABRT.
MOST_AT_ONCE, WRITE_S = 8, 3.0
_LOOK_S = 0.02
_STACKS_BYTES = 64 * 1024


def forbid_core(pid: int) -> None:
    """Have the kernel dump no core of a process as it aborts; a limit of 1 also forbids one to a program."""
    with suppress(OSError, ValueError):  # it ended meanwhile, or is another user's
        hard = resource.prlimit(pid, resource.RLIMIT_CORE)[1]
        resource.prlimit(pid, resource.RLIMIT_CORE, (min(1, hard) if hard >= 0 else 1, hard))


class StackReader:
    """Takes the stacks of all Python processes below this one; `on_done(text)` comes once, within this time."""

    def __init__(self, loop: Loop, own: Mapping[str, str], within_s: float, on_done: Callable[[str], None]) -> None:
        from shutil import which  # 5 ms, needed only here

        self._loop, self._on_done = loop, on_done
        self._environ = without_runner(own)
        self._program = which("py-spy", path=own.get("PATH", ""))
        self._pids = [pid for pid in processes.descendants() if processes.is_python(pid)]
        self._waiting = [*self._pids] if self._program else []
        self._spies: dict[int, tuple[int, FileIO]] = {}  # pid -> py-spy's process and its output
        self._stacks = dict.fromkeys(self._pids, b"")
        self._signalled: list[int] = []
        self._until = loop.clock() + within_s
        self._spy()

    def _spy(self) -> None:
        """Take what has come, give up what takes too long, and go on to the next; after the last, to faulthandler."""
        is_late = self._loop.clock() >= self._until - WRITE_S
        for pid, (spy, end) in [*self._spies.items()]:
            data = end.read(_STACKS_BYTES)
            self._stacks[pid] = (self._stacks[pid] + (data or b""))[:MOST_STACKS]
            if is_late and data != b"":
                processes.send_signal([spy], signal.SIGKILL)
            if is_late or data == b"":
                end.close()
                del self._spies[pid]
        while self._waiting and len(self._spies) < MOST_AT_ONCE and not is_late:
            self._begin(self._waiting.pop(0))
        if self._spies:
            self._loop.after(_LOOK_S, self._spy)
        else:
            self._signal()

    def _begin(self, pid: int) -> None:
        try:
            with open(os.devnull, "rb") as null:
                argv = (str(self._program), "dump", "--pid", str(pid))
                spy, end = processes.spawn(argv, self._environ, null.fileno())
        except OSError as wrong:  # no descriptor or process is left, or it is no program
            self._stacks[pid] = f"py-spy: {wrong.strerror}".encode()
        else:
            self._spies[pid] = spy, end

    def _signal(self) -> None:
        """Have faulthandler write the stacks that py-spy did not get, where it is enabled, and wait until it has."""
        here = {*processes.descendants()}
        left = [pid for pid in self._pids if pid in here and b"Thread " not in self._stacks[pid]]
        self._signalled = [pid for pid in left if processes.catches_signal(pid, signal.SIGABRT)]
        for pid in self._signalled:
            forbid_core(pid)
        processes.send_signal(self._signalled, signal.SIGABRT)
        processes.send_signal(self._signalled, signal.SIGCONT)  # one that is stopped gets no other signal
        self._until = min(self._until, self._loop.clock() + WRITE_S)
        self._look()

    def _look(self) -> None:
        """Wait for the end of the processes that got SIGABRT: they have written before."""
        if self._loop.clock() < self._until and any(processes.is_running(pid) for pid in self._signalled):
            self._loop.after(_LOOK_S, self._look)
        else:
            text = "\n".join(map(self._of, self._pids)) or "no Python process is here"
            self._on_done(text[:MOST_STACKS])

    def _of(self, pid: int) -> str:
        text = self._stacks[pid].decode(errors="replace").strip()
        if "Thread " in text:
            return text
        if pid in self._signalled:
            return f"process {pid}: what faulthandler wrote at SIGABRT is in its output"
        why = text or ("py-spy took too long" if self._program else "py-spy is not on PATH")
        return f"process {pid}: no stack ({why}, and PYTHONFAULTHANDLER=1 is not set)"


# The grace after TERM for what COMMAND leaves behind, in seconds, unless it was to stop.
_LEFTOVER_GRACE_S = 1.0
_STOPS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
# Wait for output so long after the last process has ended: somebody else may hold the pipe.
_DRAIN_S = 1.0


class Attempt:
    """COMMAND, its output and its end; `report(message)` sends a message to the runner."""

    def __init__(
        self, loop: Loop, start: Start, own: Mapping[str, str], output: Link, report: Callable[[AgentMessage], None]
    ) -> None:
        self._loop, self._report, self.number = loop, report, start.attempt
        self._memory = processes.OomCounter.here()
        self._formed = False
        self._grace_s = start.grace_ms / 1000
        self._stop, self._stop_until = 0, 0.0  # the last signal to stop, and the end of its grace
        self.is_clean = False
        self._own = own
        self._stacks: StackReader | None = None
        self.tree = Tree(loop, self._ended, self._empty)
        self._pid, stdout, stderr, formed = begin_command(own, start)
        self._relay = Relay(loop, output, stdout, stderr)
        self._world = FileIO(formed)
        loop.watch(self._world, READ, lambda _events: self._take_world())

    def close(self) -> None:
        """Wait for no more output."""
        self._relay.close()

    def dump(self, within_s: float) -> None:
        """Take the stacks of all Python processes, once, and send them to the runner."""
        if self._stacks is None:
            report = self._report
            self._stacks = StackReader(
                self._loop, self._own, within_s, lambda text: report(messages.Stacks(self.number, text))
            )

    def signalled(self, number: int) -> None:
        """Note a signal that COMMAND gets; what a wrapper started has the grace, though the wrapper may end at once."""
        if number in _STOPS:
            self._stop, self._stop_until = number, self._loop.clock() + self._grace_s

    def _take_world(self) -> None:
        """Take the world that `mingle exec` writes when it has formed; nothing if it has ended before."""
        data = None if self._world.closed else self._world.read(messages.MOST_FORMED_BYTES)
        if data is not None:
            self._close_world()
        if data:
            self._formed = True
            self._report(parse(messages.Formed, {**values.from_json(data), "attempt": self.number}))

    def _close_world(self) -> None:
        """Read no more: a process that still holds the pipe has left it open."""
        if not self._world.closed:
            self._loop.unwatch(self._world)
            self._world.close()

    def _ended(self, child: Reaped) -> None:
        if child.pid != self._pid:
            return
        if child.signal is not None:  # a scheduler's to all of it, perhaps
            self.signalled(child.signal)
        self._take_world()
        self._close_world()
        self._relay.catch_up()
        is_oom, tail = self._memory.has_grown(), self._relay.tail
        exception = self._relay.exception if child.status else ""
        self._report(messages.Ended(self.number, child.status, child.signal, self._formed, is_oom, tail, exception))
        if not self.tree.is_ending:  # else what is left has the grace that the runner gave
            self._end_left()

    def _end_left(self) -> None:
        """End what COMMAND left behind; what saves since a signal to stop gets no second one, which might end it."""
        left_s = self._stop_until - self._loop.clock()
        if left_s <= 0:
            self.tree.end(_LEFTOVER_GRACE_S)
            return
        if self._stop != signal.SIGTERM:  # which all have got
            missed = [pid for pid in processes.descendants() if not processes.catches_signal(pid, self._stop)]
            processes.send_signal(missed, signal.SIGTERM)
        self._loop.after(left_s, lambda: None if self.is_clean else self.tree.end(0.0))

    def _empty(self) -> None:
        if self.is_clean:
            return
        self.is_clean = True
        self._report(messages.Clean(self.number, self.tree.killed))
        self._loop.after(_DRAIN_S, self._overdue)

    def _overdue(self) -> None:
        if self._relay.is_paused:  # the runner is slow; that is no reason to lose output
            self._loop.after(_DRAIN_S, self._overdue)
        else:
            self.close()
