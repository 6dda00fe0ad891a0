"""A host's agent, and the warden above it: if one of the two is killed, the other ends all that is left.

Both are subreapers. The warden writes its signals to a pipe; the agent knows from the pipe's end that it is gone.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from typing import Any, NamedTuple, NoReturn

from mingle_hooks import values
from mingle_hooks.errors import MingleError, NetworkError, UsageError
from mingle_hooks.files import UnusableFileError, contents, fill_standard_descriptors, own_program_argv
from mingle_hooks.net.addresses import HIGHEST, hostname
from mingle_hooks.rendezvous.connection import READ, Loop, Timer, dial
from mingle_hooks.rendezvous.wire import Body, Secret, WireError, hexadecimal, parse
from mingle_hooks.run import messages, processes
from mingle_hooks.run.command import Attempt
from mingle_hooks.run.messages import AT, KEY, RUNNER, WELCOME, AgentMessage, Join, Link, Welcome
from mingle_hooks.schedulers.facts import MOST_SLOTS
from mingle_hooks.settings import split_call

_STDERR = 2
_KEY_BYTES = 32

RunnerAddress = tuple[str, int]
Welcomed = Callable[[RunnerAddress, Link, Welcome], None]


class Options(NamedTuple):
    """A starter's options: which place this is, and where the environment comes from."""

    host: str = ""
    local: str = ""
    environ: str = ""
    keep: str = ""  # prefixes of variables that are this host's own, with commas between them
    is_stdin: bool = False

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Options:
        """Return the options on a command line. Raises UsageError for those that no starter writes."""
        texts = {f"--{name}": name for name in ("host", "local", "environ", "keep")}
        found: tuple[dict[str, Any], tuple[str, ...]] | None = split_call(arguments, {"--stdin": "is_stdin"}, texts)
        if found is None or found[1]:
            raise _bad("options of an agent", " ".join(arguments))
        return cls(**found[0])

    def argv(self) -> tuple[str, ...]:
        """Return the options that name the place."""
        place = {"--host": self.host, "--local": self.local}
        return tuple(text for option, value in place.items() if value for text in (option, value))


class Task(NamedTuple):
    """The run's key and the runner's addresses, and which place this is."""

    key: bytes
    addresses: tuple[RunnerAddress, ...]
    host: str
    local: int

    @classmethod
    def find(cls, options: Options, environ: Mapping[str, str]) -> Task:
        """Return an agent's task; Slurm names the place unless the starter does. Raises UsageError."""
        text = options.local or environ.get("SLURM_LOCALID") or "0"
        try:
            key = hexadecimal({KEY: environ.get(KEY)}, KEY, _KEY_BYTES)
        except WireError:
            raise _bad("a run's key", f"none in {KEY}") from None
        if (local := values.number(text, most=MOST_SLOTS - 1)) is None:
            raise _bad("a number", f"{text} (--local)")
        host = options.host or environ.get("SLURMD_NODENAME") or hostname()
        return cls(key, parse_addresses(environ.get(AT, "")), host, local)


def parse_addresses(text: str) -> tuple[RunnerAddress, ...]:
    """Return the addresses in MINGLE_RUN_AT: "10.77.0.1 4711,fd77::1 4711". Raises UsageError."""
    pairs = [pair.partition(" ") for pair in text.split(",")]
    found = tuple((address, values.number(port, least=1, most=HIGHEST) or 0) for address, _, port in pairs)
    if not all(address and port for address, port in found):
        raise _bad("addresses and ports", f"{text} ({AT})")
    return found


def _bad(expected: str, seen: str) -> UsageError:
    return UsageError(expected, seen, "`mingle run`, which starts this program")


# Seconds to wait after a refusal before dialing again.
_AGAIN_S = 0.5


class Approach:
    """Dials all of the runner's addresses at once, until one has proved that it holds the run's key, by WELCOME.

    `on_welcome(address, link, welcome)` comes once, with the control connection, and sets the link's `on_message`;
    `on_end(reason)` comes when that connection ends.
    """

    def __init__(
        self, loop: Loop, secret: Secret, addresses: Sequence[RunnerAddress], join: Join, on_welcome: Welcomed
    ) -> None:
        self._loop, self._secret, self._join, self._on_welcome = loop, secret, join, on_welcome
        self.on_end: Callable[[str], None] = lambda _reason: None
        self._links: dict[RunnerAddress, Link] = {}
        self.is_over = False
        for address in addresses:
            self._dial(address)

    def close(self, keep: Link | None = None) -> None:
        """Close all links but one, and give up."""
        self.is_over = True
        for link in self._links.values():
            if link is not keep:
                link.close()

    def _dial(self, address: RunnerAddress) -> None:
        if self.is_over:
            return
        try:
            sock = dial(*address)
        except OSError:
            self._loop.after(_AGAIN_S, lambda: self._dial(address))
            return
        link = Link(self._loop, sock, self._secret, is_runner=False, on_end=lambda reason: self._lost(address, reason))
        link.on_proved = lambda: link.send_record(self._join)  # over all: the runner takes the first that it gets
        link.on_message = lambda kind, body: self._take(address, kind, body)
        self._links[address] = link

    def _lost(self, address: RunnerAddress, reason: str) -> None:
        if self.is_over:
            self.on_end(reason)
        else:
            self._loop.after(_AGAIN_S, lambda: self._dial(address))

    def _take(self, address: RunnerAddress, kind: int, body: Body) -> None:
        if kind != WELCOME or self.is_over:
            return
        welcome, link = parse(Welcome, body), self._links[address]
        self.close(keep=link)
        self._on_welcome(address, link, welcome)


class Heartbeats:
    """Sends a heartbeat each second, and calls `on_silence()` once when the runner has been silent for too long.

    The runner's heartbeats are read when the next one is sent: one wake-up a second.
    """

    def __init__(
        self, loop: Loop, secret: Secret, address: str, welcome: Welcome, control: Link, on_silence: Callable[[], None]
    ) -> None:
        self._loop, self._secret, self._number, self._on_silence = loop, secret, welcome.number, on_silence
        self._silence, self._control = welcome.silence, control
        control.probe_peer(self._silence.probe_s)
        self._interval_s = messages.heartbeat_interval_s(self._silence.host_s)
        self._sent = self._received = 0  # the last sequence numbers
        self._heard_at = self._beat_at = loop.clock()
        self._timer = Timer()
        self._sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.settimeout(0)
        host, _, zone = address.partition("%")
        self._sock.connect((host, welcome.port, 0, int(zone or 0)) if ":" in host else (host, welcome.port))
        self._beat()

    def heard(self) -> None:
        """Note that a heartbeat or a message of the runner has come."""
        self._heard_at = self._loop.clock()

    def close(self) -> None:
        """Send no more heartbeats, and expect none."""
        self._timer.cancel()
        self._sock.close()

    def _beat(self) -> None:
        now = self._loop.clock()
        # The time for which this process was stopped, as with a suspended job, does not count as the runner's silence.
        self._heard_at += max(now - self._beat_at - 2 * self._interval_s, 0.0)
        self._beat_at = now
        self._receive()
        if now - self._heard_at > self._silence.quiet_s / 2:
            self._control.ping()
        if self._silence.is_over(now - self._heard_at, self._control.unacknowledged_s):
            self._on_silence()
            return
        self._sent += 1
        heartbeat = messages.Heartbeat(self._number, self._sent)
        with suppress(OSError):  # the next may get through
            self._sock.send(messages.pack_heartbeat(self._secret, messages.AGENT, heartbeat))
        self._timer = self._loop.after(self._interval_s, self._beat)

    def _receive(self) -> None:
        """Read what has come; a sequence number that is not higher than the last is an old or a copied heartbeat."""
        for (number, sequence), *_ in messages.heartbeats(self._sock, self._secret, RUNNER):
            if number == self._number and sequence > self._received:
                self._received = sequence
                self.heard()


# Seconds to look for the runner.
_APPROACH_S = 30.0


class Runner:
    """The runner, as an agent sees it: two connections and heartbeats, which are lost together.

    `on_message(kind, body)` gets its messages; START comes once output can be sent. `on_lost(reason)` comes once.
    """

    def __init__(
        self, loop: Loop, task: Task, on_message: Callable[[int, Body], None], on_lost: Callable[[str], None]
    ) -> None:
        self._loop, self._secret = loop, Secret(task.key)
        self._join = Join(task.host, task.local, os.getpid(), is_output=False)
        self._on_message, self._on_lost = on_message, on_lost
        self._control: Link | None = None
        self._heartbeats: Heartbeats | None = None
        self._is_lost = False
        self.output: Link | None = None
        self._approach = Approach(loop, self._secret, task.addresses, self._join, self._welcome)
        self._approach.on_end = self._lose
        loop.after(_APPROACH_S, lambda: None if self.is_found else self._lose("none answers"))

    @property
    def is_found(self) -> bool:
        """Whether it has answered."""
        return self._control is not None

    def send(self, message: AgentMessage) -> None:
        """Send a message, if the runner is found."""
        if self._control is not None:
            self._control.send_record(message)

    def close(self) -> None:
        """Send no more; what the kernel has accepted still arrives."""
        self._is_lost = True
        self._approach.close()
        for part in (self._control, self.output, self._heartbeats):
            if part is not None:
                part.close()

    def _welcome(self, address: RunnerAddress, link: Link, welcome: Welcome) -> None:
        def silent() -> None:
            self._lose("it is silent")

        self._control = link
        try:
            beats = self._heartbeats = Heartbeats(self._loop, self._secret, address[0], welcome, link, silent)
            sock = dial(*address)
        except OSError as error:  # no descriptor or port is left
            self._lose(str(error.strerror))
            return
        link.on_message = lambda kind, body: self._take(link, beats, kind, body)

        def end_soon(reason: str) -> None:
            # The runner closes both connections after LEAVE, and a cable that was out brings their ends in any order.
            self._loop.after(welcome.silence.host_s, lambda: self._lose(reason))

        output = self.output = Link(self._loop, sock, self._secret, is_runner=False, on_end=end_soon)
        output.on_proved = lambda: output.send_record(self._join._replace(is_output=True))
        output.on_message = lambda _kind, _body: beats.heard()

    def _take(self, link: Link, heartbeats: Heartbeats, kind: int, body: Body) -> None:
        heartbeats.heard()
        if not link.takes_ping(kind):
            self._on_message(kind, body)

    def _lose(self, reason: str) -> None:
        if not self._is_lost:
            self.close()
            self._on_lost(reason)


# Without a runner, COMMAND has so long after TERM, in seconds.
_LOST_GRACE_S = 2.0


class Agent:
    """One host's part of a run: does what the runner says, reports on COMMAND, and ends all if the runner is lost.

    `status` is the exit status, once nothing is left to do.
    """

    def __init__(self, loop: Loop, task: Task, warden: int) -> None:
        self._loop, self._own = loop, dict(os.environ)
        self.status: int | None = None
        self._leaving: int | None = None  # the exit status, once nothing of COMMAND is left
        self._attempt: Attempt | None = None
        own = processes.signal_pipe()
        processes.release_signals()
        for end in (FileIO(own), FileIO(warden)):
            loop.watch(end, READ, lambda _events, end=end: self._signalled(end))  # type: ignore[misc]
        self._runner = Runner(loop, task, self._obey, self._lost)

    def _signalled(self, end: FileIO) -> None:
        """Take the signals to this process or to the warden, or the warden's end."""
        numbers = end.read(4096)
        if numbers == b"":
            self._loop.unwatch(end)
            self._runner.close()  # from here on, COMMAND's end is not its own failure
            self._lost("the warden is gone")
        # A scheduler's signal to all may have ended COMMAND: it comes first, so that the runner knows why.
        for number in dict.fromkeys(numbers or b""):
            if number != signal.SIGCHLD:
                self._notice(number)
        if self._attempt is None:
            processes.reap()
        else:
            self._attempt.tree.reap()
        self._leave()

    def _notice(self, number: int) -> None:
        """Send a signal to the runner, which decides what it means, and whether others have sent the same one."""
        if self._attempt is not None:  # of some schedulers COMMAND gets it, too
            self._attempt.signalled(number)
        if self._runner.is_found:
            self._runner.send(messages.Noticed(number))
        else:
            self._runner.close()
            self._lost("stopped before a runner was found")

    def _obey(self, kind: int, body: Body) -> None:
        """Do what a message of the runner says. Raises WireError."""
        if kind not in messages.RUNNER_MESSAGES:
            raise WireError("not a runner's message")
        message, attempt = parse(messages.RUNNER_MESSAGES[kind], body), self._attempt
        if isinstance(message, messages.Start):
            self._start(message)
        elif isinstance(message, messages.Leave):
            self._end(message.status, 0.0)
        elif attempt is None:
            return
        elif isinstance(message, messages.Signal):
            attempt.signalled(message.signal)
            attempt.tree.signal(message.signal)
        elif message.attempt != attempt.number:
            return
        elif isinstance(message, messages.Dump):
            attempt.dump(message.within_ms / 1000)
        else:
            attempt.tree.end(message.grace_ms / 1000)

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
            tail, status = f"mingle run: cannot start: {wrong.strerror}\n", NetworkError.exit_code
            ended = messages.Ended(start.attempt, status, None, formed=False, is_oom=False, tail=tail)
            self._runner.send(ended)
            self._runner.send(messages.Clean(start.attempt, 0))
            output.send_output(messages.DRAINED)

    def _lost(self, reason: str) -> None:
        """End all without a runner."""
        if self._leaving is None:
            with suppress(OSError):  # nobody may read it
                os.write(_STDERR, f"mingle run: {hostname()}: the runner is lost: {reason}\n".encode())
        self._end(os.EX_TEMPFAIL if self._leaving is None else self._leaving, _LOST_GRACE_S)

    def _end(self, status: int, grace_s: float) -> None:
        """End COMMAND, then leave with this status."""
        self._leaving = status
        if self._attempt is not None:
            self._attempt.tree.end(grace_s)
        self._leave()

    def _leave(self) -> None:
        """Leave once nothing of COMMAND is left."""
        if self._leaving is not None and (self._attempt is None or self._attempt.is_clean):
            self.status = self._leaving
            self._runner.close()


# The caller's environment, if the scheduler passes none on: from a private file, or from standard input.
MOST_BYTES = 16 * 1024 * 1024
_STDIN = 0
_LIBRARIES = "LD_LIBRARY_PATH"


def find_task(program: str, arguments: Sequence[str]) -> Task:
    """Return the task of one of our programs, with the caller's environment. Raises UsageError."""
    options = Options.parse(arguments)
    if options.environ or options.is_stdin:
        take_environ(program, options)
    return Task.find(options, os.environ)


def take_environ(program: str, options: Options) -> None:
    """Take that environment; an agent becomes the same program with it: by it a sweep finds the process in /proc.

    So does a probe whose libraries, such as NVML's, are elsewhere: the loader reads that variable once. Raises
    UsageError if another user can read or write the file.
    """
    keep = tuple(filter(None, options.keep.split(",")))
    environ = merge_environ(os.environ, _read(options), keep)
    if program == "agent" or environ.get(_LIBRARIES) != os.environ.get(_LIBRARIES):
        become_program(program, options, environ)
    os.environ.clear()
    os.environ.update(environ)


def become_program(program: str, options: Options, environ: Mapping[str, str]) -> NoReturn:
    """Become one of our programs, at the place of these options."""
    argv = [*own_program_argv(program), *options.argv()]
    os.execve(argv[0], argv, environ)  # noqa: S606 - mingle itself


def merge_environ(own: Mapping[str, str], data: bytes, keep: tuple[str, ...]) -> dict[str, str]:
    """Return the variables in `data`, except that those with one of these prefixes are this host's own."""
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
    except UnusableFileError as wrong:
        raise UsageError(wrong.expected, wrong.seen, wrong.remedy) from None
    except OSError as wrong:
        raise UsageError("the run's environment", f"{options.environ}: {wrong.strerror}", "mingle run again") from None


def run_warden(arguments: Sequence[str]) -> int:
    """Return the exit status of an agent, once nothing of it is left."""
    fill_standard_descriptors(os.O_RDWR)
    try:
        task = find_task("agent", arguments)
    except MingleError as wrong:
        os.write(_STDERR, f"mingle run: {wrong}\n".encode())
        return wrong.exit_code
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    processes.adopt_orphans()
    processes.hold_signals()
    child = os.fork()  # the warden stays small, as it never imports or allocates what the agent needs
    if not child:
        os.close(writing)
        return _run_child(task, reading)
    processes.write_signals_to(writing)  # `reading` stays open: a signal after the agent's end breaks no pipe
    processes.release_signals()
    _, status = os.waitpid(child, 0)
    processes.kill_all()
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else os.EX_TEMPFAIL


def _run_child(task: Task, warden: int) -> int:
    os.setsid()  # at a job's end PBS kills the session that it began: the agent has to survive, and end the rest
    processes.adopt_orphans()
    try:
        with Loop() as loop:
            agent = Agent(loop, task, warden)
            loop.run(lambda: agent.status is not None)
    except Exception:  # noqa: BLE001 - a bug: all that runs must end, and the report needs the trace
        import traceback

        os.write(_STDERR, f"mingle run: {traceback.format_exc()}".encode())
        return os.EX_TEMPFAIL
    return os.EX_TEMPFAIL if agent.status is None else agent.status
