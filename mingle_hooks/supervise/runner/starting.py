"""The processes on this host that start supervisors elsewhere, and what they say."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from mingle_hooks.errors import NotExecutableError
from mingle_hooks.rendezvous.poller import READ
from mingle_hooks.supervise.node.descriptor import Descriptor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.supervise.runner.limit import Limit
    from mingle_hooks.supervise.starters.launch import Launch

_READ_BYTES = 64 * 1024
_STDERR = 2
MOST_SAID = 4096
# What Python ignores for itself and no program expects to be ignored.
_PYTHONS = (signal.SIGPIPE, signal.SIGXFSZ)


class Process:
    """One that runs; `said` is the end of what it wrote, `status` as a shell has it, once it has ended.

    `subprocess` would be 8 ms more to load, for which all hosts wait.
    """

    def __init__(self, launch: Launch, environ: Mapping[str, str]) -> None:
        self.hosts, self.said = launch.hosts, b""
        self.status: int | None = None
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        try:
            self.pid = _spawn(launch, environ, theirs)
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        os.set_blocking(ours, False)
        self.output: Descriptor | None = Descriptor(ours)

    def kill(self, number: int) -> None:
        """Signal it, and what it started on this host; nobody where it has ended."""
        if self.status is not None:
            return
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass

    def wait(self, options: int = 0) -> int | None:
        """Return its status, None where it runs; `options` are waitpid(2)'s: 0 waits for its end."""
        if self.status is None:
            ended, status = os.waitpid(self.pid, options)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                self.status = code if code >= 0 else 128 - code
        return self.status


def _spawn(launch: Launch, environ: Mapping[str, str], output: int) -> int:
    """Start a program, in a session of its own: Ctrl-C is the runner's to hear. Raises OSError where that cannot be."""
    if not hasattr(os, "posix_spawnp"):  # PyPy's
        raise NotExecutableError("CPython for this command", sys.implementation.name, "mingle exec on each node")
    stdin = os.open(os.devnull, os.O_RDONLY) if launch.stdin is None else _with(launch.stdin)
    try:
        return os.posix_spawnp(
            launch.argv[0],
            launch.argv,
            environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, *way) for way in ((stdin, 0), (output, 1), (output, _STDERR))],
            setsid=True,
            setsigdef=_PYTHONS,
        )
    finally:
        os.close(stdin)


def _with(data: bytes) -> int:
    """Return a file to read data from: a pipe may be smaller than that."""
    file = _nameless()
    try:
        written = 0
        while written < len(data):
            written += os.write(file, data[written:])
        os.lseek(file, 0, os.SEEK_SET)
    except BaseException:
        os.close(file)
        raise
    return file


def _nameless() -> int:
    """Return a file in memory, as it may hold the run's key; where there is none, one without a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("mingle")
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Processes:
    """Starts them, each with the user's own limits; hears of their ends once somebody calls `poll` after SIGCHLD."""

    def __init__(self, loop: Loop, environ: Mapping[str, str], on_said: Callable[[bytes], None], limit: Limit) -> None:
        self._loop, self._environ, self._on_said, self._limit = loop, environ, on_said, limit
        self._running: dict[Process, Callable[[Process, int], None]] = {}
        _keep_to_ourselves()

    @property
    def running(self) -> tuple[Process, ...]:
        """Return those that have not ended."""
        return tuple(self._running)

    def start(
        self, launch: Launch, on_end: Callable[[Process, int], None], environ: Mapping[str, str] | None = None
    ) -> Process:
        """Start one; `on_end(process, status)` comes later, and once. Raises OSError where that cannot be."""
        with self._limit:
            process = Process(launch, self._environ if environ is None else environ)
        self._running[process] = on_end
        if process.output is not None:
            self._loop.watch(process.output, READ, lambda _events: self._read(process))
        return process

    def poll(self) -> None:
        """Look which have ended."""
        for process, on_end in [*self._running.items()]:
            status = process.wait(os.WNOHANG)
            if status is not None:
                self._read(process)
                self._close(process)
                del self._running[process]
                on_end(process, status)

    def kill(self, *, at_once: bool) -> None:
        """End all that still run."""
        for process in self._running:
            process.kill(signal.SIGKILL if at_once else signal.SIGTERM)

    def _read(self, process: Process) -> None:
        if process.output is None:
            return
        try:
            data = os.read(process.output.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._close(process)
            return
        process.said = (process.said + data)[-MOST_SAID:]
        self._on_said(data)

    def _close(self, process: Process) -> None:
        if process.output is not None:
            self._loop.unwatch(process.output)
            process.output.close()
            process.output = None


def _keep_to_ourselves() -> None:
    """Have no program inherit what whoever started this process left open."""
    for name in os.listdir("/proc/self/fd"):
        try:
            os.set_inheritable(int(name), int(name) <= _STDERR)
        except OSError:  # that of the listing itself
            pass
