"""The status of runs: a list of them in the user's home, and what `mingle ls`, `show` and `kill` send to a runner."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from hashlib import sha256
from typing import Annotated, Any, Literal, NamedTuple

from mingle_hooks import values
from mingle_hooks.errors import MingleError, NetworkError, PlaceError, SettingsError, UsageError, reason
from mingle_hooks.files import UnfitError, contents
from mingle_hooks.net import addresses
from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.connection import Loop, dial
from mingle_hooks.rendezvous.wire import Body, Secret, WireError, body_of, parse
from mingle_hooks.run import messages
from mingle_hooks.run.attempt import Cause
from mingle_hooks.run.machine import Event, Joined, Machine
from mingle_hooks.run.messages import MOST_SECONDS, MOST_TAIL, AttemptNumber, Host, Link, Port, Rank, Reception
from mingle_hooks.run.processes import stat_fields
from mingle_hooks.schedulers.facts import LONGEST_ID, MOST_NODES, MOST_SLOTS
from mingle_hooks.values import nearest

LONGEST_COMMAND = 200
MOST_ADDRESSES, MOST_LISTENERS = 16, 4
_ENDING = ".json"
_MOST_BYTES = 8 * 1024
_MOST_RUNS = 10_000
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


# The list of the user's runs: one small file each, in a directory that all of the user's hosts see. None holds a key.


Id = Annotated[str, wire.printable_text(LONGEST_ID)]
Command = Annotated[str, wire.printable_text(LONGEST_COMMAND)]
Pid = Annotated[int, wire.within(1, (1 << 31) - 1)]
Time = Annotated[int, wire.within(0, MOST_SECONDS)]  # in seconds since 1970


class RunnerProcess(NamedTuple):
    """A machine, as one boot and one pid namespace of it; a pid; when that process began (0: not known).

    By it a runner that was killed differs from one that is out of reach.
    """

    machine: Annotated[str, wire.printable_text(64)]
    pid: Pid
    start: Annotated[int, wire.within(0, MOST_SECONDS)]

    @classmethod
    def own(cls) -> RunnerProcess:
        """Return this process."""
        return cls(runs_here(), os.getpid(), _start(os.getpid()) or 0)

    @property
    def has_ended(self) -> bool:
        """Whether it has certainly ended: it was of this machine, where its pid is free, or another process has it."""
        return self.machine == runs_here() and self.start > 0 and _start(self.pid) != self.start


def runs_here() -> str:
    """Return 16 hex digits, equal for two processes that see the same processes and the same network."""
    try:
        pids = os.stat("/proc/self/ns/pid").st_ino
    except OSError:  # not Linux
        pids = 0
    return sha256(f"{addresses.machine_id()} {pids}".encode()).hexdigest()[:16]


def _start(pid: int) -> int | None:
    """Return when a process began, in ticks since the boot; None if it has ended."""
    fields = stat_fields(pid)
    return None if not fields or fields[0] in (b"Z", b"X") else int(fields[19])


class Listener(NamedTuple):
    """A port where a run answers to holders of one key; by `tag` they know which (status_tag)."""

    tag: Annotated[str, wire.printable_text(64)]
    port: Port


class Entry(NamedTuple):
    """One run, as its runner wrote it at the beginning."""

    id: Id
    run: Id
    host: Host
    addresses: Annotated[tuple[Annotated[str, wire.address], ...], wire.Most(MOST_ADDRESSES)]
    listeners: Annotated[tuple[Listener, ...], wire.Most(MOST_LISTENERS), wire.Key("doors")]  # as older versions do
    process: RunnerProcess
    began: Time
    wanted: Annotated[int, wire.within(1, 1 << 16)]
    command: Command


def registry_directory(environ: Mapping[str, str]) -> str | None:
    """Return the directory of the user's runs (XDG base directories), None if no home is known."""
    state, home = environ.get("XDG_STATE_HOME", ""), environ.get("HOME", "")
    if os.path.isabs(state):  # the standard has relative ones ignored
        return f"{state}/mingle/runs"
    return f"{home}/.local/state/mingle/runs" if os.path.isabs(home) else None


def write_entry(path: str, entry: Entry) -> None:
    """Write an entry, whole. Raises PlaceError."""
    draft = f"{path}/.{entry.run}"
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        _check(os.stat(path), path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(draft, flags, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(values.to_json(body_of(entry)).encode())  # NFS reports a full disk when it is closed
            os.rename(draft, f"{path}/{entry.run}{_ENDING}")
        except BaseException:
            os.unlink(draft)
            raise
    except (OSError, SettingsError) as error:
        raise PlaceError(f"to record this run in {path}", reason(error), "XDG_STATE_HOME") from None


def remove_entry(path: str, run: str) -> None:
    """Remove an entry, if it is there."""
    with suppress(OSError):
        os.unlink(f"{path}/{run}{_ENDING}")


def read_entries(path: str, note: Callable[[str], None]) -> list[Entry]:
    """Return all entries, the oldest first; `note` gets what is wrong with each that is left out.

    Raises SettingsError if another user may write there.
    """
    try:
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SettingsError("a directory of this user's runs", f"{path}: {error.strerror}", "XDG_STATE_HOME") from None
    try:
        _check(os.fstat(opened), path)
        names = sorted(name for name in os.listdir(opened) if name.endswith(_ENDING) and name[0] != ".")
        found = [_read(path, name, opened, note) for name in names[:_MOST_RUNS]]
    finally:
        os.close(opened)
    return sorted((entry for entry in found if entry is not None), key=lambda entry: (entry.began, entry.run))


def _read(path: str, name: str, within: int, note: Callable[[str], None]) -> Entry | None:
    where = f"{path}/{name}"
    try:
        data = contents(where, most_bytes=_MOST_BYTES, refused_mode=_OTHERS, owners=(os.getuid(),), within=within)
        body = values.from_json(data)
        return parse(Entry, {**body, "run": name.removesuffix(_ENDING)} if isinstance(body, dict) else {})
    except FileNotFoundError:  # it has just ended
        return None
    except UnfitError as wrong:
        note(f"left out: {wrong.seen}; expected {wrong.expected}")
    except (OSError, ValueError, RecursionError, WireError) as error:
        note(f"left out: {where}, not a run's file: {reason(error)}")
    return None


def _check(found: os.stat_result, path: str) -> None:
    """Refuse a directory in which another user could put a forged entry. Raises SettingsError."""
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        seen = f"{path} of uid {found.st_uid} with mode {stat.S_IMODE(found.st_mode):04o}"
        raise SettingsError("a directory that only this user can write", seen, f"chmod 700 {path}")


# Messages between one of these commands and a runner.
#
# ::
#
#     command                                   runner
#       ASK    {"whole": …}                  →
#                                            ←  STATE   its status; with "whole" that of each node, too
#       KILL   {"now": …}                    →
#                                            ←  ENDING  it will end
#                                            ←  GONE    {"status": …}; only its own process is left
#
# The two prove to each other that they hold one of the user's keys, as an agent and its runner do.

ASK, STATE, KILL, ENDING, GONE = range(48, 53)

RunPhase = Literal["gathering", "forming", "running", "ending", "waiting to restart"]
# Of a node: missing, it is awaited or has been given up; waiting, it is here without COMMAND.
NodePhase = Literal["missing", "waiting", "forming", "running", "ended", "lost"]
_TAG_BYTES = 8


def status_secret(material: bytes, run_id: str) -> Secret:
    """Return the secret of one run's status: of no use for another run, a world or an agent."""
    return Secret(Secret(material).mac(b"questions", run_id.encode()))


def status_tag(secret: Secret) -> str:
    """Return a tag by which holders of the key recognise its secret; to others it shows nothing."""
    return secret.mac(b"which")[:_TAG_BYTES].hex()


class Node(NamedTuple):
    """One place of a run: its host, its number there, and since when its agent is here, in seconds since 1970."""

    host: Host
    local: Annotated[int, wire.within(0, MOST_SLOTS - 1)]
    state: NodePhase
    rank: Rank | None
    since: Time | None


def _cause(body: Body, name: str) -> dict[str, Any]:
    return parse(Cause, body.get(name))._asdict()


class Failure(NamedTuple):
    """The last failure: of which attempt, when, and its cause (attempt.py)."""

    attempt: AttemptNumber | None
    at: Time
    cause: Annotated[dict[str, Any], _cause]


class State(NamedTuple):
    """The status of a run: `here` of `wanted` hosts; times are seconds since 1970."""

    id: Id
    run: Id
    state: RunPhase
    here: Annotated[int, wire.within(0, MOST_NODES)]
    wanted: Annotated[int, wire.within(1, MOST_NODES)]
    attempt: AttemptNumber | None  # none has begun where it is None
    restarts: AttemptNumber
    began: Time
    since: Time  # since when it is in this state
    host: Host
    pid: Pid
    command: Command
    nodes: Annotated[tuple[Node, ...], wire.Most(MOST_NODES)]
    failure: Failure | None

    def body(self) -> Body:
        """Return the body of the answer."""
        return {**body_of(self), "failure": None if self.failure is None else self.failure._asdict()}


# Seconds that each run has for its answer.
ANSWER_S = 2.0
# The most requests at once: each run has several addresses, and each connection takes a descriptor.
_AT_ONCE = 128


class Contact(NamedTuple):
    """How to reach a run: its entry, and the port and the secret that belong to one of our keys."""

    entry: Entry
    port: int
    secret: Secret


def contact_of(entry: Entry, keys: Sequence[bytes]) -> Contact | None:
    """Return how to reach a run; None if it answers to none of these keys."""
    ports = dict(entry.listeners)
    tagged = ((status_tag(secret), secret) for secret in (status_secret(key, entry.run) for key in keys))
    return next((Contact(entry, ports[tag], secret) for tag, secret in tagged if tag in ports), None)


class StatusRequest:
    """A request for one run's status, over all of its addresses; the first answer counts."""

    def __init__(self, loop: Loop, contact: Contact, *, is_whole: bool) -> None:
        self._run, self._is_whole = contact.entry.run, is_whole
        self._links: list[Link] = []
        self.state: State | None = None
        self.link: Link | None = None  # over which it answered
        is_here = contact.entry.process.machine == runs_here()
        for host in ("127.0.0.1",) if is_here else contact.entry.addresses:
            try:
                sock = dial(host, contact.port)
            except OSError:  # no way there
                continue
            self._open(Link(loop, sock, contact.secret, is_runner=False, on_end=lambda _reason: None))

    @property
    def is_over(self) -> bool:
        """Whether no more answer can come."""
        return self.state is not None or all(link.closed for link in self._links)

    def close(self, but: Link | None = None) -> None:
        """Close all connections, but for one."""
        for link in self._links:
            if link is not but:
                link.close()

    def _open(self, link: Link) -> None:
        link.on_proved = lambda: link.send_message(ASK, {"whole": self._is_whole})
        link.on_message = lambda kind, body: self._answered(link, kind, body)
        self._links.append(link)

    def _answered(self, link: Link, kind: int, body: Body) -> None:
        if kind != STATE or self.state is not None:
            raise WireError("no answer")
        state = parse(State, body)
        if state.run != self._run:
            raise WireError("another run's answer")
        self.state, self.link = state, link
        self.close(but=link)


def fetch_states(
    contacts: Sequence[Contact], *, is_whole: bool = False, limit_s: float = ANSWER_S
) -> list[State | None]:
    """Return what each run answers, in order; None where it does not answer in time."""
    groups = (contacts[first : first + _AT_ONCE] for first in range(0, len(contacts), _AT_ONCE))
    with Loop() as loop:
        return [state for group in groups for state in _fetch(loop, group, limit_s, is_whole=is_whole)]


def _fetch(loop: Loop, contacts: Sequence[Contact], limit_s: float, *, is_whole: bool) -> list[State | None]:
    with ExitStack() as stack:
        opened = (StatusRequest(loop, contact, is_whole=is_whole) for contact in contacts)
        requests = [stack.enter_context(closing(request)) for request in opened]
        wait_for(loop, lambda: all(request.is_over for request in requests), limit_s)
    return [request.state for request in requests]


def wait_for(loop: Loop, is_over: Callable[[], bool], limit_s: float) -> None:
    """Run a loop until this holds, at most for limit_s."""
    until = loop.clock() + limit_s
    timer = loop.after(limit_s, lambda: None)  # so that it turns then
    loop.run(lambda: is_over() or loop.clock() >= until)
    timer.cancel()


class Ending(NamedTuple):
    """The result of a request to end a run."""

    is_accepted: bool  # it has answered that it will end
    status: int | None  # with which it ended, if it sent that
    has_hung_up: bool  # its process has ended, or the network


def kill_run(contact: Contact, *, is_now: bool, limit_s: float, answer_s: float = ANSWER_S) -> Ending:
    """Tell a run to end, as for TERM, or with `is_now` as for a second Ctrl-C; wait for its end, at most limit_s."""
    answers: dict[int, int | None] = {}  # kind -> the status that GONE has

    def take(kind: int, body: Body) -> None:
        if kind not in (ENDING, GONE):
            raise WireError("no answer")
        answers[kind] = wire.integer(body, "status", 0, 255) if kind == GONE else None

    with Loop() as loop, closing(StatusRequest(loop, contact, is_whole=False)) as request:
        wait_for(loop, lambda: request.is_over, answer_s)
        link = request.link
        if link is None:
            return Ending(is_accepted=False, status=None, has_hung_up=False)
        link.on_message = take
        link.send_message(KILL, {"now": is_now})
        wait_for(loop, lambda: link.closed, limit_s)
        return Ending(bool(answers), answers.get(GONE), link.closed)


# An error names so many of the runs that an id may mean.
_MOST_NAMED = 10


class ListedRun(NamedTuple):
    """A run and its status; None where it does not answer."""

    entry: Entry
    state: State | None


class Runs:
    """The user's runs. `note` gets a line on what is left out. Raises SettingsError without a home."""

    def __init__(self, environ: Mapping[str, str], keys: Sequence[bytes], note: Callable[[str], None]) -> None:
        path = registry_directory(environ)
        if path is None:
            raise SettingsError("a home directory, which holds the list of runs", "none", "HOME, or XDG_STATE_HOME")
        self.path, self._keys, self._note = path, keys, note

    def contacts(self) -> list[Contact]:
        """Return how to reach each run; the entries of those that have certainly ended are removed."""
        found, others = [], 0
        for entry in read_entries(self.path, self._note):
            contact = contact_of(entry, self._keys)
            if contact is None:
                others += 1
            elif not self.is_gone(entry):
                found.append(contact)
        if others:
            what = "run has" if others == 1 else "runs have"
            self._note(f"{others} {what} another key than those found here (MINGLE_KEY, --key-file)")
        return found

    def is_gone(self, entry: Entry) -> bool:
        """Tell whether a run has certainly ended; the entry of a runner that was killed is removed then."""
        if entry.process.has_ended:
            remove_entry(self.path, entry.run)
            return True
        return not os.path.lexists(f"{self.path}/{entry.run}{_ENDING}")

    def look(self, contacts: Sequence[Contact], *, is_whole: bool = False) -> list[ListedRun]:
        """Return the status of each run, but for those that have ended meanwhile."""
        states = fetch_states(contacts, is_whole=is_whole)
        listed = [ListedRun(contact.entry, state) for contact, state in zip(contacts, states, strict=True)]
        return [run for run in listed if run.state is not None or not self.is_gone(run.entry)]

    def one(self, name: str) -> Contact:
        """Return the run of this id, the job's or the run's own, or of its beginning. Raises UsageError."""
        contacts = {contact.entry: contact for contact in self.contacts()}
        found = [entry for entry in contacts if name in (entry.id, entry.run)]
        found = found or [entry for entry in contacts if entry.id.startswith(name) or entry.run.startswith(name)]
        if len(found) == 1:
            return contacts[found[0]]
        if found:
            runs = ", ".join(f"{entry.run} ({entry.id})" for entry in found[:_MOST_NAMED])
            raise UsageError("the id of one run", f"{name}, which {len(found)} have: {runs}", found[0].run)
        known = [entry.id for entry in contacts]
        raise UsageError("the id of a run", name, nearest(name, known) if known else "`mingle ls` on another host")


def in_time(call: Callable[[], None], limit_s: float) -> bool:
    """Tell whether a call has returned within limit_s; else it goes on in a thread. Raises the MingleError it raises.

    It is for calls that may hang, such as those on a home directory when its server is away.
    """
    wrong: list[MingleError] = []

    def run() -> None:
        try:
            call()
        except MingleError as error:
            wrong.append(error)

    thread = threading.Thread(target=run, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no thread is left: then it may take its time
        run()
    else:
        thread.join(limit_s)
    if wrong:
        raise wrong[0]
    return not thread.is_alive()


# How long a home that does not answer may delay the beginning and the end of a run.
_BEGIN_S, _END_S = 0.25, 1.0
# The most callers at once that do not wait for the end.
MOST_CALLERS = 64
_MOST_WAITING = 64
_TRIES = 16


class StatusServer:
    """Answers for a run to holders of one of the keys, until close(); to nobody without a key, or a home.

    The owner sets `state(entry, is_whole)`, its status, and `on_kill(is_now)`, which ends it. `note(text)` gets a line
    on what hides the run from `mingle ls`, which is no reason not to run.
    """

    state: Callable[[Entry, bool], State]
    on_kill: Callable[[bool], None]

    def __init__(
        self, loop: Loop, entry: Entry, keys: Sequence[bytes], directory: str | None, note: Callable[[str], None]
    ) -> None:
        self._loop = loop
        self._reception = Reception(loop, self._take, MOST_CALLERS)
        self.waiting: list[Link] = []
        self._path = path = directory or ""
        self.entry: Entry | None = None
        if not path or not keys:
            return
        try:
            listeners = tuple(self._listen(status_secret(key, entry.run)) for key in keys[:MOST_LISTENERS])
            entry = entry._replace(listeners=listeners, addresses=entry.addresses[:MOST_ADDRESSES])
            if not in_time(lambda: write_entry(path, entry), _BEGIN_S):
                note(f"`mingle ls` does not show this run yet: {path} is slow")
            self.entry = entry
        except (MingleError, OSError) as error:
            note(f"`mingle ls` does not show this run: {reason(error)}")
            self._reception.close()

    def close(self, status: int | None) -> None:
        """Remove the entry, and send the run's status, if it has one: only this process is left of the run."""
        if self.entry is not None:
            run, self.entry = self.entry.run, None
            in_time(lambda: remove_entry(self._path, run), _END_S)
        if status is not None:
            for link in self.waiting:  # each ends with this process, which shows that it has ended
                link.send_message(GONE, {"status": status})
        self._reception.close()

    def _listen(self, secret: Secret) -> Listener:
        """Open a port for holders of one key. Raises NetworkError where there is none."""
        port, sockets = messages.open_listeners((0,) * _TRIES)
        if not port:
            raise NetworkError("a free port for status requests", "none", "ending a program that listens on this host")
        self._reception.listen(sockets, secret)
        return Listener(status_tag(secret), port)

    def _take(self, link: Link, kind: int, body: Body) -> None:
        """Answer a request. Raises WireError."""
        if self.entry is None:
            return
        if kind == ASK:
            link.send_message(STATE, self.state(self.entry, body.get("whole") is True).body())
        elif kind == KILL:
            self._reception.admit(link)
            self.waiting = [each for each in self.waiting if not each.closed and each is not link]
            self.waiting = [*self.waiting[-_MOST_WAITING + 1 :], link]
            link.send_message(ENDING, {})
            self.on_kill(body.get("now") is True)
        else:
            raise WireError("not a request")


class RunState:
    """The status of a run, and since when it holds; call `take` after each event, `report` for each report."""

    def __init__(self, machine: Machine, clock: Callable[[], float] = time.time) -> None:
        self._machine, self._clock = machine, clock
        self._state, self._since = self._named(), int(clock())
        self._joined: dict[int, int] = {}  # place -> since when its agent is here
        self._failure: Failure | None = None

    def take(self, event: Event) -> None:
        """Record the changes that an event has made."""
        if isinstance(event, Joined):
            self._joined[event.place] = int(self._clock())
        if (named := self._named()) != self._state:
            self._state, self._since = named, int(self._clock())

    def report(self, name: str, fields: Mapping[str, object]) -> None:
        """Record a failure."""
        if name == "failed":
            attempt, cause = fields.get("attempt"), {field: fields[field] for field in Cause._fields}
            cause["tail"] = str(cause["tail"])[-MOST_TAIL:]
            self._failure = Failure(attempt if isinstance(attempt, int) else None, int(self._clock()), cause)

    def state(self, entry: Entry, is_whole: bool) -> State:  # noqa: FBT001 - a callback
        """Return the status; with `is_whole` each node too, and the last failure."""
        machine = self._machine
        roster = machine.roster
        here = [all(roster.state[place] in ("idle", "busy") for place in roster.at([h])) for h in machine.plan.hosts]
        return State(
            **{name: value for name, value in entry._asdict().items() if name in State._fields},
            state=self._state,
            here=sum(here),
            attempt=machine.attempt if machine.attempt >= 0 else None,
            restarts=machine.plan.restarts,
            since=self._since,
            pid=entry.process.pid,
            nodes=tuple(map(self._node, range(len(roster.places)))) if is_whole else (),
            failure=self._failure if is_whole else None,
        )

    def _named(self) -> RunPhase:
        machine = self._machine
        if machine.phase == "gathering":
            return "gathering" if machine.attempt < 0 else "waiting to restart"
        if machine.phase == "running":
            return "running" if machine.has_formed() else "forming"
        return "ending"

    def _node(self, place: int) -> Node:
        machine, roster = self._machine, self._machine.roster
        (host, local), state = roster.places[place], roster.state[place]
        if state in ("away", "called"):
            return Node(host, local, "missing", None, None)
        if state == "busy":
            phase: NodePhase = "running" if machine.has_formed(place) else "forming"
            phase = "ended" if place in roster.ended else phase
            return Node(host, local, phase, machine.ranks.get(place), self._joined.get(place))
        return Node(host, local, "lost" if state == "lost" else "waiting", None, self._joined.get(place))
