"""The messages between the runner and an agent: each is parsed into a bounded type.

::

    agent                                     runner
      JOIN      its host and place         →
                                           ←  WELCOME   its number, the port for heartbeats
                                           ←  START     attempt, rank, hosts, COMMAND
      FORMED    the world                  →
      ENDED     COMMAND's status, why      →
      CLEAN     nothing of it is left      →
      NOTICED   a signal reached the agent →
                                           ←  SIGNAL    pass it on, once
                                           ←  DUMP      take the stacks
      STACKS    the stacks                 →
                                           ←  END       TERM, the grace, KILL
                                           ←  LEAVE     exit with this status
      PING      no heartbeat has come      →
                                           ←  PONG      the answer; either side may ask

An agent has a second connection for COMMAND's output (OUT, ERR, DRAINED), so that a reader that stops reading delays no
message.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Annotated, Any, NamedTuple, Protocol

from mingle_hooks import values
from mingle_hooks.errors import UsageError, limit
from mingle_hooks.net.addresses import BACKLOG, is_hostname_or_address
from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.connection import Callers, Connection, Loop, Timer
from mingle_hooks.rendezvous.messages import Durations, View
from mingle_hooks.rendezvous.wire import Body, Secret, WireError, parse
from mingle_hooks.schedulers.facts import MOST_NODES, MOST_SLOTS
from mingle_hooks.values import number

# Kinds of frames; the first two come before the connection is sealed.
HELLO, CHALLENGE = 1, 2
JOIN, WELCOME, START, FORMED, ENDED, CLEAN, NOTICED, SIGNAL, END, LEAVE, DUMP, STACKS, PING, PONG = range(16, 30)
# On the second connection, after its own sealed JOIN: whole lines as they were written, and the end of an attempt's.
OUT, ERR, DRAINED = 32, 33, 34

# Variables of an agent, which COMMAND does not get: the run's key, and the runner's addresses.
KEY, AT = "MINGLE_RUN_KEY", "MINGLE_RUN_AT"

MOST_ATTEMPT = 10**6
MOST_MS = 7 * 24 * 3600 * 1000
MOST_SIGNAL = 64
# The last lines of a failed COMMAND.
MOST_TAIL = 8 * 1024
# Characters of the line of an exception.
MOST_EXCEPTION = 400
# In the exception of a program that another's failure has cut off or ended.
ECHO = re.compile(
    r"Connection (closed|reset) by peer|Broken pipe|DistNetworkError|ncclRemoteError|remote process|SignalException"
)
# COMMAND's arguments: Linux takes no longer ones, and not so many, as all have to fit into 6 MB (execve(2)).
MOST_ARGUMENTS, LONGEST_ARGUMENT = 1024 * 1024, 128 * 1024
MOST_SECONDS = 1 << 40

AttemptNumber = Annotated[int, wire.within(0, MOST_ATTEMPT)]
Milliseconds = Annotated[int, wire.within(0, MOST_MS)]
Port = Annotated[int, wire.within(1, 65535)]
SignalNumber = Annotated[int, wire.within(1, MOST_SIGNAL)]
Status = Annotated[int, wire.within(0, 255)]
Rank = Annotated[int, wire.within(0, MOST_NODES * MOST_SLOTS)]


def _argument(body: Body, name: str) -> str:
    """Return body[name], which execve(2) takes: text without NUL, no longer than the kernel's limit."""
    value = body.get(name)
    try:
        if isinstance(value, str) and "\0" not in value and len(os.fsencode(value)) < LONGEST_ARGUMENT:
            return value
    except UnicodeEncodeError:  # half of a pair that JSON writes for one character
        pass
    raise WireError(f"{name}: not words")


def _mapping(body: Body, name: str) -> Body:
    value = body.get(name)
    if not isinstance(value, dict):
        raise WireError(f"{name}: not an object")
    return value


def _environ(body: Body, name: str) -> Mapping[str, str]:
    variables = _mapping(body, name)
    if any(not variable or "=" in variable for variable in variables):
        raise WireError(f"{name}: not names of variables")
    for pair in variables.items():
        for value in pair:
            _argument({name: value}, name)
    return variables


def _directory(body: Body, name: str) -> str:
    path = _argument(body, name)
    if not path.startswith("/"):
        raise WireError(f"{name}: not a path")
    return path


def _seconds(body: Body, name: str) -> float:
    value = body.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= MOST_SECONDS:
        raise WireError(f"{name}: not seconds")
    return float(value)


def _host(body: Body, name: str) -> str:
    """Return body[name], a host as in --hosts. Raises WireError."""
    value = wire.text(body, name, 253)
    if not is_hostname_or_address(value):
        raise WireError(f"{name}: not a host")
    return value


Argv = Annotated[tuple[Annotated[str, _argument], ...], wire.Most(MOST_ARGUMENTS)]
Duration = Annotated[float, _seconds]
Host = Annotated[str, _host]


def _durations(body: Body, name: str) -> tuple[int, ...]:
    return tuple(parse(Durations, body[name])) if body.get(name) else ()


class Join(NamedTuple):
    """An agent that has come: its host's name as the scheduler writes it, and its number among the agents there."""

    host: Annotated[str, wire.host_name]
    local: Annotated[int, wire.within(0, MOST_SLOTS - 1)]
    pid: Annotated[int, wire.within(1, wire.MOST_PID)]
    is_output: Annotated[bool, wire.Key("output")]


class Silence(NamedTuple):
    """How long heartbeats may be missing: from a host that does not answer, and from a process on a host that does.

    The second is longer: the process may be stopped, by Ctrl-Z or by a file system that hangs, and go on later.
    """

    host_s: float = 15.0
    process_s: float = 600.0

    @property
    def probe_s(self) -> int:
        """How often the kernel asks the other kernel, in whole seconds: several times in a silence."""
        return max(1, min(5, int(self.host_s / 3)))

    @property
    def quiet_s(self) -> float:
        """After how many seconds a peer is quiet; after half of them it gets a PING."""
        return min(QUIET_S, self.host_s / 2)

    def is_over(self, silent_s: float, unacknowledged_s: float) -> bool:
        """Return whether the other side is lost, by its last heartbeat and its kernel's last acknowledgement."""
        does_host_answer = unacknowledged_s <= 2 * self.probe_s + 1
        return silent_s >= (self.process_s if does_host_answer else self.host_s)


class Welcome(NamedTuple):
    """A number, new for each agent, which its heartbeats carry, the runner's UDP port, and how long silences last."""

    number: Annotated[int, wire.within(0, (1 << 32) - 1)]
    port: Port
    silence_ms: Annotated[int, wire.Key("silence"), wire.within(100, MOST_MS)]
    pause_ms: Annotated[int, wire.Key("pause"), wire.within(100, MOST_MS)] = 600_000

    @property
    def silence(self) -> Silence:
        """How long the runner may be silent."""
        return Silence(self.silence_ms / 1000, self.pause_ms / 1000)


class Start(NamedTuple):
    """One attempt, for one agent.

    `facts` describe the attempt's world, for MINGLE_RUN (mingle_hooks/schedulers/facts.py); `options` are those of
    `mingle exec`; `grace_ms` is what COMMAND has after a signal to stop.
    """

    attempt: AttemptNumber
    facts: Annotated[Mapping[str, object], _mapping]
    options: Argv
    command: Argv
    environ: Annotated[Mapping[str, str], _environ]  # what differs from the agent's own
    directory: Annotated[str, _directory]
    umask: Annotated[int, wire.within(0, 0o777)]
    grace_ms: Milliseconds = 0


class Formed(NamedTuple):
    """The world has formed, and COMMAND begins; `durations` are its member's Durations, none for a member alone."""

    attempt: AttemptNumber
    nodes: Annotated[int, wire.within(1, MOST_NODES)]
    addr: Annotated[str, wire.printable_text(253)]
    port: Port
    durations: Annotated[tuple[int, ...], wire.Key("spent"), _durations] = ()


class Ended(NamedTuple):
    """COMMAND has ended: its status, or the signal that killed it; `formed` tells whether it ever began.

    `is_oom` is true if the kernel counted an OOM kill here; `tail` has the last lines that COMMAND wrote, and
    `exception` the line of the exception that ended it.
    """

    attempt: AttemptNumber
    status: Status
    signal: SignalNumber | None
    formed: bool
    is_oom: bool
    tail: Annotated[str, wire.any_text(MOST_TAIL)]
    exception: Annotated[str, wire.any_text(MOST_EXCEPTION)] = ""


class Clean(NamedTuple):
    """Nothing of an attempt is left on this host; `killed` processes got KILL."""

    attempt: AttemptNumber
    killed: Annotated[int, wire.within(0, 1 << 31)]


class Noticed(NamedTuple):
    """A signal reached the agent from outside: from the scheduler, or a person."""

    signal: SignalNumber


class Signal(NamedTuple):
    """Pass a signal on to COMMAND's processes that catch it, TERM to all of them; each id only once."""

    id: Annotated[int, wire.within(0, 1 << 31)]
    signal: SignalNumber


class End(NamedTuple):
    """End an attempt: TERM to all, KILL to what is left after the grace."""

    attempt: AttemptNumber
    grace_ms: Milliseconds


class Leave(NamedTuple):
    """Exit with this status: no message follows."""

    status: Status


# DUMP and STACKS: what COMMAND's Python processes are doing where no member writes any more.

# Of one agent.
MOST_STACKS = 64 * 1024


class Dump(NamedTuple):
    """Take the stacks of an attempt's processes, and send them within this time."""

    attempt: AttemptNumber
    within_ms: Milliseconds


class Stacks(NamedTuple):
    """The stacks, where they are written, or why there are none."""

    attempt: AttemptNumber
    text: Annotated[str, wire.any_text(MOST_STACKS)]


AgentMessage = Formed | Ended | Clean | Noticed | Stacks
RunnerMessage = Start | Signal | Dump | End | Leave
AGENT_MESSAGES: Mapping[int, type[AgentMessage]]
AGENT_MESSAGES = {FORMED: Formed, ENDED: Ended, CLEAN: Clean, NOTICED: Noticed, STACKS: Stacks}
RUNNER_MESSAGES: Mapping[int, type[RunnerMessage]]
RUNNER_MESSAGES = {START: Start, SIGNAL: Signal, DUMP: Dump, END: End, LEAVE: Leave}
_KINDS = {record: kind for kind, record in {JOIN: Join, WELCOME: Welcome, **AGENT_MESSAGES, **RUNNER_MESSAGES}.items()}


# One port in all address families that this host has, or on loopback alone.


def open_listeners(
    chosen: Iterable[int], kinds: Sequence[int] = (socket.SOCK_STREAM,), *, is_local: bool = False
) -> tuple[int, list[socket.socket]]:
    """Open the first of these ports that is free in each family and kind; return it and its sockets, or 0 and none.

    With port 0 the kernel chooses. Stream sockets listen. Raises LimitError.
    """
    families: list[tuple[int, str]] = [(socket.AF_INET, "127.0.0.1" if is_local else "0.0.0.0")]  # noqa: S104 - any network of the hosts
    if not is_local and socket.has_dualstack_ipv6():
        families.append((socket.AF_INET6, "::"))
    for port in chosen:
        opened: list[socket.socket] = []
        try:
            for family, address in families:
                for kind in kinds:
                    opened.append(socket.socket(family, kind))
                    port = _bound(opened[-1], address, port)  # noqa: PLW2901 - the kernel's choice is for all
        except OSError as error:
            for sock in opened:
                sock.close()
            if (short := limit(error)) is not None:
                raise short from None
        else:
            return port, opened
    return 0, []


def _bound(sock: socket.socket, address: str, port: int) -> int:
    sock.settimeout(0)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind((address, port))
    if sock.type & socket.SOCK_STREAM:
        sock.listen(BACKLOG)
    return int(sock.getsockname()[1])


# Heartbeats: one small datagram a second, both ways, that only holders of the run's key can create.
#
# A datagram is ``tag (8) | number (4) | sequence (8) | MAC (16)``. Lost ones cost nothing; over TCP heartbeats would
# wait behind its retransmissions, for more than 15 s where a third of the packets is lost. PING, over TCP, is for
# networks that drop UDP.

_FIELDS = struct.Struct("!8sIQ")
_TAG_BYTES, _MAC_BYTES = 8, 16
BYTES = _FIELDS.size + _MAC_BYTES
Control = list[tuple[int, int, bytes]]  # of recvmsg(2), such as the address that a datagram was sent to
_CONTROL_BYTES = 128
INTERVAL_S = 1.0
# Within the longest silence that is allowed there are at least so many heartbeats.
_HEARTBEATS_IN_SILENCE = 4
# So many are read before anything else gets its turn, as anybody can send datagrams without end.
_MOST_AT_ONCE = 256
# A peer that is silent for so long is quiet.
QUIET_S = 3.0


class Heartbeat(NamedTuple):
    """The number of WELCOME, and a sequence number that only grows, so that no old heartbeat counts."""

    number: int
    sequence: int


def heartbeat_interval_s(silence_s: float) -> float:
    """Return the time between two heartbeats where the peer is lost after such a silence."""
    return min(INTERVAL_S, silence_s / _HEARTBEATS_IN_SILENCE)


@lru_cache(maxsize=4)
def _tag(secret: Secret) -> bytes:
    """Return the prefix of all datagrams of a run, so that others are dropped without computing a MAC."""
    return secret.mac(b"run")[:_TAG_BYTES]


def pack_heartbeat(secret: Secret, side: bytes, heartbeat: Heartbeat) -> bytes:
    """Return a datagram of one side (RUNNER or AGENT)."""
    return secret.sealed(_FIELDS.pack(_tag(secret), *heartbeat), _MAC_BYTES, b"life", side)


def heartbeats(sock: socket.socket, secret: Secret, side: bytes) -> Iterator[tuple[Heartbeat, Control, Any]]:
    """Yield the heartbeats of one side that have come, each with its control messages and its sender's address."""
    for _ in range(_MOST_AT_ONCE):
        try:
            data, control, _, address = sock.recvmsg(BYTES + 1, _CONTROL_BYTES)
        except BlockingIOError:
            return
        except OSError:  # ICMP's answer to an earlier datagram
            continue
        if len(data) != BYTES or not data.startswith(_tag(secret)):
            continue
        if (fields := secret.opened(data, _MAC_BYTES, b"life", side)) is not None:
            yield Heartbeat(*_FIELDS.unpack(fields)[1:]), control, address


# One authenticated connection between the runner and an agent.
#
# The agent proves first that it holds the key: a peer that cannot seal a JOIN over both nonces learns nothing of the
# key, and is dropped. The frames of COMMAND's output are not sealed one by one, as a gigabyte would cost seconds.

RUNNER, AGENT = b"leader", b"member"
# START with an environment and a command; output comes in frames of some 100 KB.
MOST_FRAME_BYTES = 8 * 1024 * 1024
_OUTPUT = (OUT, ERR, DRAINED)


class Link(Connection):
    """A connection that hands over messages once both sides have proved that they hold the run's key.

    `on_message(kind, body)` gets sealed messages, `on_output(kind, data)` the output, which ends a connection without
    it. `on_proved()` comes on the agent's side when it may send.
    """

    def __init__(
        self, loop: Loop, sock: socket.socket, secret: Secret, *, is_runner: bool, on_end: Callable[[str], None]
    ) -> None:
        super().__init__(loop, sock, self._frame, on_end)
        self._nonce = os.urandom(wire.NONCE_BYTES)
        self._secret, self.is_runner = secret, is_runner
        self._sealer: wire.Sealer | None = None
        self._is_proved = False  # by a sealed frame of the other side
        self._is_pinged = False
        self.on_message: Callable[[int, Body], None] = lambda _kind, _body: None
        self.on_output: Callable[[int, bytes], None] | None = None
        self.on_proved: Callable[[], None] = lambda: None
        if not is_runner:
            self.send(wire.frame(HELLO, wire.encode({"nonce": self._nonce.hex()})))

    def send_message(self, kind: int, body: Body) -> None:
        """Send a sealed message; only once the other side is known."""
        if self._sealer is not None:
            self.send(self._sealer.seal(kind, wire.encode(body)))

    def send_record(self, record: Join | Welcome | AgentMessage | RunnerMessage) -> None:
        """Send a sealed message that is a record of this file."""
        self.send_message(_KINDS[type(record)], wire.body_of(record))

    def ping(self) -> None:
        """Ask the other side whether it is alive, and not again before it answers: it may be stopped for days."""
        if not self._is_pinged:
            self._is_pinged = True
            self.send_message(PING, {})

    def takes_ping(self, kind: int) -> bool:
        """Return whether a message is PING, which is answered here, or PONG."""
        if kind == PING:
            self.send_message(PONG, {})
        elif kind == PONG:
            self._is_pinged = False
        return kind in (PING, PONG)

    def send_output(self, kind: int, *parts: bytes | memoryview) -> None:
        """Send output as it is, in one wire.frame."""
        self.send(wire.HEADER.pack(sum(map(len, parts)), kind), *parts)

    def _frame(self, kind: int, payload: bytes) -> None:
        if self._sealer is None:
            self._greet(kind, payload)
        elif kind in _OUTPUT and self._is_proved and self.on_output is not None:
            self.on_output(kind, payload)
        else:
            body = self._sealer.open(kind, payload)
            self._is_proved, self.most_bytes = True, MOST_FRAME_BYTES
            self.on_message(kind, body)

    def _greet(self, kind: int, payload: bytes) -> None:
        """Take the other side's nonce; the first sealed frame proves the rest."""
        if kind != (HELLO if self.is_runner else CHALLENGE):
            raise WireError("not a greeting")
        theirs = wire.hexadecimal(wire.decode(payload), "nonce", wire.NONCE_BYTES)
        if self.is_runner:
            self._sealer = wire.Sealer(self._secret, theirs, self._nonce, RUNNER, AGENT)
            self.send(wire.frame(CHALLENGE, wire.encode({"nonce": self._nonce.hex()})))
        else:
            self._sealer = wire.Sealer(self._secret, self._nonce, theirs, AGENT, RUNNER)
            self.most_bytes = MOST_FRAME_BYTES
            self.on_proved()


# Seconds that a caller may stay without being admitted.
STRANGER_S = 10.0
# Callers that are not admitted, beside those that are awaited: half of what launching.Limit has for more than agents,
# as log files and programs to start need descriptors too.
MOST_STRANGERS = 256


class _Connection(Protocol):
    def close(self) -> None: ...


class Strangers:
    """Connections that anybody may open: none stays for long, and the oldest of more than `most` are closed."""

    def __init__(self, loop: Loop, most: int) -> None:
        self._loop, self.most = loop, most
        self._ends: dict[_Connection, Timer] = {}  # oldest first

    def add(self, connection: _Connection) -> None:
        """Close a connection after STRANGER_S, unless it is let stay."""
        self._ends[connection] = self._loop.after(STRANGER_S, lambda: self.drop(connection))
        while len(self._ends) > self.most:
            self.drop_oldest()

    def let_stay(self, connection: _Connection) -> None:
        """Leave a connection to its owner."""
        self._ends.pop(connection, Timer()).cancel()

    def drop(self, connection: _Connection) -> None:
        """Close a connection."""
        self.let_stay(connection)
        connection.close()

    def drop_oldest(self) -> bool:
        """Close the oldest; return whether there was one."""
        oldest = next(iter(self._ends), None)
        if oldest is not None:
            self.drop(oldest)
        return oldest is not None

    def close(self) -> None:
        """Close all."""
        while self.drop_oldest():
            pass


class Reception:
    """Accepts holders of a key, who are strangers until they are admitted.

    `on_message(link, kind, body)` gets what callers say, `on_end(link, reason)` comes when any of these connections
    ends. `close()` closes the listeners and all callers that are not admitted; the owner closes the others.
    """

    def __init__(self, loop: Loop, on_message: Callable[[Link, int, Body], None], most: int) -> None:
        self._loop, self._on_message = loop, on_message
        self.on_end: Callable[[Link, str], None] = lambda _link, _reason: None
        self.strangers = Strangers(loop, most)
        self._callers: list[Callers] = []

    def listen(self, listeners: Sequence[socket.socket], secret: Secret) -> None:
        """Accept holders of this key at these sockets, which then belong to this object."""
        greet = partial(self._greet, secret)
        self._callers.append(Callers(self._loop, listeners, greet, self.strangers.drop_oldest))

    def admit(self, link: Link) -> None:
        """Let a caller stay."""
        self.strangers.let_stay(link)

    def close(self) -> None:
        """Close the listeners and the connections of all who are not admitted."""
        for callers in self._callers:
            callers.close()
        self.strangers.close()

    def _greet(self, secret: Secret, sock: socket.socket, _where: str) -> None:
        link = Link(self._loop, sock, secret, is_runner=True, on_end=lambda reason: self._ended(link, reason))
        link.on_message = lambda kind, body: self._on_message(link, kind, body)
        self.strangers.add(link)

    def _ended(self, link: Link, reason: str) -> None:
        self.admit(link)
        self.on_end(link, reason)


# `mingle exec` reports its world to the agent that started it, just before it becomes COMMAND.

MOST_FORMED_BYTES = 4096


def report_formed(descriptor: str, view: View) -> None:
    """Write the world to the pipe of this number, and close it. Raises UsageError."""
    pipe = number(descriptor, least=3, most=1 << 20) or -1
    address = {"addr": view.world.master_addr, "port": view.world.master_port}
    world = {"nodes": view.world.nodes or 1, **address, "spent": view.durations_ms}
    try:
        os.write(pipe, values.to_json(world).encode())
        os.close(pipe)
    except OSError:
        raise UsageError("an agent's pipe", f"none in MINGLE_RUN_FORMED={descriptor}", "to unset it") from None
