"""A host's agent, and the warden above it: if either of the two is killed, the other ends all that is left.

Both are subreapers. The warden writes each of its signals to a pipe, whose end tells the agent that it was killed.
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

from mingle_hooks.errors import MingleError, NetworkError, UsageError
from mingle_hooks.files import UnfitError, contents, own_program_argv
from mingle_hooks.net.addresses import hostname
from mingle_hooks.rendezvous.connection import READ, Loop, Timer, dial
from mingle_hooks.rendezvous.wire import Body, Secret, WireError, parse
from mingle_hooks.run import messages, processes
from mingle_hooks.run.command import Attempt
from mingle_hooks.run.messages import AT, JOIN, KEY, RUNNER, WELCOME, Join, Link, Message, Welcome

NO_RUNNER = 75  # EX_TEMPFAIL: trying again makes sense
_STDERR = 2
_KEY_DIGITS = 64

Where = tuple[str, int]


class Options(NamedTuple):
    """A starter's options: which place this is, and where the environment comes from."""

    host: str = ""
    local: str = ""
    environ: str = ""
    is_stdin: bool = False
    keep: tuple[str, ...] = ()

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Options:
        """Return the options on a command line. Raises UsageError for one that no starter writes."""
        words = iter(arguments)
        found: dict[str, Any] = {}
        for word in words:
            if word == "--stdin":
                found["is_stdin"] = True
            elif word == "--keep":
                found["keep"] = (*found.get("keep", ()), next(words, ""))
            elif word in ("--host", "--local", "--environ"):
                found[word[2:]] = next(words, "")
            else:
                raise _bad("an option of a supervisor's", word)
        return cls(**found)

    def argv(self) -> tuple[str, ...]:
        """Return the place alone, as a command line."""
        host = ("--host", self.host) if self.host else ()
        return (*host, "--local", self.local) if self.local else host


class Task(NamedTuple):
    """The key and the addresses of the runner, and which place this is."""

    key: bytes
    places: tuple[Where, ...]
    host: str
    local: int

    @classmethod
    def find(cls, options: Options, environ: Mapping[str, str]) -> Task:
        """Return an agent's task; Slurm names the place unless the starter does. Raises UsageError."""
        digits, local = environ.get(KEY, ""), options.local or environ.get("SLURM_LOCALID") or "0"
        try:
            key = bytes.fromhex(digits)
        except ValueError:
            key = b""
        if len(digits) != _KEY_DIGITS or not key:
            raise _bad("a run's key", f"none in {KEY}")
        if not local.isdecimal():
            raise _bad("a number", f"{local} (--local)")
        host = options.host or environ.get("SLURMD_NODENAME") or hostname()
        return cls(key, parse_addresses(environ.get(AT, "")), host, int(local))


def parse_addresses(text: str) -> tuple[Where, ...]:
    """Return the addresses in MINGLE_RUN_AT: "10.77.0.1 4711,fd77::1 4711". Raises UsageError."""
    found = []
    for place in text.split(","):
        address, _, port = place.partition(" ")
        if not address or not port.isdecimal():
            raise _bad("addresses and ports", f"{text} ({AT})")
        found.append((address, int(port)))
    return tuple(found)


def _bad(expected: str, seen: str) -> UsageError:
    return UsageError(expected, seen, "`mingle run`, which starts this program")


# Dial again after so long, in seconds, where it was refused.
_AGAIN_S = 0.5
# Wait so long for a runner that has greeted and sends nothing more, if another has greeted.
_GREETED_S = 3.0


class Approach:
    """Dials all of the runner's addresses at once, until one has proved that it holds the run's key.

    `on_welcome(where, link, welcome)` comes once, with the control connection, and sets the link's `on_message`;
    `on_end(reason)` comes with its end.
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
        self._greeted: list[Where] = []  # in order; the first has been sent JOIN
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
        link.on_message = lambda kind, body: self._take(where, kind, body)
        self._links[where] = link

    def _proved(self, where: Where) -> None:
        self._greeted.append(where)
        if self._greeted[0] == where:
            self._introduce()

    def _introduce(self) -> None:
        """Send JOIN to the first that greeted."""
        if not self._greeted:
            return
        first = self._greeted[0]
        self._links[first].send(JOIN, self._join)
        self._loop.after(_GREETED_S, lambda: self._overdue(first))

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

    def _take(self, where: Where, kind: int, body: Body) -> None:
        if kind != WELCOME or self.is_over:
            return
        welcome, link = parse(Welcome, body), self._links[where]
        self.close(but=link)
        self._on_welcome(where, link, welcome)


class Heartbeats:
    """Sends heartbeats, one a second, and calls `on_silence()` once when the runner was silent for too long.

    The runner's heartbeats are read when the next one is due: one wake-up a second.
    """

    def __init__(
        self, loop: Loop, secret: Secret, address: str, welcome: Welcome, control: Link, on_silence: Callable[[], None]
    ) -> None:
        self._loop, self._secret, self._number, self._on_silence = loop, secret, welcome.number, on_silence
        self._tag = messages.heartbeat_tag(secret)
        self._silence, self._control = welcome.silence, control
        control.probe_peer(self._silence)
        self._interval_s = messages.heartbeat_interval_s(self._silence.host_s)
        self._sent = self._taken = 0
        self._heard_at = self._beat_at = loop.clock()
        self._timer: Timer | None = None
        self._sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.settimeout(0)
        host, _, zone = address.partition("%")
        self._sock.connect((host, welcome.port, 0, int(zone or 0)) if ":" in host else (host, welcome.port))
        self._beat()

    def heard(self) -> None:
        """Take note of a heartbeat, or a message, of the runner."""
        self._heard_at = self._loop.clock()

    def close(self) -> None:
        """Send and expect no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._sock.close()

    def _beat(self) -> None:
        now = self._loop.clock()
        # A stop of this process, as of a job that is suspended, is not the runner's silence.
        self._heard_at += max(now - self._beat_at - 2 * self._interval_s, 0.0)
        self._beat_at = now
        self._take()
        if self._silence.is_over(now - self._heard_at, self._control.unacknowledged_s):
            self._on_silence()
            return
        self._sent += 1
        try:
            self._sock.send(
                messages.pack_heartbeat(
                    self._secret, self._tag, messages.AGENT, messages.Heartbeat(self._number, self._sent)
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


# Look for the runner for so long, in seconds.
_APPROACH_S = 30.0


class Runner:
    """The runner, as an agent sees it: two connections and heartbeats, which are lost together.

    `on_message(kind, body)` gets its messages, none before output can be sent; `on_lost(reason)` comes once.
    """

    def __init__(
        self,
        loop: Loop,
        secret: Secret,
        places: Sequence[Where],
        join: Join,
        on_message: Callable[[int, Body], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._loop, self._secret, self._join = loop, secret, join
        self._on_message, self._on_lost = on_message, on_lost
        self._early: list[tuple[int, Body]] = []  # messages that came before output could be sent
        self._control: Link | None = None
        self._pulse: Heartbeats | None = None
        self._is_lost = self._is_open = False
        self.output: Link | None = None
        self._approach = Approach(loop, secret, places, join, self._welcome, self._lose)
        loop.after(_APPROACH_S, self._overdue)

    @property
    def is_found(self) -> bool:
        """Whether it has answered."""
        return self._control is not None

    def send(self, kind: int, message: Message) -> None:
        """Send it a message."""
        if self._control is not None:
            self._control.send(kind, message)

    def close(self) -> None:
        """Send no more; what the kernel has taken still arrives."""
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
        self._pulse = Heartbeats(self._loop, self._secret, where[0], welcome, link, lambda: self._lose("it is silent"))
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
            self.output.send(JOIN, self._join._replace(is_output=True))
        self._is_open = True
        early, self._early = self._early, []
        for kind, body in early:
            self._on_message(kind, body)

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


# Without a runner, COMMAND has so long after TERM, in seconds.
_LOST_GRACE_S = 2.0
# A signal that comes to the warden and to the agent within this time is one.
_SAME_S = 1.0


def run_agent(task: Task, warden: int) -> int:
    """Return the exit status that the runner sends, or NO_RUNNER."""
    with Loop() as loop:
        agent = Agent(loop, task, warden)
        loop.run(lambda: agent.status is not None)
    return NO_RUNNER if agent.status is None else agent.status


class Agent:
    """One host's part of a run: obeys the runner, reports on COMMAND, and ends all if the runner is lost.

    `status` is its exit status once all is done.
    """

    def __init__(self, loop: Loop, task: Task, warden: int) -> None:
        self._loop, self._own = loop, dict(os.environ)
        self.status: int | None = None
        self._leaving: int | None = None  # with which status, once nothing is left
        self._attempt: Attempt | None = None
        self._passed_on: set[int] = set()
        self._noticed: dict[int, float] = {}
        self._listen(warden)
        join = messages.Join(task.host, task.local, os.getpid(), is_output=False)
        self._runner = Runner(loop, Secret(task.key), task.places, join, self._obey, self._lost)

    def _listen(self, warden: int) -> None:
        """Watch for signals to this process or to the warden, and for the warden's end."""
        reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        processes.write_signals_to(writing)
        processes.release_signals()
        for end in (FileIO(reading), FileIO(warden)):
            self._loop.watch(end, READ, lambda _events, end=end: self._signalled(end))  # type: ignore[misc]

    def _signalled(self, end: FileIO) -> None:
        numbers = end.read(4096)
        if numbers == b"":
            self._loop.unwatch(end)
            self._runner.close()  # from here on, COMMAND's end is not its own failure
            self._lost("the warden is gone")
        for number in dict.fromkeys(numbers or b""):
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
        """Send a signal to the runner, which decides what it means."""
        now = self._loop.clock()
        if now - self._noticed.get(number, -_SAME_S) < _SAME_S:
            return
        self._noticed[number] = now
        if self._runner.is_found:
            self._runner.send(messages.NOTICED, messages.Noticed(number))
        else:
            self._runner.close()
            self._lost("stopped before a runner was found")

    def _obey(self, kind: int, body: Body) -> None:
        """Do what a message of the runner says. Raises WireError."""
        if kind == messages.START:
            self._start(parse(messages.Start, body))
        elif kind == messages.SIGNAL:
            signalled = parse(messages.Signal, body)
            if self._attempt is not None and signalled.id not in self._passed_on:
                self._passed_on.add(signalled.id)
                self._attempt.tree.signal(signalled.signal)
        elif kind == messages.DUMP:
            dump = parse(messages.Dump, body)
            if self._attempt is not None and self._attempt.number == dump.attempt:
                self._attempt.dump(dump.within_ms / 1000)
        elif kind == messages.END:
            end = parse(messages.End, body)
            if self._attempt is not None and self._attempt.number == end.attempt:
                self._attempt.tree.end(end.grace_ms / 1000)
        elif kind == messages.LEAVE:
            self._leaving = parse(messages.Leave, body).status
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
            tail, status = f"mingle run: cannot start: {wrong.strerror}\n", NetworkError.exit_code
            ended = messages.Ended(start.attempt, status, None, formed=False, is_oom=False, tail=tail)
            self._runner.send(messages.ENDED, ended)
            self._runner.send(messages.CLEAN, messages.Clean(start.attempt, 0))
            output.send_output(messages.DRAINED)

    def _lost(self, reason: str) -> None:
        """End all without a runner."""
        if self._leaving is None:
            self._leaving = NO_RUNNER
            with suppress(OSError):  # nobody may read it
                os.write(_STDERR, f"mingle run: {hostname()}: the runner is lost: {reason}\n".encode())
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


# The caller's environment, if the scheduler hands none on: from a private file, or from standard input.
MOST_BYTES = 16 * 1024 * 1024
_STDIN = 0


def take_environ(program: str, options: Options) -> None:
    """Become the same program with that environment, by which a sweep finds it in /proc.

    Raises UsageError if another user can read or write the file.
    """
    become_program(program, options, merge_environ(os.environ, _read(options), options.keep))


def become_program(program: str, options: Options, environ: Mapping[str, str]) -> NoReturn:
    """Become one of our programs, at the place of these options."""
    argv = [*own_program_argv(program), *options.argv()]
    os.execve(argv[0], argv, environ)  # noqa: S606 - mingle itself


def merge_environ(own: Mapping[str, str], data: bytes, keep: tuple[str, ...]) -> dict[str, str]:
    """Return the variables of a file, but this host's own where they have one of these prefixes."""
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


def run_warden(arguments: Sequence[str]) -> int:
    """Return the exit status of an agent, once nothing of it is left."""
    _fill_standard_descriptors()
    try:
        options = Options.parse(arguments)
        if options.environ or options.is_stdin:
            take_environ("agent", options)
        task = Task.find(options, os.environ)
    except MingleError as wrong:
        os.write(_STDERR, f"mingle run: {wrong}\n".encode())
        return wrong.exit_code
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    processes.adopt_orphans()
    processes.hold_signals()
    child = os.fork()  # so the agent has a small parent
    if not child:
        os.close(writing)
        return _run_child(task, reading)
    processes.write_signals_to(writing)  # `reading` stays open: a signal after the agent's end breaks no pipe
    processes.release_signals()
    _, status = os.waitpid(child, 0)
    processes.kill_all()
    return max(os.waitstatus_to_exitcode(status), 0) if os.WIFEXITED(status) else NO_RUNNER


def _run_child(task: Task, warden: int) -> int:
    os.setsid()  # at a job's end, PBS kills the whole session that it began: one of the two has to see that
    processes.adopt_orphans()
    try:
        return run_agent(task, warden)
    except Exception:  # noqa: BLE001 - a bug: all that runs must end, and the report needs the trace
        import traceback

        os.write(_STDERR, f"mingle run: {traceback.format_exc()}".encode())
        return NO_RUNNER


def _fill_standard_descriptors() -> None:
    """Open /dev/null in place of a closed standard stream, or a pipe of ours would get its number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(descriptor)
