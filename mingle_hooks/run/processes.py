"""This process's descendants, as the kernel lists them, and their end."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import termios
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from io import FileIO
from types import FrameType
from typing import Any, NamedTuple

from mingle_hooks.rendezvous.connection import Loop, Timer


class Reaped(NamedTuple):
    """A child that has ended: its status as in a shell, and the signal that it died of."""

    pid: int
    status: int
    signal: int | None


PIPE_BYTES = 1 << 20  # what any user may have
# Not every kernel has these files.
LISTS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def children(pid: int) -> list[int]:
    """Return the children of all threads of a process; none if it has ended."""
    if not LISTS_CHILDREN:
        return [other for other in all_processes() if parent(other) == pid]
    found: list[int] = []
    with suppress(OSError):  # it ended meanwhile
        for thread in os.listdir(f"/proc/{pid}/task"):
            # A thread that ended meanwhile hides no children of the others.
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def all_processes() -> list[int]:
    """Return all processes of this pid namespace."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat behind the program's name; none if there is no such process.

    proc(5): 0 is the state, 1 the parent, 19 the beginning in ticks since the boot.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def parent(pid: int) -> int:
    """Return a process's parent; 0 if it has none, or has ended."""
    fields = _stat_fields(pid)
    return int(fields[1]) if fields else 0


def began(pid: int) -> int | None:
    """Return when a process began, in ticks since the boot; None if it has ended, also for a zombie."""
    fields = _stat_fields(pid)
    return int(fields[19]) if fields and fields[0] not in (b"Z", b"X") else None


def is_running(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    return began(pid) is not None


def descendants(root: int | None = None) -> list[int]:
    """Return all processes below one, by default this one, parents first."""
    found = children(os.getpid() if root is None else root)
    for pid in found:  # it grows meanwhile
        found += children(pid)
    return found


def send_signal(pids: list[int], number: int) -> None:
    """Send a signal to each that is still there."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):  # it ended; or it has become another user's
            os.kill(pid, number)


def named(pid: int) -> str:
    """Return a process's number and when it began: on another machine no process has the same two."""
    return f"{pid}.{began(pid)}"


def widen_pipe(descriptor: int) -> None:
    """Make a pipe as large as any user may: reads and writes are then few."""
    with suppress(AttributeError, OSError):  # no pipe; Python 3.10's first; or this user has too many large ones
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def spawn(
    argv: tuple[str, ...],
    environ: Mapping[str, str],
    stdin: int,
    limits: AbstractContextManager[object] = nullcontext(),  # noqa: B008 - it has no state
    **options: Any,
) -> tuple[int, FileIO]:
    """Start a program by its path or by PATH; return its pid and a pipe with its output. Raises OSError if that fails.

    `with limits`, this process has the program's; `options` are those of posix_spawn(3). `subprocess` would take 8 ms
    more to load, for which all hosts wait.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    # glibc takes no descriptor above the limit; a file that the program opens as 0 or 1 is closed there first.
    ways = (0, f"/proc/self/fd/{stdin}", os.O_RDONLY, 0), (1, f"/proc/self/fd/{writing}", os.O_WRONLY, 0)
    actions = [*((os.POSIX_SPAWN_OPEN, *way) for way in ways), (os.POSIX_SPAWN_DUP2, 1, 2)]
    try:
        os.set_blocking(reading, False)
        with limits:  # that of open files may be too low for one more
            pid = os.posix_spawnp(argv[0], argv, environ, file_actions=actions, **options)
        return pid, FileIO(reading)
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)


def catches_signal(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal."""
    with suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(b"SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def has_input() -> bool:
    """Return whether something waits at stdin that nobody types."""
    try:
        return not os.isatty(0) and any(fcntl.ioctl(0, termios.FIONREAD, bytes(4)))
    except OSError:  # closed, or a device
        return False


def is_python(pid: int) -> bool:
    """Return whether a process is an interpreter, by the name of its program."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")
    except OSError:  # it ended meanwhile, or has become another user's
        return False


def reap() -> tuple[list[Reaped], bool]:
    """Return the children that have ended, and whether there is none any more."""
    found: list[Reaped] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found, True
        if pid == 0:
            return found, False
        found.append(Reaped(pid, shell_status(status), os.WTERMSIG(status) if os.WIFSIGNALED(status) else None))


def shell_status(status: int) -> int:
    """Return a wait status as a shell does: 128 more than the signal's number for a process that a signal ended."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def kill_all() -> None:
    """Kill all descendants, also those forked meanwhile, and wait for their end."""
    pause_s = 0.002
    while not reap()[1]:
        send_signal(descendants(), signal.SIGKILL)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.1)


# KILL is repeated after so long: at first soon, for processes forked meanwhile; then less often, for those that the
# kernel holds.
_KILL_AGAIN_S, _KILL_AGAIN_AT_MOST_S = 0.005, 1.0


class Tree:
    """All processes below this one, which adopts orphans, until no child is left.

    `on_ended(reaped)` comes for each child, `on_empty()` whenever none is left.
    """

    def __init__(self, loop: Loop, on_ended: Callable[[Reaped], None], on_empty: Callable[[], None]) -> None:
        self._loop, self._on_ended, self._on_empty = loop, on_ended, on_empty
        self._kill = Timer()
        self._kill_at = 0.0
        self._killed: set[int] = set()

    @property
    def is_ending(self) -> bool:
        """Whether an end has begun."""
        return self._kill.is_set

    @property
    def killed(self) -> int:
        """How many processes have been killed since none was left."""
        return len(self._killed)

    def end(self, grace_s: float) -> None:
        """Send TERM to all, once, and KILL after the grace; a shorter one replaces a longer one."""
        kill_at = self._loop.clock() + grace_s
        if not self.is_ending:
            found = descendants()
            send_signal(found, signal.SIGTERM)
            send_signal(found, signal.SIGCONT)  # one that is stopped gets no other signal
        elif kill_at < self._kill_at:
            self._kill.cancel()
        else:
            return
        self._kill_at = kill_at
        self._kill = self._loop.after(grace_s, lambda: self._kill_all(_KILL_AGAIN_S))
        self.reap()

    def signal(self, number: int) -> None:
        """Send a signal to the processes that catch it; TERM to all."""
        found = descendants()
        if number != signal.SIGTERM:
            found = [pid for pid in found if catches_signal(pid, number)]
        send_signal(found, number)

    def reap(self) -> None:
        """Report the children that have ended."""
        found, is_empty = reap()
        if is_empty:
            self._kill.cancel()
        for child in found:
            self._on_ended(child)
        if is_empty:
            self._on_empty()
            self._killed.clear()

    def _kill_all(self, again_s: float) -> None:
        found = descendants()
        self._killed.update(found)
        send_signal(found, signal.SIGKILL)
        self._kill_at = self._loop.clock()
        self._kill = self._loop.after(again_s, lambda: self._kill_all(min(2 * again_s, _KILL_AGAIN_AT_MOST_S)))
        self.reap()


# A sweep ends a run's processes without their agent.
_LONGEST_S = 5.0
_SWEEP_AGAIN_S = 0.02
_VARIABLE = b"MINGLE_RUN_ID="


def run_sweep(arguments: Sequence[str]) -> int:
    """End a run's processes on a host whose agent is silent, or left some behind; return 0 if none is left.

    The arguments are the run's id, its runner's process (see named), and the starters below it of this host's agents.
    """
    run_id, runner, *starts = arguments
    pid = int(runner.partition(".")[0])
    ended, left = sweep_run(run_id, pid if named(pid) == runner else None, [*map(int, starts)])
    line = f"mingle run: {os.uname().nodename}: {ended} processes of run {run_id} ended, {left} left"
    print(line, flush=True)  # noqa: T201 - a program's answer, which PBS puts among the job's output
    return 1 if left else 0


def sweep_run(run_id: str, runner: int | None, starts: Sequence[int]) -> tuple[int, int]:
    """Kill a run's processes, for 5 s at most; return how many there were, and how many are left.

    This process and its ancestors are left alone, and the runner, if it is here, with all below it, such as other
    hosts' starters, but for `starts`.
    """
    above = [os.getpid()]
    while above[-1] > 1:
        above.append(parent(above[-1]))
    ended: set[int] = set()
    deadline = time.monotonic() + _LONGEST_S
    while True:
        spared = set() if runner is None else {runner, *descendants(runner)}
        others = {*above} | spared.difference(*({pid, *descendants(pid)} for pid in starts))
        found = {pid for pid in all_processes() if _is_of_run(pid, run_id.encode())} - others
        found |= {pid for root in found for pid in descendants(root)} - others
        if not found or time.monotonic() > deadline:
            return len(ended | found), len(found)
        ended |= found
        send_signal([*found], signal.SIGKILL)
        time.sleep(_SWEEP_AGAIN_S)


def _is_of_run(pid: int, run_id: bytes) -> bool:
    """Return whether a process is this user's, and its environment has the run's id, alone or behind outer runs'."""
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.getuid():
            return False
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:  # it has ended, or hides
        return False
    ids = [variable[len(_VARIABLE) :].split(b",") for variable in variables if variable.startswith(_VARIABLE)]
    return any(run_id in listed for listed in ids)


_SET_CHILD_SUBREAPER = 36  # prctl(2)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose parents end."""
    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
    prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _oom_files(groups: str, mount: str) -> list[str]:
    """Return the files that may have the kernel's count of OOM kills, by the text of /proc/self/cgroup.

    In a container, the path may be the host's; the mounted group is then its own.
    """
    found = []
    for line in groups.splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        path = path.rstrip("/")
        if line.startswith("0::"):
            found += [f"{group}/memory.events" for group in (f"{mount}{path}", f"{mount}/unified{path}", mount)]
        elif "memory" in controllers.split(","):
            found += [f"{mount}/memory{path}/memory.oom_control", f"{mount}/memory/memory.oom_control"]
    return found


def _count_oom_kills(path: str) -> int | None:
    """Return how many processes the kernel has killed for want of memory; None if the file has no count."""
    with suppress(OSError, ValueError), open(path, "rb") as file:
        for line in file:
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
    return None


class OomCounter(NamedTuple):
    """The kernel's count of OOM kills in this process's control group; one that cannot be read never grows."""

    path: str
    before: int

    @classmethod
    def here(cls, groups: str = "/proc/self/cgroup", mount: str = "/sys/fs/cgroup") -> OomCounter:
        """Return this process's count, as it is now."""
        text = ""
        with suppress(OSError), open(groups, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
        for path in _oom_files(text, mount):
            if (before := _count_oom_kills(path)) is not None:
                return cls(path, before)
        return cls("", 0)

    def has_grown(self) -> bool:
        """Return whether a process was killed since."""
        return (_count_oom_kills(self.path) or 0) > self.before


# Signals become bytes in a pipe, which a loop reads: none ends the process. Not those that nobody can catch, faults,
# those that stop or continue a process or do nothing by default, and the last two, which Python ignores.
_NEVER = {signal.SIGKILL, signal.SIGSTOP}
_NEVER |= {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGSYS, signal.SIGTRAP}
_NEVER |= {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH}
_NEVER |= {signal.SIGPIPE, signal.SIGXFSZ}


def _wake(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: CPython has written the number into the pipe by now."""


def signal_pipe(numbers: Iterable[int] = ()) -> int:
    """Return the end of a new pipe to which the number of each signal is written from now on, or of `numbers` alone."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    write_signals_to(writing, numbers)
    return reading


def write_signals_to(pipe: int, numbers: Iterable[int] = ()) -> None:
    """Write the number of each signal from now on, or of `numbers` alone, to a pipe that does not block.

    These are signals that would end a process, and SIGCHLD; what is ignored stays ignored, as nohup(1) wants.
    """
    signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
    for number in {*(numbers or signal.valid_signals())} - _NEVER:
        if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGCHLD:
            signal.signal(number, _wake)


def hold_signals() -> None:
    """Block all signals, around a fork."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def release_signals() -> None:
    """Unblock all signals."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())


def forget_signals() -> None:
    """Restore the kernel's default handlers, in a child that becomes another program."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - _NEVER:
        if signal.getsignal(number) is _wake:
            signal.signal(number, signal.SIG_DFL)
