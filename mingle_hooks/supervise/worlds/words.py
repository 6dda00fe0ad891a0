"""What is asked of a runner, and what it answers: each message parsed into a bounded type.

::

    asker                                     runner
      ASK    what it is like now           →
                                           ←  STATE   how it does
      KILL   end                           →
                                           ←  ENDING  it will
                                           ←  GONE    with which status; then nobody is there any more

The two prove to each other that they hold one of the user's keys, as a supervisor and its runner do (protocol/link.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.fabric.machine import is_hostname_or_address
from mingle_hooks.rendezvous.protocol.attempt import Secret
from mingle_hooks.rendezvous.protocol.wire import WireError, integer, optional_integer, text
from mingle_hooks.schedulers.facts import LONGEST_ID, MOST_NODES, MOST_SLOTS
from mingle_hooks.supervise.protocol.messages import MOST_ATTEMPT, MOST_SIGNAL, MOST_TAIL

if TYPE_CHECKING:
    from typing import Any

    from mingle_hooks.rendezvous.protocol.wire import Body

# Kinds of frames, after those of protocol/messages.py.
ASK, STATE, KILL, ENDING, GONE = range(48, 53)

STATES = ("gathering", "forming", "running", "ending", "waiting to restart")
# Of a node: missing, it is awaited or has been given up; waiting, it is here without COMMAND.
NODE_STATES = ("missing", "waiting", "forming", "running", "ended", "lost")
LONGEST_COMMAND = 200
MOST_SECONDS = 1 << 40
_TAG_BYTES = 8
_KINDS = ("ended", "unformed", "silent", "gone", "absent", "stalled")


def secret(material: bytes, run_id: str) -> Secret:
    """Return the secret of questions to one run: of no use for another, nor for a world or a supervisor."""
    return Secret(Secret(material).mac(b"questions", run_id.encode()))


def tag(its: Secret) -> str:
    """Return what tells which key a secret is of, to those who hold it, and nothing to others."""
    return its.mac(b"which")[:_TAG_BYTES].hex()


class Ask(NamedTuple):
    """What is it like? With `is_whole` each node is told, too."""

    is_whole: bool

    def body(self) -> Body:
        """Return what travels."""
        return {"whole": self.is_whole}

    @classmethod
    def parse(cls, body: Body) -> Ask:
        """Return what came."""
        return cls(body.get("whole") is True)


class Kill(NamedTuple):
    """End, as for TERM; `is_now` as for a second Ctrl-C."""

    is_now: bool

    def body(self) -> Body:
        """Return what travels."""
        return {"now": self.is_now}

    @classmethod
    def parse(cls, body: Body) -> Kill:
        """Return what came."""
        return cls(body.get("now") is True)


class Gone(NamedTuple):
    """Nothing of the run is left but the process that says so, which exits with this status."""

    status: int

    def body(self) -> Body:
        """Return what travels."""
        return dict(self._asdict())

    @classmethod
    def parse(cls, body: Body) -> Gone:
        """Return what came. Raises WireError."""
        return cls(integer(body, "status", 0, 255))


class Node(NamedTuple):
    """One place of a run: a host, its number among those there, and since when it is here, in seconds since 1970."""

    host: str
    local: int
    state: str
    rank: int | None
    since: int | None

    @classmethod
    def parse(cls, row: object) -> Node:
        """Return what came. Raises WireError."""
        if not isinstance(row, list) or len(row) != len(cls._fields):
            raise WireError("a node: not a row")
        body = dict(zip(cls._fields, row, strict=True))
        return cls(
            host(body, "host"),
            integer(body, "local", 0, MOST_SLOTS - 1),
            one_of(body, "state", NODE_STATES),
            optional_integer(body, "rank", 0, MOST_NODES * MOST_SLOTS),
            optional_integer(body, "since", 0, MOST_SECONDS),
        )


class Failure(NamedTuple):
    """The last failure: of which attempt, when, and its cause (runner/causes.py)."""

    attempt: int | None
    at: int
    cause: dict[str, Any]

    @classmethod
    def parse(cls, body: object) -> Failure:
        """Return what came. Raises WireError."""
        if not isinstance(body, dict) or not isinstance(cause := body.get("cause"), dict):
            raise WireError("failure: not an object")
        attempt = optional_integer(body, "attempt", 0, MOST_ATTEMPT)
        return cls(attempt, integer(body, "at", 0, MOST_SECONDS), _cause(cause))


def _cause(body: Body) -> dict[str, Any]:
    tail = body.get("tail")
    if not isinstance(tail, str) or len(tail) > MOST_TAIL:
        raise WireError("tail: not text")
    return {
        "kind": one_of(body, "kind", _KINDS),
        "host": host(body, "host"),
        "rank": optional_integer(body, "rank", 0, MOST_NODES * MOST_SLOTS),
        "after_s": seconds(body, "after_s"),
        "status": integer(body, "status", 0, 255),
        "signal": optional_integer(body, "signal", 1, MOST_SIGNAL),
        "is_oom": body.get("is_oom") is True,
        "silent_s": None if body.get("silent_s") is None else seconds(body, "silent_s"),
        "tail": tail,
    }


class State(NamedTuple):
    """How a run does: `here` of `wanted` hosts; times are seconds since 1970."""

    id: str
    run: str
    state: str
    here: int
    wanted: int
    attempt: int | None  # none has begun where it is None
    restarts: int
    began: int
    since: int  # it is in this state
    host: str
    pid: int
    command: str
    nodes: tuple[Node, ...] = ()
    failure: Failure | None = None

    def body(self) -> Body:
        """Return what travels."""
        failure = None if self.failure is None else self.failure._asdict()
        return {**self._asdict(), "nodes": [[*node] for node in self.nodes], "failure": failure}

    @classmethod
    def parse(cls, body: Body) -> State:
        """Return what came. Raises WireError."""
        nodes = body.get("nodes")
        if not isinstance(nodes, list) or len(nodes) > MOST_NODES:
            raise WireError("nodes: not rows")
        return cls(
            text(body, "id", LONGEST_ID),
            text(body, "run", LONGEST_ID),
            one_of(body, "state", STATES),
            integer(body, "here", 0, MOST_NODES),
            integer(body, "wanted", 1, MOST_NODES),
            optional_integer(body, "attempt", 0, MOST_ATTEMPT),
            integer(body, "restarts", 0, MOST_ATTEMPT),
            integer(body, "began", 0, MOST_SECONDS),
            integer(body, "since", 0, MOST_SECONDS),
            host(body, "host"),
            integer(body, "pid", 1, (1 << 31) - 1),
            text(body, "command", LONGEST_COMMAND),
            tuple(Node.parse(row) for row in nodes),
            None if body.get("failure") is None else Failure.parse(body["failure"]),
        )


def host(body: Body, name: str) -> str:
    """Return body[name], a host as --hosts may have it. Raises WireError."""
    found = text(body, name, 253)
    if not is_hostname_or_address(found):
        raise WireError(f"{name}: not a host")
    return found


def one_of(body: Body, name: str, known: tuple[str, ...]) -> str:
    """Return body[name], one of the known words. Raises WireError."""
    if (found := body.get(name)) not in known:
        raise WireError(f"{name}: none of {', '.join(known)}")
    return str(found)


def seconds(body: Body, name: str) -> float:
    """Return body[name], a time. Raises WireError."""
    found = body.get(name)
    if not isinstance(found, int | float) or isinstance(found, bool) or not 0 <= found <= MOST_SECONDS:
        raise WireError(f"{name}: not seconds")
    return float(found)
