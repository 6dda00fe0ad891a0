"""The processes on this host that start supervisors elsewhere, and what they say."""

from __future__ import annotations

import os
import signal
import subprocess

from mingle_hooks.rendezvous.poller import READ
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import IO

    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.supervise.starters.launch import Launch

_READ_BYTES = 64 * 1024
MOST_SAID = 4096


class Process:
    """One that runs; `said` is the end of what it wrote."""

    def __init__(self, launch: Launch, environ: Mapping[str, str], prepare: Callable[[], None] | None) -> None:
        self.hosts, self.said = launch.hosts, b""
        with _input(launch.stdin) as stdin:
            # Of a session of its own: Ctrl-C is the runner's to hear.
            self.child = subprocess.Popen(  # noqa: S603 - as the starter says
                launch.argv,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environ,
                start_new_session=True,
                preexec_fn=prepare,  # noqa: PLW1509 - the runner has one thread
            )
        if self.child.stdout is not None:
            os.set_blocking(self.child.stdout.fileno(), False)

    def kill(self, number: int) -> None:
        """Signal it, and what it started on this host; nobody where it has ended."""
        if self.child.returncode is not None:
            return
        try:
            os.killpg(self.child.pid, number)
        except ProcessLookupError:
            pass


def _input(data: bytes | None) -> IO[bytes]:
    """Return a file to read data from: a pipe may be smaller than that."""
    if data is None:
        return open(os.devnull, "rb")
    file: IO[bytes] = os.fdopen(_nameless(), "w+b")
    file.write(data)
    file.seek(0)
    return file


def _nameless() -> int:
    """Return a file in memory, as it may hold the run's key; where there is none, one without a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("mingle")
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Processes:
    """Starts them, each with `prepare` first, and hears of their ends once somebody calls `poll` after SIGCHLD."""

    def __init__(
        self,
        loop: Loop,
        environ: Mapping[str, str],
        on_said: Callable[[bytes], None],
        prepare: Callable[[], None] | None,
    ) -> None:
        self._loop, self._environ, self._on_said, self._prepare = loop, environ, on_said, prepare
        self._running: dict[Process, Callable[[Process, int], None]] = {}

    @property
    def running(self) -> tuple[Process, ...]:
        """Return those that have not ended."""
        return tuple(self._running)

    def start(
        self, launch: Launch, on_end: Callable[[Process, int], None], environ: Mapping[str, str] | None = None
    ) -> Process | None:
        """Start one; where that cannot be, say so as it would. `on_end(process, status)` comes later, and once."""
        try:
            process = Process(launch, self._environ if environ is None else environ, self._prepare)
        except OSError as error:
            self._on_said(f"mingle run: {launch.argv[0]}: {error.strerror}\n".encode())
            return None
        self._running[process] = on_end
        if process.child.stdout is not None:
            self._loop.watch(process.child.stdout, READ, lambda _events: self._read(process))
        return process

    def poll(self) -> None:
        """Look which have ended."""
        for process, on_end in [*self._running.items()]:
            status = process.child.poll()
            if status is not None:
                self._read(process)
                self._close(process)
                del self._running[process]
                on_end(process, status if status >= 0 else 128 - status)

    def kill(self, *, at_once: bool) -> None:
        """End all that still run."""
        for process in self._running:
            process.kill(signal.SIGKILL if at_once else signal.SIGTERM)

    def _read(self, process: Process) -> None:
        stream = process.child.stdout
        if stream is None or stream.closed:
            return
        try:
            data = os.read(stream.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._close(process)
            return
        process.said = (process.said + data)[-MOST_SAID:]
        self._on_said(data)

    def _close(self, process: Process) -> None:
        stream = process.child.stdout
        if stream is not None and not stream.closed:
            self._loop.unwatch(stream)
            stream.close()
