"""What the runner and a supervisor say to each other: each message parsed into a bounded type.

::

    supervisor                                runner
      JOIN      who I am                   →
                                           ←  WELCOME   your number, where to send signs of life
                                           ←  START     attempt, rank, hosts, COMMAND
      FORMED    the world                  →
      ENDED     COMMAND's status, why      →
      CLEAN     nothing of it is left      →
      NOTICED   a signal reached me        →
                                           ←  SIGNAL    pass it on, once
                                           ←  DUMP      take the stacks
      STACKS    what they are             →
                                           ←  END       TERM, the grace, KILL
                                           ←  LEAVE     exit with this status

A supervisor has a second connection for COMMAND's output (OUT, ERR, DRAINED), so that a reader who stops reading
holds up no word of these.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from mingle_hooks import values
from mingle_hooks.errors import UsageError, limit
from mingle_hooks.net import ports
from mingle_hooks.rendezvous.connection import Connection, Loop
from mingle_hooks.rendezvous.messages import Durations
from mingle_hooks.rendezvous.wire import (
    HEADER,
    MOST_PID,
    NONCE_BYTES,
    Body,
    Key,
    Sealer,
    Secret,
    WireError,
    any_text,
    body_of,
    decode,
    encode,
    frame,
    hexadecimal,
    host_name,
    parse,
    printable_text,
    within,
)
from mingle_hooks.schedulers.facts import MOST_NODES, MOST_SLOTS
from mingle_hooks.values import number
from mingle_hooks.world import View

# Kinds of frames; the first two are of no sealed connection yet.
HELLO, CHALLENGE = 1, 2
JOIN, WELCOME, START, FORMED, ENDED, CLEAN, NOTICED, SIGNAL, END, LEAVE, DUMP, STACKS = range(16, 28)
# Of the second connection, after its own sealed JOIN: whole lines as they were written, and the end of an attempt's.
OUT, ERR, DRAINED = 32, 33, 34

# Where a supervisor finds the runner: in its environment, and not in COMMAND's.
KEY, AT = "MINGLE_RUN_KEY", "MINGLE_RUN_AT"

MOST_ATTEMPT = 10**6
MOST_MS = 7 * 24 * 3600 * 1000
MOST_SIGNAL = 64
# The last lines of a failed COMMAND.
MOST_TAIL = 8 * 1024
# COMMAND with its words, and the directory; Linux takes no longer words.
MOST_WORDS, LONGEST_WORD = 64 * 1024, 128 * 1024

AttemptNumber = Annotated[int, within(0, MOST_ATTEMPT)]
Milliseconds = Annotated[int, within(0, MOST_MS)]
Port = Annotated[int, within(1, 65535)]
SignalNumber = Annotated[int, within(1, MOST_SIGNAL)]
Status = Annotated[int, within(0, 255)]


def _is_word(word: object) -> bool:
    """Tell whether execve(2) takes it: text without NUL, of no more than the kernel's length."""
    return isinstance(word, str) and "\0" not in word and len(word) < LONGEST_WORD


def _words(body: Body, name: str) -> tuple[str, ...]:
    words = body.get(name)
    if not isinstance(words, list) or len(words) > MOST_WORDS or not all(_is_word(word) for word in words):
        raise WireError(f"{name}: not words")
    return tuple(words)


def _mapping(body: Body, name: str) -> Body:
    found = body.get(name)
    if not isinstance(found, dict):
        raise WireError(f"{name}: not an object")
    return found


def _environ(body: Body, name: str) -> Mapping[str, str]:
    found = _mapping(body, name)
    if not all(_is_word(word) for pair in found.items() for word in pair):
        raise WireError(f"{name}: not words")
    return found


def _directory(body: Body, name: str) -> str:
    found = body.get(name)
    if not isinstance(found, str) or not _is_word(found) or not found.startswith("/"):
        raise WireError(f"{name}: not a path")
    return found


def _spent(body: Body, name: str) -> tuple[int, ...]:
    return tuple(parse(Durations, body[name])) if body.get(name) else ()


class Join(NamedTuple):
    """Who has come: a supervisor, by its host's name as the scheduler says it, and its place among those there."""

    host: Annotated[str, host_name]
    local: Annotated[int, within(0, MOST_SLOTS - 1)]
    pid: Annotated[int, within(1, MOST_PID)]
    is_output: Annotated[bool, Key("output")]


class Welcome(NamedTuple):
    """A supervisor's number, which its signs of life carry, the runner's UDP port, and how long a silence may last."""

    number: Annotated[int, within(0, 1 << 24)]
    port: Port
    silence_ms: Annotated[int, Key("silence"), within(100, MOST_MS)]


class Start(NamedTuple):
    """One attempt, for one supervisor.

    `facts` is what the attempt's world is, for MINGLE_RUN (mingle_hooks/schedulers/run.py); `options` are those of
    `mingle exec`.
    """

    attempt: AttemptNumber
    facts: Annotated[Mapping[str, object], _mapping]
    options: Annotated[tuple[str, ...], _words]
    command: Annotated[tuple[str, ...], _words]
    environ: Annotated[Mapping[str, str], _environ]  # what differs from the supervisor's own
    directory: Annotated[str, _directory]
    umask: Annotated[int, within(0, 0o777)]


class Formed(NamedTuple):
    """The world has formed, and COMMAND begins; `spent` is what its member needed for that, empty for one alone."""

    attempt: AttemptNumber
    nodes: Annotated[int, within(1, MOST_NODES)]
    addr: Annotated[str, printable_text(253)]
    port: Port
    spent: Annotated[tuple[int, ...], _spent] = ()


class Ended(NamedTuple):
    """COMMAND has ended: its status, or the signal that it died of; `formed` tells whether it ever began.

    `is_oom` where the kernel's counter says that memory ran out here; `tail` the last lines that it wrote.
    """

    attempt: AttemptNumber
    status: Status
    signal: SignalNumber | None
    formed: bool
    is_oom: bool
    tail: Annotated[str, any_text(MOST_TAIL)]


class Clean(NamedTuple):
    """Nothing of an attempt is left on this host: `killed` processes had to be."""

    attempt: AttemptNumber
    killed: Annotated[int, within(0, 1 << 31)]


class Noticed(NamedTuple):
    """A signal reached the supervisor from outside: the scheduler's, or a person's."""

    signal: SignalNumber


class Signal(NamedTuple):
    """Pass a signal on to those of COMMAND's processes that catch it, TERM to all; each id only once."""

    id: Annotated[int, within(0, 1 << 31)]
    signal: SignalNumber


class End(NamedTuple):
    """End an attempt: TERM to all, KILL to what is left after the grace."""

    attempt: AttemptNumber
    grace_ms: Milliseconds


class Leave(NamedTuple):
    """Exit with this status: all has been said."""

    status: Status


# One port in all address families that this host has, or on loopback alone.


def open_listeners(
    chosen: Iterable[int], kinds: Sequence[int] = (socket.SOCK_STREAM,), *, is_local: bool = False
) -> tuple[int, list[socket.socket]]:
    """Open the first of these ports that is free in each family and kind; return it and its sockets, or 0 and none.

    Port 0 is one of the kernel's choice. What is a stream listens. Raises LimitError.
    """
    families: list[tuple[int, str]] = [(socket.AF_INET, "127.0.0.1" if is_local else "0.0.0.0")]  # noqa: S104 - any network of the hosts
    if not is_local and ports.has_ipv6():
        families.append((socket.AF_INET6, "::"))
    for port in chosen:
        kept: list[socket.socket] = []
        try:
            for family, address in families:
                for kind in kinds:
                    kept.append(socket.socket(family, kind))
                    port = _bound(kept[-1], address, port)  # noqa: PLW2901 - the kernel's choice is that of all
        except OSError as error:
            for sock in kept:
                sock.close()
            if (short := limit(error)) is not None:
                raise short from None
        else:
            return port, kept
    return 0, []


def _bound(sock: socket.socket, address: str, port: int) -> int:
    sock.settimeout(0)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind((address, port))
    if sock.type & socket.SOCK_STREAM:
        sock.listen(ports.BACKLOG)
    return int(sock.getsockname()[1])


# Signs of life: one small datagram a second, both ways, that only holders of the run's key can make.
#
# A datagram is ``tag (8) | number (4) | sequence (8) | MAC (16)``. Lost ones cost nothing; TCP's own signs would wait
# behind its retransmissions, for more than 15 s where a third of the packets is lost.

_FIELDS = struct.Struct("!8sIQ")
_TAG_BYTES, _MAC_BYTES = 8, 16
BYTES = _FIELDS.size + _MAC_BYTES
INTERVAL_S = 1.0
# Where the allowed silence is short, so many signs are given in it.
_SIGNS_IN_SILENCE = 4
# A peer that is silent for so long is asked.
ASK_S = 3.0


class Heartbeat(NamedTuple):
    """A sign of life: a supervisor's number, and a sequence number that only grows, so that no old one counts."""

    number: int
    sequence: int


def heartbeat_tag(secret: Secret) -> bytes:
    """Return what all datagrams of a run begin with."""
    return secret.mac(b"run")[:_TAG_BYTES]


def heartbeat_interval_s(silence_s: float) -> float:
    """Return the time between two signs where a silence of so long ends all."""
    return min(INTERVAL_S, silence_s / _SIGNS_IN_SILENCE)


def pack_heartbeat(secret: Secret, tag: bytes, side: bytes, sign: Heartbeat) -> bytes:
    """Return a datagram of one side (link.RUNNER or link.SUPERVISOR)."""
    return secret.sealed(_FIELDS.pack(tag, *sign), _MAC_BYTES, b"life", side)


def unpack_heartbeat(secret: Secret, tag: bytes, side: bytes, data: bytes) -> Heartbeat | None:
    """Return what one side said; None for what it did not."""
    if len(data) != BYTES or not data.startswith(tag):
        return None
    fields = secret.opened(data, _MAC_BYTES, b"life", side)
    if fields is None:
        return None
    _, number, sequence = _FIELDS.unpack(fields)
    return Heartbeat(number, sequence)


# One proven connection between the runner and a supervisor.
#
# The supervisor proves first: who cannot seal a JOIN over both nonces learns nothing of the key, and is dropped. The
# frames of COMMAND's output are not sealed one by one, as a gigabyte of them would cost seconds.

RUNNER, SUPERVISOR = b"leader", b"member"
# START with an environment and a command; output comes in frames of some 100 KB.
MOST_FRAME_BYTES = 8 * 1024 * 1024
_OUTPUT = (OUT, ERR, DRAINED)


Message = Body | tuple[Any, ...]  # a record of this file, or what has none


class Link:
    """A connection that hands over messages once both sides have proved that they hold the run's key.

    `on_message(kind, body)` gets what was sealed, `on_output(kind, data)` the output; `on_end(reason)` comes once
    where the other side or the network ended it. `on_proved()` comes on the supervisor's side when it may speak.
    """

    __slots__ = (
        *("_connection", "_is_proved", "_nonce", "_sealer", "_secret"),
        *("is_runner", "on_message", "on_output", "on_proved"),
    )

    def __init__(
        self, loop: Loop, sock: socket.socket, secret: Secret, *, is_runner: bool, on_end: Callable[[str], None]
    ) -> None:
        self._connection = Connection(loop, sock, self._frame, on_end)
        self._nonce = os.urandom(NONCE_BYTES)
        self._secret, self.is_runner = secret, is_runner
        self._sealer: Sealer | None = None
        self._is_proved = False  # by a sealed frame of the other side
        self.on_message: Callable[[int, Body], None] = lambda _kind, _body: None
        self.on_output: Callable[[int, bytes], None] = lambda _kind, _data: None
        self.on_proved: Callable[[], None] = lambda: None
        if not is_runner:
            self._connection.send(frame(HELLO, encode({"nonce": self._nonce.hex()})))

    @property
    def closed(self) -> bool:
        """Whether the connection is gone."""
        return self._connection.closed

    @property
    def waiting_bytes(self) -> int:
        """How much has not been taken by the kernel yet."""
        return self._connection.waiting_bytes

    def send(self, kind: int, message: Message) -> None:
        """Send a sealed message; only once the other side is known."""
        if self._sealer is not None:
            body = message if isinstance(message, dict) else body_of(message)
            self._connection.send(self._sealer.seal(kind, encode(body)))

    def send_output(self, kind: int, *parts: bytes | memoryview) -> None:
        """Send output as it is, in one frame."""
        self._connection.send(HEADER.pack(sum(map(len, parts)), kind), *parts)

    def tell_of_room(self, call: Callable[[], None]) -> None:
        """Call each time when less is waiting than before."""
        self._connection.on_room = call

    def listen(self, *, wanted: bool) -> None:
        """Go on reading what the other side sends, or leave it with the kernel for now."""
        self._connection.listen(wanted=wanted)

    def close(self) -> None:
        """Close now; on_end will not come."""
        self._connection.close()

    def _frame(self, kind: int, payload: bytes) -> None:
        if self._sealer is None:
            self._greet(kind, payload)
        elif kind in _OUTPUT and self.is_runner and self._is_proved:
            self.on_output(kind, payload)
        else:
            body = self._sealer.open(kind, payload)
            self._is_proved, self._connection.most_bytes = True, MOST_FRAME_BYTES
            self.on_message(kind, body)

    def _greet(self, kind: int, payload: bytes) -> None:
        """Take the other side's nonce; the first sealed frame proves the rest."""
        if kind != (HELLO if self.is_runner else CHALLENGE):
            raise WireError("not a greeting")
        theirs = hexadecimal(decode(payload), "nonce", NONCE_BYTES)
        if self.is_runner:
            self._sealer = Sealer(self._secret, theirs, self._nonce, RUNNER, SUPERVISOR)
            self._connection.send(frame(CHALLENGE, encode({"nonce": self._nonce.hex()})))
        else:
            self._sealer = Sealer(self._secret, self._nonce, theirs, SUPERVISOR, RUNNER)
            self._connection.most_bytes = MOST_FRAME_BYTES
            self.on_proved()


# DUMP and STACKS: where nobody writes any more, what COMMAND's Python processes are doing.

# Of one supervisor.
MOST_STACKS = 64 * 1024


class Dump(NamedTuple):
    """Take the stacks of an attempt's processes, and answer within this time."""

    attempt: AttemptNumber
    within_ms: Milliseconds


class Stacks(NamedTuple):
    """The stacks, or where they are, or why there are none."""

    attempt: AttemptNumber
    text: Annotated[str, any_text(MOST_STACKS)]


# How `mingle exec` tells the supervisor that started it of the world, just before it becomes COMMAND.

MOST_FORMED_BYTES = 4096


def tell_formed(descriptor: str, view: View) -> None:
    """Write the world to the pipe of this number, and close it. Raises UsageError."""
    pipe = number(descriptor, least=3, most=1 << 20)
    where = {"addr": view.world.master_addr, "port": view.world.master_port}
    world = {"nodes": view.world.nodes or 1, **where, "spent": view.spent}
    try:
        os.write(-1 if pipe is None else pipe, values.to_json(world).encode())
        os.close(-1 if pipe is None else pipe)
    except OSError:
        raise UsageError("a supervisor's pipe", f"none in MINGLE_RUN_FORMED={descriptor}", "to unset it") from None
