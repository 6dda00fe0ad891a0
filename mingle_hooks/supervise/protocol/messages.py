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

from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.fabric.machine import is_hostname
from mingle_hooks.rendezvous.protocol.spent import Spent
from mingle_hooks.rendezvous.protocol.wire import WireError, integer, optional_integer, text
from mingle_hooks.schedulers.facts import MOST_NODES, MOST_SLOTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mingle_hooks.rendezvous.protocol.wire import Body

# Kinds of frames; the first two are of no sealed connection yet.
HELLO, CHALLENGE = 1, 2
JOIN, WELCOME, START, FORMED, ENDED, CLEAN, NOTICED, SIGNAL, END, LEAVE, DUMP, STACKS = range(16, 28)
# Of the second connection, after its own sealed JOIN: whole lines as they were written, and the end of an attempt's.
OUT, ERR, DRAINED = 32, 33, 34

MOST_ATTEMPT = 10**6
MOST_MS = 7 * 24 * 3600 * 1000
MOST_SIGNAL = 64
# The last lines of a failed COMMAND.
MOST_TAIL = 8 * 1024
# COMMAND with its words, and the directory; Linux takes no longer words.
MOST_WORDS, LONGEST_WORD = 64 * 1024, 128 * 1024


class Join(NamedTuple):
    """Who has come: a supervisor, by its host's name as the scheduler says it, and its place among those there."""

    host: str
    local: int
    pid: int
    is_output: bool

    def body(self) -> Body:
        """Return what travels."""
        return {"host": self.host, "local": self.local, "pid": self.pid, "output": self.is_output}

    @classmethod
    def parse(cls, body: Body) -> Join:
        """Return what came. Raises WireError."""
        return cls(
            host(body, "host"),
            integer(body, "local", 0, MOST_SLOTS - 1),
            integer(body, "pid", 1, (1 << 31) - 1),
            body.get("output") is True,
        )


class Welcome(NamedTuple):
    """A supervisor's number, which its signs of life carry, the runner's UDP port, and how long a silence may last."""

    number: int
    port: int
    silence_ms: int

    def body(self) -> Body:
        """Return what travels."""
        return {"number": self.number, "port": self.port, "silence": self.silence_ms}

    @classmethod
    def parse(cls, body: Body) -> Welcome:
        """Return what came. Raises WireError."""
        return cls(
            integer(body, "number", 0, 1 << 24),
            integer(body, "port", 1, 65535),
            integer(body, "silence", 100, MOST_MS),
        )


class Start(NamedTuple):
    """One attempt, for one supervisor.

    `facts` is what the attempt's world is, for MINGLE_RUN (mingle_hooks/schedulers/run.py); `options` are those of
    `mingle exec`.
    """

    attempt: int
    facts: Mapping[str, object]
    options: tuple[str, ...]
    command: tuple[str, ...]
    environ: Mapping[str, str]  # what differs from the supervisor's own
    directory: str
    umask: int

    def body(self) -> Body:
        """Return what travels."""
        return {**self._asdict(), "options": [*self.options], "command": [*self.command]}

    @classmethod
    def parse(cls, body: Body) -> Start:
        """Return what came. Raises WireError."""
        facts, environ, directory = body.get("facts"), body.get("environ"), body.get("directory")
        if not isinstance(facts, dict) or not isinstance(environ, dict):
            raise WireError("facts, environ: not objects")
        if not all(_is_word(word) for pair in environ.items() for word in pair):
            raise WireError("environ: not words")
        if not isinstance(directory, str) or not _is_word(directory) or not directory.startswith("/"):
            raise WireError("directory: not a path")
        return cls(
            attempt=_attempt(body),
            facts=facts,
            options=_words(body, "options"),
            command=_words(body, "command"),
            environ=environ,
            directory=directory,
            umask=integer(body, "umask", 0, 0o777),
        )


class Formed(NamedTuple):
    """The world has formed, and COMMAND begins; `spent` is what its member needed for that, empty for one alone."""

    attempt: int
    nodes: int
    addr: str
    port: int
    spent: tuple[int, ...] = ()

    def body(self) -> Body:
        """Return what travels."""
        return dict(self._asdict())

    @classmethod
    def parse(cls, body: Body) -> Formed:
        """Return what came. Raises WireError."""
        return cls(
            _attempt(body),
            integer(body, "nodes", 1, MOST_NODES),
            text(body, "addr", 253),
            integer(body, "port", 1, 65535),
            tuple(Spent.parse(body["spent"])) if body.get("spent") else (),
        )


class Ended(NamedTuple):
    """COMMAND has ended: its status, or the signal that it died of; `formed` tells whether it ever began.

    `is_oom` where the kernel's counter says that memory ran out here; `tail` the last lines that it wrote.
    """

    attempt: int
    status: int
    signal: int | None
    formed: bool
    is_oom: bool
    tail: str

    def body(self) -> Body:
        """Return what travels."""
        return {**self._asdict(), "tail": self.tail[-MOST_TAIL:]}

    @classmethod
    def parse(cls, body: Body) -> Ended:
        """Return what came. Raises WireError."""
        tail = body.get("tail")
        if not isinstance(tail, str) or len(tail) > MOST_TAIL:
            raise WireError("tail: not text")
        return cls(
            _attempt(body),
            integer(body, "status", 0, 255),
            optional_integer(body, "signal", 1, MOST_SIGNAL),
            body.get("formed") is True,
            body.get("is_oom") is True,
            tail,
        )


class Clean(NamedTuple):
    """Nothing of an attempt is left on this host: `killed` processes had to be."""

    attempt: int
    killed: int

    def body(self) -> Body:
        """Return what travels."""
        return dict(self._asdict())

    @classmethod
    def parse(cls, body: Body) -> Clean:
        """Return what came. Raises WireError."""
        return cls(_attempt(body), integer(body, "killed", 0, 1 << 31))


class Noticed(NamedTuple):
    """A signal reached the supervisor from outside: the scheduler's, or a person's."""

    signal: int

    def body(self) -> Body:
        """Return what travels."""
        return dict(self._asdict())

    @classmethod
    def parse(cls, body: Body) -> Noticed:
        """Return what came. Raises WireError."""
        return cls(integer(body, "signal", 1, MOST_SIGNAL))


class Signal(NamedTuple):
    """Pass a signal on to those of COMMAND's processes that catch it, TERM to all; each id only once."""

    id: int
    signal: int

    def body(self) -> Body:
        """Return what travels."""
        return dict(self._asdict())

    @classmethod
    def parse(cls, body: Body) -> Signal:
        """Return what came. Raises WireError."""
        return cls(integer(body, "id", 0, 1 << 31), integer(body, "signal", 1, MOST_SIGNAL))


class End(NamedTuple):
    """End an attempt: TERM to all, KILL to what is left after the grace."""

    attempt: int
    grace_ms: int

    def body(self) -> Body:
        """Return what travels."""
        return dict(self._asdict())

    @classmethod
    def parse(cls, body: Body) -> End:
        """Return what came. Raises WireError."""
        return cls(_attempt(body), integer(body, "grace_ms", 0, MOST_MS))


class Leave(NamedTuple):
    """Exit with this status: all has been said."""

    status: int

    def body(self) -> Body:
        """Return what travels."""
        return dict(self._asdict())

    @classmethod
    def parse(cls, body: Body) -> Leave:
        """Return what came. Raises WireError."""
        return cls(integer(body, "status", 0, 255))


def host(body: Body, name: str) -> str:
    """Return body[name], a host's name. Raises WireError."""
    found = text(body, name, 253)
    if not is_hostname(found):
        raise WireError(f"{name}: not a host name")
    return found


def _attempt(body: Body) -> int:
    return integer(body, "attempt", 0, MOST_ATTEMPT)


def _is_word(word: object) -> bool:
    """Tell whether execve(2) takes it: text without NUL, of no more than the kernel's length."""
    return isinstance(word, str) and "\0" not in word and len(word) < LONGEST_WORD


def _words(body: Body, name: str) -> tuple[str, ...]:
    words = body.get(name)
    if not isinstance(words, list) or len(words) > MOST_WORDS or not all(_is_word(word) for word in words):
        raise WireError(f"{name}: not words")
    return tuple(words)
