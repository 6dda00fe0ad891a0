"""The status of runs: a file for each in the user's home, which `mingle ls` and `show` read, and what `kill` sends."""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, Literal, NamedTuple

from mingle_hooks import values
from mingle_hooks.errors import MingleError, NetworkError, PlaceError, SecretError, SettingsError, UsageError, reason
from mingle_hooks.files import UnusableFileError, contents, write_new
from mingle_hooks.net import addresses
from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.connection import Loop, dial
from mingle_hooks.rendezvous.wire import Body, Secret, WireError, body_of, parse
from mingle_hooks.run import messages, processes
from mingle_hooks.run.attempt import Cause
from mingle_hooks.run.machine import Event, Joined, Machine
from mingle_hooks.run.messages import MOST_SECONDS, MOST_TAIL, AttemptNumber, Host, Link, Port, Rank, Reception
from mingle_hooks.run.output import FileWriter
from mingle_hooks.schedulers.facts import LONGEST_ID, MOST_NODES, MOST_SLOTS
from mingle_hooks.values import nearest

LONGEST_COMMAND = 200
MOST_ADDRESSES, MOST_LISTENERS = 16, 4

# The record of a run.

Id = Annotated[str, wire.printable_text(LONGEST_ID)]
Time = Annotated[int, wire.within(0, MOST_SECONDS)]  # in seconds since 1970
Pid = Annotated[int, wire.within(1, (1 << 31) - 1)]
# Readers add the last three. killed: its process has ended without a word; silent: its file was not renewed for
# SILENT_S; lost: for LOST_S.
RunPhase = Literal[
    "gathering", "forming", "running", "ending", "waiting to restart", "ended", "killed", "silent", "lost"
]
# Of a node: missing, it is awaited or has been given up; waiting, it is here without COMMAND.
NodePhase = Literal["missing", "waiting", "forming", "running", "ended", "lost"]


class RunnerProcess(NamedTuple):
    """A machine, as one boot and one pid namespace of it; a pid; when that process began (0: not known).

    It distinguishes a killed runner from one that is out of reach.
    """

    machine: Annotated[str, wire.printable_text(64)]
    pid: Pid
    start: Annotated[int, wire.within(0, MOST_SECONDS)]

    @classmethod
    def own(cls) -> RunnerProcess:
        """Return this process."""
        return cls(runs_here(), os.getpid(), processes.began(os.getpid()) or 0)

    @property
    def has_ended(self) -> bool:
        """Whether it has certainly ended: it was of this machine, where its pid is free, or another process has it."""
        return self.machine == runs_here() and self.start > 0 and processes.began(self.pid) != self.start


def runs_here() -> str:
    """Return 16 hex digits, equal for two processes that see the same processes and the same network."""
    try:
        pids = os.stat("/proc/self/ns/pid").st_ino
    except OSError:  # not Linux
        pids = 0
    return sha256(f"{addresses.machine_id()} {pids}".encode()).hexdigest()[:16]


class Listener(NamedTuple):
    """A port where a run takes `mingle kill` from holders of one key; by `tag` they know which (kill_tag)."""

    tag: Annotated[str, wire.printable_text(64)]
    port: Port


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


class RunStatus(NamedTuple):
    """A run as its runner writes it: `here` of `wanted` hosts; times are seconds since 1970."""

    id: Id
    run: Id
    wanted: Annotated[int, wire.within(1, MOST_NODES)]
    restarts: AttemptNumber
    began: Time
    host: Host
    command: Annotated[str, wire.printable_text(LONGEST_COMMAND)]
    process: RunnerProcess
    scheduler: Annotated[str, wire.printable_text(64)]
    job: Id | None  # by which the scheduler cancels it
    state: RunPhase = "gathering"
    since: Time = 0  # since when it is in this state
    here: Annotated[int, wire.within(0, MOST_NODES)] = 0
    attempt: AttemptNumber | None = None  # none has begun where it is None
    addresses: Annotated[tuple[Annotated[str, wire.address], ...], wire.Most(MOST_ADDRESSES)] = ()
    listeners: Annotated[tuple[Listener, ...], wire.Most(MOST_LISTENERS)] = ()
    nodes: Annotated[tuple[Node, ...], wire.Most(MOST_NODES)] = ()
    failure: Failure | None = None
    status: Annotated[int, wire.within(0, 255)] | None = None  # with which it has ended

    @property
    def has_ended(self) -> bool:
        """Whether it has certainly ended; one that is lost may only be cut off from the home."""
        return self.state in ("ended", "killed")

    @property
    def is_live(self) -> bool:
        """Whether it is likely to run still."""
        return not self.has_ended and self.state != "lost"

    def body(self) -> Body:
        """Return it as JSON has it."""
        return {**body_of(self), "failure": None if self.failure is None else self.failure._asdict()}


# The files of the user's runs, in a directory that all of the user's hosts see. None holds a key.

_ENDING = ".json"
_MOST_BYTES = 16 * 1024 * 1024  # 65,536 nodes at some 200 bytes each
_MOST_RUNS = 10_000
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
# A runner renews its file so often, and writes it again so soon after a change, in seconds.
RENEW_S, CHANGE_S = 10.0, 0.5
# A run whose file is older is silent, as its runner is stopped or cut off; then lost; then its file is removed.
SILENT_S, LOST_S, KEPT_S = 35.0, 3600.0, 7 * 86_400.0


def registry_directory(environ: Mapping[str, str]) -> str | None:
    """Return the directory of the user's runs (XDG base directories), None if no home is known."""
    state, home = environ.get("XDG_STATE_HOME", ""), environ.get("HOME", "")
    if os.path.isabs(state):  # the standard has relative ones ignored
        return f"{state}/mingle/runs"
    return f"{home}/.local/state/mingle/runs" if os.path.isabs(home) else None


def make_state_directory(path: str) -> None:
    """Create a directory in the user's `mingle` one; both are this user's alone. Raises OSError."""
    for each in (os.path.dirname(path), path):
        os.makedirs(each, mode=0o700, exist_ok=True)


def write_status(path: str, status: RunStatus) -> None:
    """Write a run's file, whole. Raises PlaceError."""
    draft = f"{path}/.{status.run}"
    try:
        make_state_directory(path)
        _check(os.stat(path), path)
        write_new(draft, values.to_json(status.body()).encode())
        try:
            os.rename(draft, f"{path}/{status.run}{_ENDING}")
        except OSError:
            os.unlink(draft)
            raise
    except (OSError, SettingsError) as error:
        raise PlaceError(f"to record this run in {path}", reason(error), "XDG_STATE_HOME") from None


@contextmanager
def _opened(path: str, flags: int = 0) -> Iterator[int]:
    """Give the descriptor of a directory in which no other user can write. Raises OSError and SettingsError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | flags)
    try:
        _check(os.fstat(descriptor), path)
        yield descriptor
    finally:
        os.close(descriptor)


def remove_old(path: str) -> None:
    """Remove the files of runs that ended a week ago, and drafts, but nothing else that may be there."""
    with suppress(OSError, SettingsError), _opened(path, os.O_NOFOLLOW) as opened:
        for name in os.listdir(opened):
            found = os.stat(name, dir_fd=opened, follow_symlinks=False)
            is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()
            if is_own and (name.endswith(_ENDING) or name[0] == ".") and time.time() - found.st_mtime > KEPT_S:
                os.unlink(name, dir_fd=opened)


def read_runs(path: str, note: Callable[[str], None]) -> list[RunStatus]:
    """Return all runs, the oldest first; `note` gets what is wrong with each that is left out.

    Raises SettingsError if another user may write there.
    """
    try:
        with _opened(path) as opened:
            names = sorted(name for name in os.listdir(opened) if name.endswith(_ENDING) and name[0] != ".")
            found = [_read(path, name, opened, note) for name in names[:_MOST_RUNS]]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SettingsError("a directory of this user's runs", f"{path}: {error.strerror}", "XDG_STATE_HOME") from None
    return sorted((status for status in found if status is not None), key=lambda status: (status.began, status.run))


def _read(path: str, name: str, within: int, note: Callable[[str], None]) -> RunStatus | None:
    where = f"{path}/{name}"
    try:
        status = _parsed(where, within)
        if status.state != "ended" and status.process.has_ended:  # it may have written its end since
            status = _parsed(where, within)
        age_s = time.time() - os.stat(name, dir_fd=within, follow_symlinks=False).st_mtime
        return status._replace(state=_state_now(status, age_s))
    except FileNotFoundError:  # it was a week old
        return None
    except UnusableFileError as wrong:
        note(f"left out: {wrong.seen}; expected {wrong.expected}")
    except (OSError, ValueError, RecursionError, WireError) as error:
        note(f"left out: {where}, not a run's file: {reason(error)}")
    return None


def _parsed(where: str, within: int) -> RunStatus:
    """Return what a run's file holds. Raises what contents(), from_json() and parse() raise."""
    data = contents(where, most_bytes=_MOST_BYTES, refused_mode=_OTHERS, owners=(os.getuid(),), within=within)
    body, run = values.from_json(data), os.path.basename(where).removesuffix(_ENDING)
    return parse(RunStatus, {**body, "run": run} if isinstance(body, dict) else {})


def _state_now(status: RunStatus, age_s: float) -> RunPhase:
    """Return a run's state by its file, of that age."""
    if status.state == "ended":
        return "ended"
    if status.process.has_ended:
        return "killed"
    return "lost" if age_s > LOST_S else "silent" if age_s > SILENT_S else status.state


def _check(found: os.stat_result, path: str) -> None:
    """Refuse a directory in which another user could put a forged file. Raises SettingsError."""
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        seen = f"{path} of uid {found.st_uid} with mode {stat.S_IMODE(found.st_mode):04o}"
        raise SettingsError("a directory that only this user can write", seen, f"chmod 700 {path}")


class Runs:
    """The user's runs. `note` gets a line on what is left out. Raises SettingsError without a home."""

    def __init__(self, environ: Mapping[str, str], note: Callable[[str], None]) -> None:
        path = registry_directory(environ)
        if path is None:
            raise SettingsError("a home directory, which holds the list of runs", "none", "HOME, or XDG_STATE_HOME")
        self.path, self._note = path, note

    def all(self) -> list[RunStatus]:
        """Return the runs of the last week, the oldest first."""
        return read_runs(self.path, self._note)

    def one(self, name: str) -> RunStatus:
        """Return the run of this id, the job's or the run's own, or of its beginning; a live one, else the latest.

        `note` gets the whole id if only its beginning was given. Raises UsageError.
        """
        runs = self.all()
        exact = [run for run in runs if name in (run.id, run.run)]
        # An empty name, as of a variable that is not set, is the beginning of none.
        begun = [run for run in runs if name and (run.id.startswith(name) or run.run.startswith(name))]
        live_exact, live_begun = ([run for run in some if run.is_live] for some in (exact, begun))
        found = live_exact or exact[-1:] or live_begun or begun
        if not found:
            known = [run.id for run in runs]
            remedy = nearest(name, known) if known else "`mingle ls` on another host"
            raise UsageError("the id of a run", name or "an empty one", remedy)
        if len(found) > 1:
            seen = ", ".join(f"{run.run} ({run.id})" for run in found[:10])
            raise UsageError("the id of one run", f"{name}, which {len(found)} have: {seen}", found[0].run)
        if not exact:
            self._note(f"{name}: run {found[0].id} ({found[0].run})")
        return found[0]


# `mingle kill`: messages between it and a runner.
#
# ::
#
#     command                                   runner
#       KILL   {"now": …, "id": …}           →
#                                            ←  ENDING  it will end
#                                            ←  GONE    {"status": …}; only its own process is left
#
# The two prove to each other that they hold one of the user's keys, as an agent and its runner do. `id` is the same on
# all connections of one request, which counts once.

KILL, ENDING, GONE = range(50, 53)
_TAG_BYTES = 8
# Seconds that a run has for its answer.
ANSWER_S = 2.0


def kill_secret(material: bytes, run_id: str) -> Secret:
    """Return the secret of `mingle kill` for one run: of no use for another run, a world or an agent."""
    return Secret(Secret(material).mac(b"questions", run_id.encode()))


def kill_tag(secret: Secret) -> str:
    """Return a tag by which holders of the key recognise its secret; to others it shows nothing."""
    return secret.mac(b"which")[:_TAG_BYTES].hex()


def wait_for(loop: Loop, is_over: Callable[[], bool], limit_s: float) -> None:
    """Run a loop until this holds, at most for limit_s."""
    until = loop.clock() + limit_s
    timer = loop.after(limit_s, lambda: None)  # so that it turns then
    loop.run(lambda: is_over() or loop.clock() >= until)
    timer.cancel()


class Ending(NamedTuple):
    """The result of a request to end a run."""

    is_accepted: bool  # it has answered that it will end
    status: int | None = None  # with which it ended, if it sent that and its process has ended, too


def kill_run(
    run: RunStatus, keys: Sequence[bytes], *, is_now: bool, limit_s: float, answer_s: float = ANSWER_S
) -> Ending:
    """Tell a run to end, as for TERM, or with `is_now` as for a second Ctrl-C; wait for its end, at most limit_s.

    Raises SecretError if it takes this from none of these keys.
    """
    if not run.listeners:
        return Ending(is_accepted=False)
    ports = dict(run.listeners)
    secrets = [kill_secret(key, run.run) for key in keys]
    known = [(ports[tag], secret) for secret in secrets if (tag := kill_tag(secret)) in ports]
    if not known:
        seen = "none of them" if keys else "no key"
        raise SecretError(f"a key that run {run.id} takes `mingle kill` with", seen, "--key-file, or MINGLE_KEY")
    port, secret = known[0]
    request = {"now": is_now, "id": os.urandom(wire.NONCE_BYTES).hex()}
    links: list[Link] = []
    answers: list[tuple[Link, int | None]] = []  # over which link, and the status that GONE has

    def take(link: Link, kind: int, body: Body) -> None:
        if kind not in (ENDING, GONE):
            raise WireError("no answer")
        answers.append((link, wire.integer(body, "status", 0, 255) if kind == GONE else None))

    with Loop() as loop, ExitStack() as stack:
        for host in ("127.0.0.1",) if run.process.machine == runs_here() else run.addresses:
            with suppress(OSError):  # no way there
                link = Link(loop, dial(host, port), secret, is_runner=False, on_end=lambda _reason: None)
                stack.callback(link.close)
                # It asks on each connection, as the first to greet may be a stranger.
                link.on_proved = partial(link.send_message, KILL, request)
                link.on_message = partial(take, link)
                links.append(link)
        wait_for(loop, lambda: bool(answers) or all(link.closed for link in links), answer_s)
        if not answers:
            return Ending(is_accepted=False)
        answered = answers[0][0]
        for link in links:
            if link is not answered:
                link.close()
        wait_for(loop, lambda: answered.closed, limit_s)
        return Ending(is_accepted=True, status=answers[-1][1] if answered.closed else None)


# The most callers at once that do not wait for the end.
MOST_CALLERS = 64
_MOST_WAITING = 64
_TRIES = 16


class KillListener:
    """Takes `mingle kill` from holders of one of a run's keys, until close(); `on_kill(is_now)` ends the run."""

    def __init__(self, loop: Loop, run: str, keys: Sequence[bytes], on_kill: Callable[[bool], None]) -> None:
        self._reception = Reception(loop, self._take, MOST_CALLERS)
        self._on_kill = on_kill
        self.waiting: list[Link] = []
        self._requests: deque[bytes] = deque(maxlen=_MOST_WAITING)  # the ids of the last
        self.listeners: tuple[Listener, ...] = ()
        try:
            for key in keys[:MOST_LISTENERS]:
                self._listen(kill_secret(key, run))
        except NetworkError:
            self._reception.close()
            raise

    def close(self, status: int | None) -> None:
        """Send the run's status, if it has one, to all who wait for its end: only this process is left of the run."""
        if status is not None:
            for link in self.waiting:  # each ends with this process, which shows that it has ended
                link.send_message(GONE, {"status": status})
        self._reception.close()

    def _listen(self, secret: Secret) -> None:
        port, sockets = messages.open_listeners((0,) * _TRIES)
        if not port:
            raise NetworkError("a free port for `mingle kill`", "none", "ending a program that listens on this host")
        self._reception.listen(sockets, secret)
        self.listeners += (Listener(kill_tag(secret), port),)

    def _take(self, link: Link, kind: int, body: Body) -> None:
        """Answer a request. Raises WireError."""
        if kind != KILL:
            raise WireError("not a request")
        request = wire.hexadecimal(body, "id", wire.NONCE_BYTES) if "id" in body else b""  # version 1.0 has none
        self._reception.admit(link)
        self.waiting = [each for each in self.waiting if not each.closed and each is not link]
        self.waiting = [*self.waiting[-_MOST_WAITING + 1 :], link]
        link.send_message(ENDING, {})
        if not request or request not in self._requests:
            self._requests.append(request)
            self._on_kill(body.get("now") is True)


class RunState:
    """The changing part of a run's status; call `take` after each event, `report` for each report."""

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

    def status(self, fixed: RunStatus) -> RunStatus:
        """Return the status of the run; `fixed` has what does not change."""
        machine, roster = self._machine, self._machine.roster
        here = [all(roster.state[place] in ("idle", "busy") for place in roster.at([h])) for h in machine.plan.hosts]
        return fixed._replace(
            state=self._state,
            here=sum(here),
            attempt=machine.attempt if machine.attempt >= 0 else None,
            since=self._since,
            nodes=tuple(map(self._node, range(len(roster.places)))),
            failure=self._failure,
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
        (host, local), state, since = roster.places[place], roster.state[place], self._joined.get(place)
        if state in ("away", "called"):
            return Node(host, local, "missing", None, None)
        is_over = machine.phase == "over" and state == "idle" and place in machine.ranks
        if state != "busy" and not is_over:
            return Node(host, local, "lost" if state == "lost" else "waiting", None, since)
        phase: NodePhase = "running" if machine.has_formed(place) else "forming"
        phase = "ended" if is_over or place in roster.ended else phase
        return Node(host, local, phase, machine.ranks.get(place), since)


class StatusWriter:
    """Writes `status()` soon after each `changed()`, and every RENEW_S as a sign of life; the owner calls close().

    A thread writes, as a home may hang. `note(text)` gets one line on what hides the run from `mingle ls`, which is no
    reason not to run.
    """

    def __init__(
        self, loop: Loop, directory: str, status: Callable[[], RunStatus], note: Callable[[str], None]
    ) -> None:
        self._loop, self._path, self._status, self._note = loop, directory, status, note
        self._files = FileWriter(loop, lambda: None)
        self._files.call(partial(remove_old, directory), self._fail)
        self._latest: deque[RunStatus] = deque(maxlen=1)  # that is not written yet
        self._has_noted = self._has_changed = False
        self._timer = loop.after(0.0, self._write)

    def changed(self) -> None:
        """Write the status soon."""
        if not self._has_changed:
            self._has_changed = True
            self._timer.cancel()
            self._timer = self._loop.after(CHANGE_S, self._write)

    def close(self, status: int | None) -> None:
        """Write that the run has ended with this status; a home that does not answer delays that for a moment."""
        self._timer.cancel()
        self._put(self._status()._replace(state="ended", since=int(time.time()), status=status))
        self._files.close()

    def _write(self) -> None:
        self._has_changed = False
        self._put(self._status())
        self._timer = self._loop.after(RENEW_S, self._write)

    def _put(self, status: RunStatus) -> None:
        try:
            self._files.start()
        except (MingleError, RuntimeError) as error:  # no thread is left
            self._fail(error)
            return
        self._latest.append(status)
        self._files.call(self._write_latest, self._fail)

    def _write_latest(self) -> None:
        """Write the latest status, in the thread; while a home hangs, none of those before is kept."""
        with suppress(IndexError):  # it has been written
            write_status(self._path, self._latest.pop())

    def _fail(self, error: Exception) -> None:
        if not self._has_noted:
            self._has_noted = True
            self._note(f"`mingle ls` does not show this run as it is: {reason(error)}")
