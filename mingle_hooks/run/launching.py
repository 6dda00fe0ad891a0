"""The starters at work: the runner's sockets, and the processes on this host that start agents on others."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from mingle_hooks import files
from mingle_hooks.errors import MissingError, NetworkError, NotExecutableError
from mingle_hooks.files import own_program_argv
from mingle_hooks.net.addresses import DEFAULT_RANGE, candidates, interfaces, usable
from mingle_hooks.rendezvous.connection import READ, Loop
from mingle_hooks.rendezvous.wire import Secret
from mingle_hooks.run import messages, starters
from mingle_hooks.run.messages import open_listeners
from mingle_hooks.run.processes import shell_status, spawn
from mingle_hooks.run.starters import Allocation, Launch, Starter
from mingle_hooks.schedulers.facts import fold
from mingle_hooks.settings import Settings

_TRIES = 64
IP_PKTINFO = getattr(socket, "IP_PKTINFO", 8)


class Sockets:
    """The runner's TCP and UDP sockets of one port, in all families that this host has, or on loopback alone.

    The port is one of `chosen`, else of the range, which a site's firewall may let through; on loopback the kernel
    chooses it.
    """

    def __init__(self, *, is_local: bool, port_range: range = DEFAULT_RANGE, chosen: tuple[int, ...] = ()) -> None:
        if not chosen:
            chosen = (0,) * _TRIES if is_local else candidates(os.urandom(16), _TRIES, port_range)
        self.port, sockets = open_listeners(chosen, (socket.SOCK_STREAM, socket.SOCK_DGRAM), is_local=is_local)
        if not self.port:
            seen = f"{len(chosen)} of {port_range.start}-{port_range.stop - 1} are taken"
            raise NetworkError("a free port for the agents", seen, "a wider --port-range")
        self.datagrams = [sock for sock in sockets if sock.type & socket.SOCK_DGRAM]
        self.listeners = [sock for sock in sockets if sock not in self.datagrams]
        six, four = (socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO), (socket.IPPROTO_IP, IP_PKTINFO)
        for sock in self.datagrams:  # to know the address that a heartbeat was sent to: the answer has to come from it
            sock.setsockopt(*(six if sock.family == socket.AF_INET6 else four), 1)

    def close(self) -> None:
        """Close all."""
        for sock in (*self.listeners, *self.datagrams):
            sock.close()


_READ_BYTES = 64 * 1024
_STDERR = 2
MOST_OUTPUT = 4096
# Python ignores these for itself, and no program expects to inherit that.
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class Process:
    """A process; `output` is the end of its output, `status` its exit status as in a shell, once it has ended."""

    def __init__(self, launch: Launch, environ: Mapping[str, str], limit: Limit) -> None:
        self.hosts, self.output = launch.hosts, b""
        self.status: int | None = None
        if not hasattr(os, "posix_spawnp"):  # PyPy's
            raise NotExecutableError("CPython for this command", sys.implementation.name, "mingle exec on each node")
        stdin = os.open(os.devnull, os.O_RDONLY) if launch.stdin is None else _file_of(launch.stdin)
        try:  # in a session of its own: Ctrl-C goes to the runner alone
            self.pid, self.pipe = spawn(launch.argv, environ, stdin, limit, setsid=True, setsigdef=IGNORED_BY_PYTHON)
        finally:
            os.close(stdin)

    def kill(self, number: int) -> None:
        """Signal it and its children on this host, unless it has ended."""
        if self.status is None:
            with suppress(ProcessLookupError, PermissionError):  # it ended; or it is another user's now, as by sudo
                os.killpg(self.pid, number)

    def wait(self, options: int = 0) -> int | None:
        """Return its status, None while it runs; `options` are waitpid(2)'s: 0 waits for its end."""
        if self.status is None:
            ended, status = os.waitpid(self.pid, options)
            if ended:
                self.status = shell_status(status)
        return self.status


def _file_of(data: bytes) -> int:
    """Return a file to read data from, for which a pipe may be too small.

    It is in memory, as it may hold the run's key; without memfd_create(2) it has no name.
    """
    import tempfile  # 5 ms, needed only where the environment travels by stdin

    memory = os.memfd_create("mingle") if hasattr(os, "memfd_create") else None
    with tempfile.TemporaryFile() if memory is None else open(memory, "wb") as file:
        file.write(data)
        file.seek(0)
        return os.dup(file.fileno())


class Processes:
    """Starts processes with the user's own limits, and reports their ends once `poll` is called after SIGCHLD."""

    def __init__(
        self, loop: Loop, environ: Mapping[str, str], on_output: Callable[[bytes], None], limit: Limit
    ) -> None:
        self._loop, self._environ, self._on_output, self._limit = loop, environ, on_output, limit
        self._running: dict[Process, Callable[[Process, int], None]] = {}
        for name in os.listdir("/proc/self/fd"):  # no program is to inherit what our parent left open
            with suppress(OSError):  # that of the listing itself
                os.set_inheritable(int(name), int(name) <= _STDERR)

    @property
    def running(self) -> tuple[Process, ...]:
        """Return those that have not ended."""
        return tuple(self._running)

    def start(
        self, launch: Launch, on_end: Callable[[Process, int], None], environ: Mapping[str, str] | None = None
    ) -> Process:
        """Start one; `on_end(process, status)` comes later, and once. Raises OSError if that fails."""
        process = Process(launch, self._environ if environ is None else environ, self._limit)
        self._running[process] = on_end
        self._loop.watch(process.pipe, READ, lambda _events: self._read(process))
        return process

    def poll(self) -> None:
        """Report the processes that have ended."""
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
        data = None if process.pipe.closed else process.pipe.read(_READ_BYTES)
        if data:
            process.output = (process.output + data)[-MOST_OUTPUT:]
            self._on_output(data)
        elif data is not None:
            self._close(process)

    def _close(self, process: Process) -> None:
        if not process.pipe.closed:
            self._loop.unwatch(process.pipe)
            process.pipe.close()


# The time limit of an event's command, in seconds, and how many events may wait for it.
EVENT_S, MOST_EVENTS = 10.0, 1000


class EventCommand:
    """--on-event: runs a shell line for each event, which it gets on stdin, one after another.

    `note(text)` comes once if that fails, or if too many events wait: then some are left out.
    """

    def __init__(self, loop: Loop, processes: Processes, line: str, note: Callable[[str], None]) -> None:
        self._loop, self._processes, self._line, self._note = loop, processes, line, note
        self._waiting: deque[bytes] = deque()
        self.running: Process | None = None
        self._has_failed = False

    def take(self, event: bytes) -> None:
        """Run the line for an event, once it has ended for those before."""
        if len(self._waiting) < MOST_EVENTS:
            self._waiting.append(event)
        else:
            self._fail(f"{MOST_EVENTS} events wait for it")
        self._next()

    def close(self) -> None:
        """End the line that runs, and leave out the events that wait."""
        if left := len(self._waiting) + (self.running is not None):
            self._has_failed = True  # which needs no other note
            self._note(f"--on-event: {left} events are left out at the end")
        self._waiting.clear()
        if self.running is not None:
            self.running.kill(signal.SIGKILL)

    def _next(self) -> None:
        if self.running is not None or not self._waiting:
            return
        launch = Launch(("/bin/sh", "-c", self._line), (), stdin=self._waiting.popleft())
        try:
            process = self.running = self._processes.start(launch, self._ended, os.environ)
        except OSError as error:
            self._fail(str(error.strerror))
        else:
            self._loop.after(EVENT_S, lambda: process.kill(signal.SIGKILL))

    def _ended(self, _process: Process, status: int) -> None:
        self.running = None
        if status:
            self._fail(f"it ended with status {status}")
        self._next()

    def _fail(self, why: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._note(f"--on-event: {why}")


# Descriptors of each agent: two connections, its starter's output, its log; and those of this process itself, with
# some strangers: where more come, the oldest goes.
_EACH, _OTHERS = 4, 512


class Limit:
    """The limit of open files, raised for so many agents as far as this user may; `with` it is the user's own.

    No other process has it, as Slurm's srun would hand it on to COMMAND.
    """

    def __init__(self, agents: int) -> None:
        self._own = resource.getrlimit(resource.RLIMIT_NOFILE)
        files.raise_open_files_limit(_EACH * agents + _OTHERS)
        self._raised = resource.getrlimit(resource.RLIMIT_NOFILE)

    def __enter__(self) -> None:
        self.give_back()

    def __exit__(self, *_error: object) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, self._raised)

    def give_back(self) -> None:
        """Go back to the user's own limit."""
        resource.setrlimit(resource.RLIMIT_NOFILE, self._own)


# Variables that an outer run gives to its own COMMAND.
_OUTER = ("MINGLE_RUN", "MINGLE_RUN_FORMED", "MINGLE_ATTEMPT")
_KEY_BYTES, _ID_BYTES = 32, 8
_CANNOT_START = 127
# Seconds that the other hosts have to start where some do not see mingle's file.
_UNSEEN_S = 1.0
_SHARE = "a copy of it there, or a directory that all hosts see"


class Agreed(NamedTuple):
    """What all members of exec --together compute alike: the run's id, key and possible ports."""

    run: str
    key: bytes
    ports: tuple[int, ...]


class Launching:
    """Starts one of our programs on hosts of a job, until close().

    The loop calls `on_output(data)` with the starters' output, `on_end(hosts, status, output)` at each starter's end.
    """

    def __init__(
        self, loop: Loop, starter: Starter, job: Allocation, program: str, settings: Settings, agreed: Agreed | None
    ) -> None:
        self._loop, self._starter, self._job = loop, starter, job
        self._program = own_program_argv(program)
        self._path = self._program[2]
        self._unseen = f"can't open file {self._path!r}".encode()  # Python's message
        self._failing: list[Process] = []  # starters whose output has that message
        agreed = agreed or Agreed(os.urandom(_ID_BYTES).hex(), os.urandom(_KEY_BYTES), ())
        self.run, self.secret = agreed.run, Secret(agreed.key)
        self.on_output: Callable[[bytes], None] = lambda _output: None
        self.on_end: Callable[[tuple[str, ...], int, str], None] = lambda _hosts, _status, _output: None
        self._latest: dict[str, set[Process]] = {}  # host -> the last starters of its agents: one, or one each
        self._file: str | None = None
        is_local, addresses = starter.name == "local", ["127.0.0.1"]
        if not is_local:
            addresses = [address.host for address in usable(interfaces(), prefer=settings.iface)]
        self._limit = Limit(sum(job.agents))
        self.sockets = Sockets(is_local=is_local, port_range=settings.port_range, chosen=agreed.ports)
        outer = os.environ.get("MINGLE_RUN_ID")
        self.environ = {
            **{name: value for name, value in os.environ.items() if name not in _OUTER},
            "MINGLE_RUN_ID": f"{outer},{self.run}" if outer else self.run,
            messages.KEY: agreed.key.hex(),
            messages.AT: ",".join(f"{address} {self.sockets.port}" for address in addresses),
        }
        self.processes = Processes(loop, self.environ, self._take_output, self._limit)

    def start(self, hosts: tuple[str, ...]) -> None:
        """Start the program on these hosts. Raises what the starter raises, and PlaceError for its file."""
        if self._starter.environment == "file" and self._file is None:
            self._file = starters.write_environ(self.environ, starters.directories(self.environ))
        environ = starters.packed(self.environ)
        launches = self._starter.agent_launches(self._job, hosts, self._program, environ, self._file)
        self._latest |= {host: set() for host in hosts}
        for launch in launches:
            try:
                process = self.processes.start(launch, self._ended)
            except OSError as wrong:
                self.report_failure(launch.hosts, f"{launch.argv[0]}: {wrong.strerror}")
                continue
            for host in launch.hosts:
                self._latest[host].add(process)

    def forget_file(self) -> None:
        """Remove the file of the environment, if there is one: all agents have read it, and it holds the run's key."""
        if self._file is not None:
            with suppress(OSError):  # somebody else has removed it
                os.unlink(self._file)
            self._file = None

    def close(self) -> None:
        """End all starters, and close and remove what was opened and written."""
        self.processes.kill(at_once=True)
        self.sockets.close()
        self.forget_file()
        self._limit.give_back()

    def report_failure(self, hosts: tuple[str, ...], why: str) -> None:
        """Report, as a starter would, that nothing can be started on these hosts."""

        def report() -> None:
            self.on_output(f"mingle run: {why}\n".encode())
            self.on_end(hosts, _CANNOT_START, why)

        self._loop.after(0.0, report)

    def _take_output(self, data: bytes) -> None:
        """Pass on the starters' output, without Python's message about a program that a host does not see."""
        lines = data.splitlines(keepends=True)
        if rest := b"".join(line for line in lines if self._unseen not in line):
            self.on_output(rest)
        for process in self.processes.running:
            if self._unseen in process.output and process not in self._failing:
                if not self._failing:
                    self.on_output(f"mingle run: {self._why(process)}\n".encode())
                self._failing.append(process)
                self._loop.after(_UNSEEN_S, lambda process=process: self._give_up(process))  # type: ignore[misc]

    def _give_up(self, process: Process) -> None:
        """Count a starter as ended though some of its hosts see the program."""
        if process in self.processes.running:
            self._ended(process, _CANNOT_START)

    def _ended(self, process: Process, status: int) -> None:
        hosts = tuple(host for host in process.hosts if process in self._latest[host])
        if not hosts:  # it was of an earlier attempt
            return
        is_unseen = self._unseen in process.output
        self.on_end(hosts, status, self._why(process) if is_unseen else process.output.decode(errors="replace"))

    def _why(self, process: Process) -> str:
        where = process.hosts[0] if len(process.hosts) == 1 else f"some of {fold(process.hosts)}"
        return str(MissingError(f"mingle's file {self._path} on every host", f"no such file on {where}", _SHARE))
