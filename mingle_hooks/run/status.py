"""What a run shows of itself to `mingle ls` and `mingle show`, and how `mingle kill` ends it."""

from __future__ import annotations

import os
import shlex
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mingle_hooks.errors import MingleError, NetworkError, SettingsError, UsageError, printable, reason
from mingle_hooks.net.addresses import hostname, interfaces, usable
from mingle_hooks.rendezvous.connection import Callers, Loop, Timer, dial
from mingle_hooks.rendezvous.wire import Body, Secret, WireError, integer, optional_integer, text
from mingle_hooks.run.attempt import TERM, Cause
from mingle_hooks.run.events import Event, Hurry, Joined, Noticed
from mingle_hooks.run.machine import Phases
from mingle_hooks.run.messages import MOST_ATTEMPT, MOST_SIGNAL, MOST_TAIL, Link, open_listeners
from mingle_hooks.run.planning import Request
from mingle_hooks.run.registry import (
    LONGEST_COMMAND,
    MOST_ADDRESSES,
    MOST_DOORS,
    MOST_SECONDS,
    Entry,
    RegisteredDoor,
    entry_is_there,
    own_process,
    parse_status_host,
    process_is_gone,
    read_entries,
    registry_directory,
    remove_entry,
    runs_here,
    write_entry,
)
from mingle_hooks.schedulers.facts import LONGEST_ID, MOST_NODES, MOST_SLOTS
from mingle_hooks.values import nearest

# What is asked of a runner, and what it answers: each message parsed into a bounded type.
#
# ::
#
#     asker                                     runner
#       ASK    what it is like now           →
#                                            ←  STATE   how it does
#       KILL   end                           →
#                                            ←  ENDING  it will
#                                            ←  GONE    with which status; then nobody is there any more
#
# The two prove to each other that they hold one of the user's keys, as a supervisor and its runner do.

# Kinds of frames, after those of messages.py.
ASK, STATE, KILL, ENDING, GONE = range(48, 53)

STATES = ("gathering", "forming", "running", "ending", "waiting to restart")
# Of a node: missing, it is awaited or has been given up; waiting, it is here without COMMAND.
NODE_STATES = ("missing", "waiting", "forming", "running", "ended", "lost")
_TAG_BYTES = 8
_KINDS = ("ended", "unformed", "silent", "gone", "absent", "stalled")


def status_secret(material: bytes, run_id: str) -> Secret:
    """Return the secret of questions to one run: of no use for another, nor for a world or a supervisor."""
    return Secret(Secret(material).mac(b"questions", run_id.encode()))


def status_tag(its: Secret) -> str:
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
            parse_status_host(body, "host"),
            integer(body, "local", 0, MOST_SLOTS - 1),
            parse_one_of(body, "state", NODE_STATES),
            optional_integer(body, "rank", 0, MOST_NODES * MOST_SLOTS),
            optional_integer(body, "since", 0, MOST_SECONDS),
        )


class Failure(NamedTuple):
    """The last failure: of which attempt, when, and its cause (attempt.py)."""

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
        "kind": parse_one_of(body, "kind", _KINDS),
        "host": parse_status_host(body, "host"),
        "rank": optional_integer(body, "rank", 0, MOST_NODES * MOST_SLOTS),
        "after_s": parse_seconds(body, "after_s"),
        "status": integer(body, "status", 0, 255),
        "signal": optional_integer(body, "signal", 1, MOST_SIGNAL),
        "is_oom": body.get("is_oom") is True,
        "silent_s": None if body.get("silent_s") is None else parse_seconds(body, "silent_s"),
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
            parse_one_of(body, "state", STATES),
            integer(body, "here", 0, MOST_NODES),
            integer(body, "wanted", 1, MOST_NODES),
            optional_integer(body, "attempt", 0, MOST_ATTEMPT),
            integer(body, "restarts", 0, MOST_ATTEMPT),
            integer(body, "began", 0, MOST_SECONDS),
            integer(body, "since", 0, MOST_SECONDS),
            parse_status_host(body, "host"),
            integer(body, "pid", 1, (1 << 31) - 1),
            text(body, "command", LONGEST_COMMAND),
            tuple(Node.parse(row) for row in nodes),
            None if body.get("failure") is None else Failure.parse(body["failure"]),
        )


def parse_one_of(body: Body, name: str, known: tuple[str, ...]) -> str:
    """Return body[name], one of the known words. Raises WireError."""
    if (found := body.get(name)) not in known:
        raise WireError(f"{name}: none of {', '.join(known)}")
    return str(found)


def parse_seconds(body: Body, name: str) -> float:
    """Return body[name], a time. Raises WireError."""
    found = body.get(name)
    if not isinstance(found, int | float) or isinstance(found, bool) or not 0 <= found <= MOST_SECONDS:
        raise WireError(f"{name}: not seconds")
    return float(found)


# Asking many runs at once, each for a short time.

# Each run has so long for its answer.
ANSWER_S = 2.0
# So many runs are asked at once: each has several addresses, and each connection takes a descriptor.
_AT_ONCE = 128


class WayToRunner(NamedTuple):
    """How a run is asked: where it is written down, and the port and the secret that belong to one of our keys."""

    entry: Entry
    port: int
    secret: Secret


def way_to_runner(entry: Entry, keys: Sequence[bytes]) -> WayToRunner | None:
    """Return how to ask a run; None where it answers to none of these keys."""
    ports = dict(entry.doors)
    for key in keys:
        secret = status_secret(key, entry.run)
        if (port := ports.get(status_tag(secret))) is not None:
            return WayToRunner(entry, port, secret)
    return None


class Question:
    """What one run is asked, over all of its addresses; the first that answers counts."""

    def __init__(self, loop: Loop, its: WayToRunner, *, is_whole: bool) -> None:
        self._its, self._is_whole = its, is_whole
        self._links: list[Link] = []
        self.state: State | None = None
        self.link: Link | None = None  # over which it answered
        entry = its.entry
        is_here = entry.process.machine == runs_here()
        for host in ("127.0.0.1",) if is_here else entry.addresses:
            try:
                sock = dial(host, its.port)
            except OSError:  # no way there
                continue
            self._open(loop, sock)

    @property
    def is_over(self) -> bool:
        """Whether no more answer can come."""
        return self.state is not None or all(link.closed for link in self._links)

    def close(self) -> None:
        """Let go of all connections."""
        for link in self._links:
            link.close()

    def _open(self, loop: Loop, sock: object) -> None:
        link = Link(loop, sock, self._its.secret, is_runner=False, on_end=lambda _reason: None)  # type: ignore[arg-type]
        link.on_proved = lambda: link.send(ASK, Ask(self._is_whole).body())
        link.on_message = lambda kind, body: self._answered(link, kind, body)
        self._links.append(link)

    def _answered(self, link: Link, kind: int, body: Body) -> None:
        if kind != STATE or self.state is not None:
            raise WireError("no answer")
        state = State.parse(body)
        if state.run != self._its.entry.run:
            raise WireError("another run's answer")
        self.state, self.link = state, link
        for other in self._links:
            if other is not link:
                other.close()


def ask_runs(ways: Sequence[WayToRunner], *, is_whole: bool = False, limit_s: float = ANSWER_S) -> list[State | None]:
    """Return what each run answers, in order; None where none does in time."""
    found: list[State | None] = []
    with Loop() as loop:
        for first in range(0, len(ways), _AT_ONCE):
            found += _ask(loop, ways[first : first + _AT_ONCE], limit_s, is_whole=is_whole)
    return found


def _ask(loop: Loop, ways: Sequence[WayToRunner], limit_s: float, *, is_whole: bool) -> list[State | None]:
    questions = [Question(loop, its, is_whole=is_whole) for its in ways]
    try:
        _wait(loop, lambda: all(question.is_over for question in questions), limit_s)
    finally:
        for question in questions:
            question.close()
    return [question.state for question in questions]


def _wait(loop: Loop, is_over: Callable[[], bool], limit_s: float) -> None:
    until = loop.clock() + limit_s
    timer = loop.after(limit_s, lambda: None)  # so that it turns then
    loop.run(lambda: is_over() or loop.clock() >= until)
    timer.cancel()


class Ending(NamedTuple):
    """What became of an attempt to end a run."""

    has_answered: bool
    is_heard: bool  # it has said that it will end
    status: int | None  # with which it ended, where it said so
    has_hung_up: bool  # its process has ended, or the network


def kill_run(its: WayToRunner, *, is_now: bool, limit_s: float, answer_s: float = ANSWER_S) -> Ending:
    """Ask a run to end, and wait until it has, for at most limit_s."""
    said: list[int] = []
    status: list[int] = []

    def take(kind: int, body: Body) -> None:
        if kind not in (ENDING, GONE):
            raise WireError("no answer")
        said.append(kind)
        if kind == GONE:
            status.append(Gone.parse(body).status)

    with Loop() as loop:
        question = Question(loop, its, is_whole=False)
        try:
            _wait(loop, lambda: question.is_over, answer_s)
            link = question.link
            if link is None:
                return Ending(has_answered=False, is_heard=False, status=None, has_hung_up=False)
            link.on_message = take
            link.send(KILL, Kill(is_now).body())
            _wait(loop, lambda: link.closed, limit_s)
            return Ending(True, bool(said), status[0] if status else None, link.closed)  # noqa: FBT003 - named above
        finally:
            question.close()


# Where a runner is asked: a port for those who hold one key of its user's.
#
# Strangers cost it next to nothing: they are few at a time, and each has a few seconds. Nothing is said to them but a
# random number.

# So many callers at once, each for so long, unless it waits for the end; with one more the first of them goes.
MOST_CALLERS, CALLER_S = 64, 10.0
_TRIES = 16


class StatusListener:
    """`on_question(link, kind, body)` gets what those ask who hold the key, and may raise WireError.

    Raises NetworkError where no port can be opened.
    """

    def __init__(self, loop: Loop, secret: Secret, on_question: Callable[[Link, int, Body], None]) -> None:
        self._loop, self._secret, self._on_question = loop, secret, on_question
        self._callers: dict[Link, float] = {}  # and since when it is here; oldest first
        self._sweeper: Timer | None = None
        self.port, listeners = open_listeners((0,) * _TRIES)
        if not self.port:
            raise NetworkError("a free port for questions", "none", "an end of what listens on this host")
        self._door = Callers(loop, listeners, self._take_in)

    def close(self) -> None:
        """Close all. What has been said is still delivered."""
        self._door.close()
        for link in self._callers:
            link.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._callers.clear()

    def _take_in(self, sock: socket.socket, _where: str) -> None:
        link = Link(self._loop, sock, self._secret, is_runner=True, on_end=lambda _reason: self._forget(link))
        link.on_message = lambda kind, body: self._on_question(link, kind, body)
        self._callers[link] = self._loop.clock()
        if len(self._callers) > MOST_CALLERS:
            self._turn_away(next(iter(self._callers)))
        if self._sweeper is None:
            self._sweep()

    def _sweep(self) -> None:
        """Turn those away who have been here for too long, and look again when the next will have been."""
        now = self._loop.clock()
        for link in [link for link, since in self._callers.items() if since <= now - CALLER_S]:
            self._turn_away(link)
        oldest = next(iter(self._callers.values()), None)
        self._sweeper = None if oldest is None else self._loop.after(oldest + CALLER_S - now, self._sweep)

    def keep(self, link: Link) -> None:
        """Leave a caller who has proved to hold the key to its owner: it may wait for the end."""
        self._forget(link)

    def _forget(self, link: Link) -> None:
        self._callers.pop(link, None)

    def _turn_away(self, link: Link) -> None:
        if link in self._callers:
            self._forget(link)
            link.close()


# The runs of this user that hold one of the user's keys, and how they do.

# Of several runs that are meant, so many are named.
_MOST_NAMED = 10


class Seen(NamedTuple):
    """A run, and how it does; None where it does not answer."""

    entry: Entry
    state: State | None


class Runs:
    """Those written down in the user's directory. `note` gets a line on what is left out. Raises SettingsError."""

    def __init__(self, environ: Mapping[str, str], keys: Sequence[bytes], note: Callable[[str], None]) -> None:
        path = registry_directory(environ)
        if path is None:
            raise SettingsError("a home directory, which holds the list of runs", "none", "HOME, or XDG_STATE_HOME")
        self.path, self._keys, self._note = path, keys, note

    def ways(self) -> list[WayToRunner]:
        """Return how to ask each that is there; those of which certainly nothing is left are forgotten."""
        found, others = [], 0
        for entry in read_entries(self.path, self._note):
            way = way_to_runner(entry, self._keys)
            if way is None:
                others += 1
            elif not self.is_gone(entry):
                found.append(way)
        if others:
            what = "run has" if others == 1 else "runs have"
            self._note(f"{others} {what} another key than those found here (MINGLE_KEY, --key-file)")
        return found

    def is_gone(self, entry: Entry) -> bool:
        """Tell whether a run has certainly ended; what a killed runner left in the directory is removed then."""
        if process_is_gone(entry.process):
            remove_entry(self.path, entry.run)
            return True
        return not entry_is_there(self.path, entry.run)

    def look(self, ways: Sequence[WayToRunner], *, is_whole: bool = False) -> list[Seen]:
        """Return how each run does, but for those that have ended meanwhile."""
        states = ask_runs(ways, is_whole=is_whole)
        pairs = [Seen(way.entry, state) for way, state in zip(ways, states, strict=True)]
        return [seen for seen in pairs if seen.state is not None or not self.is_gone(seen.entry)]

    def one(self, name: str) -> WayToRunner:
        """Return the run that is meant by the job's id, the run's own, or the beginning of one. Raises UsageError."""
        ways = self.ways()
        found = [way for way in ways if name in (way.entry.id, way.entry.run)]
        found = found or [way for way in ways if way.entry.id.startswith(name) or way.entry.run.startswith(name)]
        if len(found) == 1:
            return found[0]
        if found:
            runs = ", ".join(f"{way.entry.run} ({way.entry.id})" for way in found[:_MOST_NAMED])
            raise UsageError("the id of one run", f"{name}, which {len(found)} have: {runs}", found[0].entry.run)
        known = [way.entry.id for way in ways]
        raise UsageError("the id of a run", name, nearest(name, known) if known else "`mingle ls` on another host")


# A call that may hang, such as one to a home whose server is away, and must not hold anything up.


def in_time(call: Callable[[], None], limit_s: float) -> bool:
    """Tell whether a call has returned within limit_s; else it goes on by itself. Raises the MingleError it raises."""
    wrong: list[MingleError] = []
    is_done = threading.Lock()
    is_done.acquire()

    def run() -> None:
        try:
            call()
        except MingleError as error:
            wrong.append(error)
        finally:
            is_done.release()

    try:
        threading.Thread(target=run, daemon=True).start()
    except RuntimeError:  # no thread is left: then it may take its time
        run()
    returned = is_done.acquire(timeout=limit_s)
    if wrong:
        raise wrong[0]
    return returned


# What a runner owns so that `mingle ls`, `show` and `kill` find its run: an entry in the registry, and its doors.

# A home that does not answer holds nothing up for longer.
_BEGIN_S, _END_S = 0.25, 1.0
# So many wait for the end, at most.
_MOST_WAITING = 64


class Public(NamedTuple):
    """What a run shows of itself. Without a key, or a home, it shows nothing."""

    id: str
    run: str
    host: str
    addresses: tuple[str, ...]
    wanted: int
    command: str
    keys: Sequence[bytes]
    directory: str | None


class World:
    """A run as others see it, until close(). `state(entry, whole)` tells how it does; `on_kill(now)` is to end it.

    `note(text)` gets in one line what keeps it from being seen, which is no reason not to run.
    """

    def __init__(
        self,
        loop: Loop,
        public: Public,
        state: Callable[[Entry, bool], State],
        on_kill: Callable[[bool], None],
        note: Callable[[str], None],
    ) -> None:
        self._state, self._on_kill = state, on_kill
        self._doors: list[StatusListener] = []
        self.waiting: list[Link] = []
        self._path = public.directory
        self.entry: Entry | None = None
        if public.directory is None or not public.keys:
            return
        try:
            doors = [self._door(loop, key, public.run) for key in public.keys[:MOST_DOORS]]
            entry = _entry(public, tuple(doors))
            if not in_time(lambda: write_entry(str(public.directory), entry), _BEGIN_S):
                note(f"`mingle ls` does not show this run yet: {public.directory} is slow")
            self.entry = entry
        except (MingleError, OSError) as error:
            note(f"`mingle ls` does not show this run: {reason(error)}")
            self._shut()

    def close(self, status: int | None) -> None:
        """Have done: nothing of the run is left but this process, and its status, where it has one."""
        if self.entry is not None:
            run, path = self.entry.run, str(self._path)
            in_time(lambda: remove_entry(path, run), _END_S)
            self.entry = None
        if status is not None:
            for link in self.waiting:  # it ends with this process: by that they see that it has
                link.send(GONE, Gone(status).body())
        self._shut()

    def _shut(self) -> None:
        for door in self._doors:
            door.close()
        self._doors = []

    def _door(self, loop: Loop, key: bytes, run: str) -> RegisteredDoor:
        secret = status_secret(key, run)
        door = StatusListener(loop, secret, lambda link, kind, body: self._asked(door, link, kind, body))
        self._doors.append(door)
        return RegisteredDoor(status_tag(secret), door.port)

    def _asked(self, door: StatusListener, link: Link, kind: int, body: Body) -> None:
        if self.entry is None:
            return
        if kind == ASK:
            link.send(STATE, self._state(self.entry, Ask.parse(body).is_whole).body())
        elif kind == KILL:
            door.keep(link)
            self.waiting = [its for its in self.waiting if not its.closed and its is not link][-_MOST_WAITING + 1 :]
            self.waiting.append(link)
            link.send(ENDING, {})
            self._on_kill(Kill.parse(body).is_now)
        else:
            raise WireError("no question")


def _entry(public: Public, doors: tuple[RegisteredDoor, ...]) -> Entry:
    return Entry(
        id=public.id,
        run=public.run,
        host=public.host,
        addresses=public.addresses[:MOST_ADDRESSES],
        doors=doors,
        process=own_process(),
        began=int(time.time()),
        wanted=public.wanted,
        command=public.command,
    )


# What a run looks like to who asks: the state machine's, with the times at which it became so.

_HERE = ("idle", "busy")


class Picture:
    """`took` is called after each event that the machine took, `told` with what it tells."""

    def __init__(self, machine: Phases, clock: Callable[[], float] = time.time) -> None:
        self._machine, self._clock = machine, clock
        self._state, self._since = self._named(), int(clock())
        self._joined: dict[int, int] = {}  # place -> since when it is here
        self._failure: Failure | None = None

    def took(self, event: Event) -> None:
        """Take note of what has changed."""
        if isinstance(event, Joined):
            self._joined[event.place] = int(self._clock())
        if (named := self._named()) != self._state:
            self._state, self._since = named, int(self._clock())

    def told(self, name: str, fields: Mapping[str, object]) -> None:
        """Take note of a failure."""
        if name == "failed":
            attempt, cause = fields.get("attempt"), {its: fields[its] for its in Cause._fields}
            cause["tail"] = str(cause["tail"])[-MOST_TAIL:]
            self._failure = Failure(attempt if isinstance(attempt, int) else None, int(self._clock()), cause)

    def state(self, entry: Entry, *, is_whole: bool) -> State:
        """Return what is answered; with `is_whole` each node too, and the last failure."""
        machine = self._machine
        roster = machine.roster
        return State(
            id=entry.id,
            run=entry.run,
            state=self._state,
            here=sum(all(roster.state[place] in _HERE for place in roster.at([host])) for host in machine.plan.hosts),
            wanted=machine.plan.most,
            attempt=machine.attempt if machine.attempt >= 0 else None,
            restarts=machine.plan.restarts,
            began=entry.began,
            since=self._since,
            host=entry.host,
            pid=entry.process.pid,
            command=entry.command,
            nodes=tuple(map(self._node, range(len(roster.places)))) if is_whole else (),
            failure=self._failure if is_whole else None,
        )

    def _named(self) -> str:
        machine = self._machine
        if machine.phase == "gathering":
            return "gathering" if machine.attempt < 0 else "waiting to restart"
        if machine.phase == "running":
            return "running" if machine.has_formed() else "forming"
        return "ending"

    def _node(self, place: int) -> Node:
        machine = self._machine
        (host, local), its = machine.roster.places[place], machine.roster.state[place]
        if its in ("away", "called"):
            return Node(host, local, "missing", None, None)
        if its == "busy":
            is_over, has_formed = place in machine.roster.ended, machine.has_formed(place)
            state = "ended" if is_over else "running" if has_formed else "forming"
        else:
            state = "lost" if its == "lost" else "waiting"
        rank = machine.rank(place) if its == "busy" else None
        return Node(host, local, state, rank, self._joined.get(place))


class Shown:
    """One run as others see it, until close(); `on_event(event)` is to end it, and comes out of the loop."""

    def __init__(
        self,
        loop: Loop,
        request: Request,
        run: str,
        machine: Phases,
        on_event: Callable[[Event], None],
        note: Callable[[str], None],
    ) -> None:
        self._picture = Picture(machine)
        public = Public(
            id=request.id or run,
            run=run,
            host=hostname(),
            addresses=_addresses(request) if request.keys else (),
            wanted=machine.plan.most,
            command=printable(shlex.join(request.command), LONGEST_COMMAND),
            keys=request.keys,
            directory=registry_directory(os.environ),
        )

        def kill(is_now: bool) -> None:  # noqa: FBT001 - a callback
            note("`mingle kill` was called")
            on_event(Hurry() if is_now else Noticed(None, TERM))

        self._world = World(
            loop, public, lambda entry, is_whole: self._picture.state(entry, is_whole=is_whole), kill, note
        )

    def took(self, event: Event) -> None:
        """Take note of what has happened."""
        self._picture.took(event)

    def told(self, name: str, fields: Mapping[str, object]) -> None:
        """Take note of what is told of it."""
        self._picture.told(name, fields)

    def close(self, status: int | None) -> None:
        """Be seen no more; the status is told to those who asked for the end."""
        self._world.close(status)


def _addresses(request: Request) -> tuple[str, ...]:
    """Return where other hosts can ask."""
    try:
        return tuple(its.host for its in usable(interfaces(), prefer=request.iface))  # type: ignore[arg-type]
    except NetworkError:  # a machine without a network, which can ask itself
        return ()
