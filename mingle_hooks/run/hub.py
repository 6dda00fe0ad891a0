"""The runner's supervisors: who is connected, and who is alive."""

from __future__ import annotations

import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable, Mapping, Sequence

from mingle_hooks import files
from mingle_hooks.errors import MissingError, NetworkError, NotExecutableError
from mingle_hooks.files import own_program_argv
from mingle_hooks.net import ports
from mingle_hooks.net.addresses import interfaces, usable
from mingle_hooks.rendezvous.connection import READ, Callers, Loop
from mingle_hooks.rendezvous.wire import Body, Secret, WireError, parse
from mingle_hooks.run import messages, starters
from mingle_hooks.run.events import Clean, CommandEnded, Event, Formed, Heard, Joined, Lost, Noticed, Quiet, Stacks
from mingle_hooks.run.messages import (
    CLEAN,
    ENDED,
    FORMED,
    JOIN,
    LEAVE,
    NOTICED,
    RUNNER,
    STACKS,
    SUPERVISOR,
    WELCOME,
    Join,
    Leave,
    Link,
    Message,
    Welcome,
    open_listeners,
)
from mingle_hooks.run.planning import Agreed
from mingle_hooks.run.processes import Descriptor
from mingle_hooks.run.starters import Allocation, Launch, Place, Starter
from mingle_hooks.schedulers.hostlist import fold

# Where supervisors reach the runner: a TCP port, and a UDP port of the same number for signs of life.

Address = tuple[object, ...]

_TRIES = 64
# More than a few supervisors get their signs in so many parts of a second.
_FEW, _PARTS = 64, 10
# struct in_pktinfo is interface, source, destination; struct in6_pktinfo is address, interface.
_V4, _V6 = struct.Struct("@I4s4s"), struct.Struct("@16sI")
_IP_PKTINFO = getattr(socket, "IP_PKTINFO", 8)


class Sockets:
    """Listeners and datagram sockets of one port, in all families that this host has, or on loopback alone.

    The port is one of those `chosen`, else of the range, which a site's firewall may let through; on loopback it is the
    kernel's choice.
    """

    def __init__(
        self, *, is_local: bool, port_range: range = ports.DEFAULT_RANGE, chosen: tuple[int, ...] = ()
    ) -> None:
        if not chosen:
            chosen = (0,) * _TRIES if is_local else ports.candidates(os.urandom(16), _TRIES, port_range)
        self.port, sockets = open_listeners(chosen, (socket.SOCK_STREAM, socket.SOCK_DGRAM), is_local=is_local)
        if not self.port:
            seen = f"{len(chosen)} of {port_range.start}-{port_range.stop - 1} are taken"
            raise NetworkError("a free port for the supervisors", seen, "a wider --port-range")
        self.datagrams = [sock for sock in sockets if sock.type & socket.SOCK_DGRAM]
        self.listeners = [sock for sock in sockets if sock not in self.datagrams]
        for sock in self.datagrams:  # on which address a sign came: the answer has to come from there
            is_six = sock.family == socket.AF_INET6
            six, four = (socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO), (socket.IPPROTO_IP, _IP_PKTINFO)
            sock.setsockopt(*(six if is_six else four), 1)

    def close(self) -> None:
        """Close all."""
        for sock in (*self.listeners, *self.datagrams):
            sock.close()
        self.listeners, self.datagrams = [], []


class Pulses:
    """Gives signs to all that have given one, and calls `on_sign(number)` for each that is new.

    The runner's own signs do not wait for others': where packets are lost, only one of two would then come through.
    """

    def __init__(
        self,
        loop: Loop,
        datagrams: list[socket.socket],
        secret: Secret,
        on_sign: Callable[[int], None],
        interval_s: float = messages.INTERVAL_S,
    ) -> None:
        self._loop, self._interval_s, self._part = loop, interval_s, 0
        self._secret, self._tag, self._on_sign = secret, messages.heartbeat_tag(secret), on_sign
        self._latest: dict[int, int] = {}  # number -> sequence of its last sign
        self._ways: dict[int, tuple[socket.socket, Address, list[tuple[int, int, bytes]]]] = {}
        self._sent = 0
        for sock in datagrams:
            loop.watch(sock, READ, lambda _events, sock=sock: self._take(sock))  # type: ignore[misc]
        self._beat()

    def forget(self, number: int) -> None:
        """Forget a supervisor; the next of that number counts anew."""
        self._latest.pop(number, None)
        self._ways.pop(number, None)

    def ask(self, number: int) -> None:
        """Send a supervisor that is quiet a sign, which it may answer."""
        if number in self._ways:
            self._give(number)

    def _take(self, sock: socket.socket) -> None:
        while True:
            try:
                data, extra, _, where = sock.recvmsg(messages.BYTES + 1, 128)
            except BlockingIOError:
                return
            except OSError:  # what became of an earlier answer
                continue
            sign = messages.unpack_heartbeat(self._secret, self._tag, SUPERVISOR, data)
            if sign is None or sign.sequence <= self._latest.get(sign.number, 0):
                continue
            is_first = sign.number not in self._ways
            self._latest[sign.number] = sign.sequence
            self._ways[sign.number] = (sock, where, _from(extra))
            if is_first:
                self._give(sign.number)
            self._on_sign(sign.number)

    def _beat(self) -> None:
        """Give a sign to each, to many of them not all at once."""
        parts = _PARTS if len(self._ways) > _FEW else 1
        self._part += 1
        for number in [number for number in self._ways if number % parts == self._part % parts]:
            self._give(number)
        self._loop.after(self._interval_s / parts, self._beat)

    def _give(self, number: int) -> None:
        sock, where, extra = self._ways[number]
        self._sent += 1
        try:
            sock.sendmsg(
                [messages.pack_heartbeat(self._secret, self._tag, RUNNER, messages.Heartbeat(number, self._sent))],
                extra,
                0,
                where,
            )
        except OSError:  # the next may get through
            pass


def _from(extra: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """Return what makes an answer come from the address that was asked."""
    for level, kind, data in extra:
        if level == socket.IPPROTO_IP and kind == _IP_PKTINFO and len(data) == _V4.size:
            _, local, _ = _V4.unpack(data)
            return [(level, kind, _V4.pack(0, local, bytes(4)))]
        if level == socket.IPPROTO_IPV6 and kind == socket.IPV6_PKTINFO and len(data) == _V6.size:
            return [(level, kind, data)]
    return []


# Who has not said within this time, in seconds, who it is, is no supervisor; and so many may be here at once.
STRANGER_S, MOST_STRANGERS = 10.0, 4096
# Signs are looked for so often in the silence that is allowed, and at least each second; and once a silence has lasted
# as long as it may, though not for each of a thousand hosts that a switch has lost.
_LOOKS, _LONGEST_LOOK_S, _SHORTEST_LOOK_S = 6, 1.0, 0.1


class Supervisor:
    """One that is here: its two connections, and when it was last heard of."""

    __slots__ = ("control", "heard_at", "is_joined", "is_quiet", "output")

    def __init__(self, control: Link, now: float) -> None:
        self.control, self.heard_at = control, now
        self.output: Link | None = None
        self.is_joined = self.is_quiet = False


class Hub:
    """`on_event(event)` gets what supervisors say and what becomes of them, `on_output(place, kind, data)` output."""

    def __init__(
        self,
        loop: Loop,
        sockets: Sockets,
        secret: Secret,
        places: Sequence[Place],
        silence_s: float,
        on_event: Callable[[Event], None],
        on_output: Callable[[int, int, bytes], None],
    ) -> None:
        self._loop, self._sockets, self._secret, self._silence_s = loop, sockets, secret, silence_s
        self._on_event, self._on_output = on_event, on_output
        self._numbers = {place: number for number, place in enumerate(places)}
        self._strangers: dict[Link, float] = {}  # oldest first
        self._is_held = False
        self.here: dict[int, Supervisor] = {}
        self.pulses = Pulses(loop, sockets.datagrams, secret, self._sign, messages.heartbeat_interval_s(silence_s))
        Callers(loop, sockets.listeners, self._greet, self._make_room)
        self._look_s = min(silence_s / _LOOKS, _LONGEST_LOOK_S)
        self._looked_at = loop.clock()
        self._look()

    def send(self, place: int, kind: int, message: Message) -> None:
        """Tell a supervisor something, if it is here."""
        if place in self.here:
            self.here[place].control.send(kind, message)

    def hold(self, *, wanted: bool) -> None:
        """Stop reading output, or go on."""
        self._is_held = wanted
        for its in self.here.values():
            if its.output is not None:
                its.output.listen(wanted=not wanted)

    def drop(self, place: int) -> None:
        """Have done with a supervisor; another may come in its place."""
        its = self.here.pop(place, None)
        self.pulses.forget(place)
        for link in (its.control, its.output) if its is not None else ():
            if link is not None:
                link.close()

    def dismiss(self, status: int) -> None:
        """Let all supervisors go; nothing of them counts any more."""
        for place in self.here:
            self.send(place, LEAVE, Leave(status))

    def _greet(self, sock: socket.socket, _where: str) -> None:
        link = Link(self._loop, sock, self._secret, is_runner=True, on_end=lambda _reason: self._forget(link))
        link.on_message = lambda kind, body: self._introduced(link, kind, body)
        self._strangers[link] = self._loop.clock()
        if len(self._strangers) > MOST_STRANGERS:
            self._turn_away(next(iter(self._strangers)))

    def _make_room(self) -> bool:
        """Let the stranger go who has said nothing for longest, if there is one."""
        for link in self._strangers:
            self._turn_away(link)
            return True
        return False

    def _turn_away(self, link: Link) -> None:
        del self._strangers[link]
        link.close()

    def _forget(self, link: Link) -> None:
        self._strangers.pop(link, None)
        for place, its in [*self.here.items()]:
            if link in (its.control, its.output):
                self._lost(place, None)

    def _introduced(self, link: Link, kind: int, body: Body) -> None:
        """Take in who holds the key. Raises WireError for one who has no place here."""
        self._strangers.pop(link, None)
        join = parse(Join, body)
        place = self._numbers.get(Place(join.host, join.local))
        if kind != JOIN or place is None:
            raise WireError("no place")
        its = self.here.get(place)
        if join.is_output and its is not None and its.output is None:
            its.output, its.is_joined = link, True
            link.on_output = lambda kind, data: self._wrote(place, kind, data)
            link.listen(wanted=not self._is_held)
            self._on_event(Joined(place))
        elif not join.is_output and its is None:
            self.here[place] = Supervisor(link, self._loop.clock())
            link.on_message = lambda kind, body: self._said(place, kind, body)
            welcome = Welcome(place, self._sockets.port, int(self._silence_s * 1000))
            link.send(WELCOME, welcome)
        else:
            raise WireError("a second one")

    def _wrote(self, place: int, kind: int, data: bytes) -> None:
        self._sign(place)
        self._on_output(place, kind, data)

    def _said(self, place: int, kind: int, body: Body) -> None:
        self._sign(place)
        event: Event
        if kind == FORMED:
            event = Formed(place, *parse(messages.Formed, body))
        elif kind == ENDED:
            event = CommandEnded(place, parse(messages.Ended, body))
        elif kind == CLEAN:
            event = Clean(place, parse(messages.Clean, body).attempt)
        elif kind == NOTICED:
            event = Noticed(place, parse(messages.Noticed, body).signal)
        elif kind == STACKS:
            event = Stacks(place, *parse(messages.Stacks, body))
        else:
            raise WireError("not a supervisor's message")
        self._on_event(event)

    def _sign(self, place: int) -> None:
        its = self.here.get(place)
        if its is not None:
            its.heard_at = self._loop.clock()
            if its.is_quiet:
                its.is_quiet = False
                self._on_event(Heard(place))

    def _lost(self, place: int, silent_s: float | None) -> None:
        was_joined = self.here[place].is_joined
        self.drop(place)
        if was_joined:
            self._on_event(Lost(place, silent_s))

    def _look(self) -> None:
        """Look for those that are silent; a stop of this process is nobody else's silence."""
        now = self._loop.clock()
        late_s = max(now - self._looked_at - 2 * self._look_s, 0.0)
        self._looked_at = now
        next_s = self._look_s
        for place, its in [*self.here.items()]:
            its.heard_at += late_s
            silent_s = now - its.heard_at
            if silent_s >= self._silence_s:
                self._lost(place, silent_s)
                continue
            next_s = min(next_s, self._silence_s - silent_s)
            if silent_s > min(messages.ASK_S, self._silence_s / 2):
                self.pulses.ask(place)
                if not its.is_quiet:
                    its.is_quiet = True
                    self._on_event(Quiet(place))
        for link, since in [*self._strangers.items()]:
            if now - since > STRANGER_S:
                self._turn_away(link)
        self._loop.after(max(next_s, _SHORTEST_LOOK_S), self._look)


# The processes on this host that start supervisors elsewhere, and what they say.

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


# The runner's limit of open files, which is no other process's: Slurm's srun would hand it on to COMMAND.

# For each supervisor two connections, what its starter says, and its log; and for what is this process's own, with
# some strangers: where they are more, the oldest goes.
_EACH, _OTHERS = 4, 512


class Limit:
    """Raised for so many supervisors, as far as this user may."""

    def __init__(self, supervisors: int) -> None:
        self._own = resource.getrlimit(resource.RLIMIT_NOFILE)
        files.raise_open_files_limit(_EACH * supervisors + _OTHERS)
        self._raised = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._is_raised = self._raised != self._own

    def __enter__(self) -> None:
        """Go back to the user's own limit, which a process that is started now has, too."""
        self.give_back()

    def __exit__(self, *_error: object) -> None:
        if self._is_raised:
            resource.setrlimit(resource.RLIMIT_NOFILE, self._raised)

    def give_back(self) -> None:
        """Go back to the user's own limit."""
        if self._is_raised:
            resource.setrlimit(resource.RLIMIT_NOFILE, self._own)


# The environment that supervisors are started with.

# What an outer run says of itself to its own COMMAND.
_OUTER = ("MINGLE_RUN", "MINGLE_RUN_FORMED", "MINGLE_ATTEMPT")


def agents_environ(starter: Starter, iface: tuple[object, ...], run_id: str, key: bytes, port: int) -> dict[str, str]:
    """Return this process's own, and where the runner is to be reached with which key."""
    addresses = ["127.0.0.1"]
    if starter.name != "local":
        addresses = [its.host for its in usable(interfaces(), prefer=iface)]  # type: ignore[arg-type]
    outer = os.environ.get("MINGLE_RUN_ID")
    return {
        **{name: value for name, value in os.environ.items() if name not in _OUTER},
        "MINGLE_RUN_ID": f"{outer},{run_id}" if outer else run_id,
        messages.KEY: key.hex(),
        messages.AT: ",".join(f"{address} {port}" for address in addresses),
    }


class EnvironFile:
    """The file of the environment, where the starter needs one, while supervisors begin.

    It holds the run's key: who is killed later leaves none.
    """

    def __init__(self, starter: Starter, environ: Mapping[str, str]) -> None:
        self._starter, self._environ = starter, environ
        self._path: str | None = None

    def path(self) -> str | None:
        """Return where it is, None where the starter needs none. Raises PlaceError."""
        self._path = self._path or starters.environ_file(self._starter, self._environ)
        return self._path

    def forget(self) -> None:
        """Remove it, if it is there."""
        if self._path is not None:
            starters.remove_environ(self._path)
            self._path = None


# The way to the hosts: where supervisors reach the runner, what they are told, and what starts them.
#
# It comes first and alone: what the runner needs besides is loaded while the starters are at work.

_KEY_BYTES, _ID_BYTES = 32, 8
_CANNOT_START = 127
# So much longer may those hosts take to start that do see mingle's file, where others do not, in seconds.
_BLIND_S = 1.0
_SHARE = "a copy of it there, or a directory that all hosts see"


class Launching:
    """Starts one of our programs on hosts of a job, until close(). Two callbacks tell what comes of that.

    `on_said(data)` has what the starters write, `on_end(hosts, status, said)` each starter's end. They are called out
    of the loop only, and may be put in their place once something has been started.
    """

    def __init__(
        self,
        loop: Loop,
        starter: Starter,
        job: Allocation,
        program: str,
        *,
        iface: tuple[object, ...] = (),
        port_range: range,
        agreed: Agreed | None = None,
        told: Mapping[str, str] | None = None,
    ) -> None:
        self._loop, self._starter, self._job = loop, starter, job
        self._program = own_program_argv(program)
        self._file_path = self._program[2]
        self._unseen = f"can't open file {self._file_path!r}".encode()  # as Python says it
        self._blind: list[Process] = []  # starters that said so
        agreed = agreed or Agreed(os.urandom(_ID_BYTES).hex(), os.urandom(_KEY_BYTES), ())
        self.run, self.secret = agreed.run, Secret(agreed.key)
        self.on_said: Callable[[bytes], None] = lambda _said: None
        self.on_end: Callable[[tuple[str, ...], int, str], None] = lambda _hosts, _status, _said: None
        self._ahead: tuple[str, ...] | None = None
        self._limit = Limit(len(job.places))
        is_local = starter.name == "local"
        self.sockets = Sockets(is_local=is_local, port_range=port_range, chosen=agreed.ports)
        try:
            self.environ = agents_environ(starter, iface, agreed.run, agreed.key, self.sockets.port)
        except BaseException:
            self.sockets.close()
            raise
        self.environ |= told or {}
        self.processes = Processes(loop, self.environ, self._said, self._limit)
        self._file = EnvironFile(starter, self.environ)

    def start_ahead(self, hosts: tuple[str, ...]) -> None:
        """Start the program on hosts, for which start() will be called as the first thing. Raises as that does."""
        self.start(hosts)
        self._ahead = hosts

    def start(self, hosts: tuple[str, ...]) -> None:
        """Start the program on these hosts. Raises what the starter raises, and PlaceError for its file."""
        ahead, self._ahead = self._ahead, None
        if hosts == ahead:
            return
        file = self._file.path()
        for launch in starters.supervisors(self._starter, self._job, hosts, self._program, self.environ, file):
            try:
                self.processes.start(launch, self._ended)
            except OSError as wrong:
                self.cannot(launch.hosts, f"{launch.argv[0]}: {wrong.strerror}")

    def forget_file(self) -> None:
        """Remove the file of the environment, if there is one: nobody reads it any more."""
        self._file.forget()

    def close(self) -> None:
        """Leave nothing behind."""
        self.processes.kill(at_once=True)
        self.sockets.close()
        self._file.forget()
        self._limit.give_back()

    def cannot(self, hosts: tuple[str, ...], why: str) -> None:
        """Tell, as a starter would, that nothing can be started on these hosts."""

        def tell() -> None:
            self.on_said(f"mingle run: {why}\n".encode())
            self.on_end(hosts, _CANNOT_START, why)

        self._loop.after(0.0, tell)

    def _said(self, data: bytes) -> None:
        """Hand on what starters say, but for Python's own words of a program that a host does not see."""
        lines = data.splitlines(keepends=True)
        if rest := b"".join(line for line in lines if self._unseen not in line):
            self.on_said(rest)
        for process in self.processes.running:
            if self._unseen in process.said and process not in self._blind:
                if not self._blind:
                    self.on_said(f"mingle run: {self._why(process)}\n".encode())
                self._blind.append(process)
                self._loop.after(_BLIND_S, lambda process=process: self._give_up(process))  # type: ignore[misc]

    def _give_up(self, process: Process) -> None:
        """Count a starter as ended that goes on for those of its hosts that do see the program."""
        if process in self.processes.running:
            self._ended(process, _CANNOT_START)

    def _ended(self, process: Process, status: int) -> None:
        is_blind = self._unseen in process.said
        self.on_end(process.hosts, status, self._why(process) if is_blind else process.said.decode(errors="replace"))

    def _why(self, process: Process) -> str:
        where = process.hosts[0] if len(process.hosts) == 1 else f"some of {fold(process.hosts)}"
        return str(MissingError(f"mingle's file {self._file_path} on every host", f"no such file on {where}", _SHARE))


# The runner's signals: from before anything is started, each is a byte in a pipe, which its loop reads in time.

_HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)


def listen_for_signals() -> int:
    """Return the pipe's end; what is ignored stays ignored, as nohup(1) wants, but for the ends of children."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in _HEARD:
        if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGCHLD:
            signal.signal(number, lambda _number, _frame: None)
    return reading
