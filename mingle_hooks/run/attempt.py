"""What a run decides about each attempt: its hosts and ranks, its end, the signals it gets, and its root cause."""

from __future__ import annotations

import itertools
import math
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from mingle_hooks.errors import MingleError, MissingError, NetworkError, printable
from mingle_hooks.rendezvous.wire import any_text
from mingle_hooks.run import messages
from mingle_hooks.run.messages import MOST_EXCEPTION, MOST_TAIL, Duration, Ended, Host, Rank, SignalNumber, Status
from mingle_hooks.run.starters import Place, places_on
from mingle_hooks.schedulers.facts import fold

# A time that never comes.
NEVER = math.inf


class Plan(NamedTuple):
    """What a run does; hosts in the order of their ranks, times in seconds from its beginning."""

    hosts: tuple[str, ...]
    slots: tuple[int, ...]  # places on each of these
    least: int  # hosts that an attempt needs
    most: int  # and takes
    restarts: int = 0
    grace_s: float = 10.0
    join_s: float = 300.0
    window_s: float = 30.0
    warn_at_s: float = NEVER
    limit_at_s: float = NEVER
    stall_s: float = NEVER  # a stall: no member writes for so long
    warn_signal: int = 10
    signals_reach_command: bool = False  # a signal of the scheduler reaches COMMAND as well as its agent

    @property
    def places(self) -> tuple[Place, ...]:
        """Return all places, host by host."""
        return places_on(self.hosts, self.slots)


# Hosts and ranks.


def rank_hosts(before: Sequence[str], here: Sequence[str], most: int) -> tuple[str, ...]:
    """Return at most `most` of the hosts that are here, in the order of their ranks.

    A host of the last attempt keeps its rank if the world is large enough for it. A free rank goes to a host whose own
    rank no longer exists, then to those that waited, in their order.
    """
    count = min(most, len(here))
    there = set(here)
    same = {rank: host for rank, host in enumerate(before[:count]) if host in there}
    moved = [host for host in before[count:] if host in there]
    rest = iter([*moved, *(host for host in here if host not in set(before))])
    return tuple(same[rank] if rank in same else next(rest) for rank in range(count))


# away: not started, or given up; called: its agent is started; idle: its agent is here, without COMMAND; busy: COMMAND
# or something of it runs; lost: its agent is lost, and what it started may still run.
State = Literal["away", "called", "idle", "busy", "lost"]

# A host whose failure ended so many attempts is replaced, if there is another.
MOST_FAILURES = 2


class Roster:
    """The places of a plan by number, the state of each, and the failures of each host."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self.places = plan, plan.places
        self.state: list[State] = ["away"] * len(self.places)  # changed by `put`
        self.count = Counter[State](self.state)  # places in each state: with thousands, each event cannot look at all
        self.ended: set[int] = set()  # busy places whose COMMAND has ended
        self.failures = dict.fromkeys(plan.hosts, 0)
        self.absences: dict[str, str] = {}  # host -> the last output of the starter whose agents never came
        self._at: dict[str, list[int]] = {host: [] for host in plan.hosts}
        for number, place in enumerate(self.places):
            self._at[place.host].append(number)

    def host(self, place: int) -> str:
        """Return a place's host."""
        return self.places[place].host

    def at(self, hosts: Iterable[str]) -> list[int]:
        """Return the places on these hosts, in their order."""
        return [place for host in hosts for place in self._at[host]]

    def put(self, place: int, state: State) -> None:
        """Change the state of a place."""
        self.count[self.state[place]] -= 1
        self.count[state] += 1
        self.state[place] = state

    def give_up(self, hosts: Iterable[str], state: State) -> list[int]:
        """Make the places on these hosts that are in this state away; return them."""
        given_up = [place for place in self.at(hosts) if self.state[place] == state]
        for place in given_up:
            self.put(place, "away")
        return given_up

    def call(self, hosts: Iterable[str]) -> None:
        """Note that agents have been started on these hosts."""
        for place in self.at(hosts):
            self.put(place, "called")
            self.absences.pop(self.host(place), None)

    def is_wanted(self, host: str) -> bool:
        """Return whether an attempt may take a host."""
        return len(self._plan.hosts) <= self._plan.least or self.failures[host] < MOST_FAILURES

    def here(self) -> list[str]:
        """Return the hosts that can take part now."""
        return self.wanted("idle")

    def wanted(self, state: State) -> list[str]:
        """Return the hosts that an attempt may take, and all of whose places are in this state."""
        return [host for host in self._plan.hosts if self.is_wanted(host) and self.is_whole(host, state)]

    def is_whole(self, host: str, state: State) -> bool:
        """Return whether all places on a host are in this state."""
        return all(self.state[place] == state for place in self._at[host])

    def busy(self) -> list[int]:
        """Return the places where an attempt runs, or something of it is left."""
        return [place for place, state in enumerate(self.state) if state == "busy"]

    def lost_hosts(self) -> tuple[str, ...]:
        """Return the hosts where processes of this run may be left that no agent ends."""
        return tuple(dict.fromkeys(self.host(place) for place, state in enumerate(self.state) if state == "lost"))

    def is_complete(self) -> bool:
        """Return whether the hosts that are to train are here, and no host still to come would get a rank instead."""
        here = self.here()
        return bool(here) and (not self.count["called"] or {*here}.issuperset(self._plan.hosts[: self._plan.most]))


# What ends a run from outside: a person, the scheduler, or the time limit.

HUP, INT, PIPE, TERM = 1, 2, 13, 15
ENDS = (HUP, INT, TERM)
# The run has to be over at the limit: COMMAND needs the grace, and the rest so long.
BEFORE_LIMIT_S = 5.0
# A scheduler's own warning may come so much earlier or later than ours.
NEAR_S = 60.0
# Where --warn does not tell when the scheduler warns: at most so long before the job's end.
LONGEST_WARNING_S = 3600.0
# How far the scheduler's clock may be ahead of ours, in whole seconds as schedulers tell times.
_CLOCKS_S = 2.0


class StopRequest(NamedTuple):
    """The signal that COMMAND gets, and the status of the run."""

    number: int
    status: int


class Stopping:
    """Holds the first request to stop, and when the warning, the limit and the end of the grace are due."""

    def __init__(self, plan: Plan, now: float) -> None:
        self._plan = plan
        self.request: StopRequest | None = None
        self.by = NEVER  # COMMAND may end by itself until then
        self._warning = now + plan.warn_at_s  # when the warning is due, or was
        limit_s = plan.limit_at_s
        # When the run has to end by itself: COMMAND gets half of a short time.
        self.limit_at = now + max(limit_s - plan.grace_s - BEFORE_LIMIT_S, limit_s / 2)
        self.end_at = now + limit_s  # the job's own limit, if known: TERM means it from then on
        self.is_hurried = self.was_warned = self._warned_by_clock = False

    @property
    def is_cut_short(self) -> bool:
        """Whether the run was warned of its time limit, and nobody stopped it."""
        by_people = (SIGNALLED + INT, SIGNALLED + TERM)
        return self.was_warned and (self.request is None or self.request.status not in by_people)

    @property
    def due(self) -> float:
        """Return when something is to be done at the latest."""
        return min(self.by, NEVER if self.was_warned else self._warning, NEVER if self.request else self.limit_at)

    def is_limit(self, number: int, now: float) -> bool:
        """Return whether a signal is the scheduler's at the time limit: TERM after the warning, or at the job's end."""
        return number == TERM and (self.was_warned or now > self.end_at - _CLOCKS_S)

    def stop(self, number: int, now: float, status: int | None = None) -> bool:
        """Record a request to stop; tell whether it is the first."""
        if self.request is not None:
            return False
        usual = INFRASTRUCTURE if self.is_limit(number, now) else SIGNALLED + number
        self.request = StopRequest(number, usual if status is None else status)
        return True

    def is_warning_due(self, now: float) -> bool:
        """Return True once, when the warning is due."""
        if self.was_warned or now < self._warning:
            return False
        self.was_warned = self._warned_by_clock = True
        return True

    def is_warning(self, number: int, now: float) -> bool:
        """Return whether a signal is the warning; one that otherwise ends the run counts only near its time."""
        is_late = self.end_at == NEVER or now > self.end_at - LONGEST_WARNING_S
        may_warn = self._is_near(now) or (number not in ENDS and is_late)
        is_warning = number == self._plan.warn_signal and may_warn
        self.was_warned = self.was_warned or is_warning
        return is_warning

    def is_repeated(self, number: int, now: float) -> bool:
        """Return whether a signal is the warning that our clock has given."""
        return self._warned_by_clock and number == self._plan.warn_signal and self._is_near(now)

    def _is_near(self, now: float) -> bool:
        return abs(now - self._warning) <= NEAR_S


# Each signal reaches COMMAND once, wherever and however often it is noticed.

# The same signal within this many seconds is the same one: a scheduler sends it to all hosts, not quite at once.
SAME_S = 2.0
# Wait this long for the hosts that got it from the scheduler too, before it goes to the others.
GATHER_S = 0.25


class Delivery(NamedTuple):
    """A signal on its way to COMMAND; `reached` are the places where the scheduler has signalled COMMAND."""

    id: int
    number: int
    at: float
    reached: set[int]


class Deliveries:
    """The signals on their way. `reaches`: the scheduler signals COMMAND as well as its agent."""

    def __init__(self, *, reaches: bool) -> None:
        self._reaches = reaches
        self._gather_s = GATHER_S if reaches else 0.0
        self._latest: dict[int, Delivery] = {}  # by number
        self._waiting: list[Delivery] = []
        self._ids = itertools.count(1)

    @property
    def due(self) -> float:
        """Return when the next one is to be sent."""
        return self._waiting[0].at + self._gather_s if self._waiting else NEVER

    def notice(self, number: int, place: int | None, now: float) -> bool:
        """Record a signal; tell whether it is a new one."""
        latest = self._latest.get(number)
        is_new = latest is None or now >= latest.at + SAME_S
        if latest is None or is_new:
            latest = self._latest[number] = Delivery(next(self._ids), number, now, set())
            self._waiting.append(latest)
        if self._reaches and place is not None:
            latest.reached.add(place)
        return is_new

    def ready(self, now: float) -> list[Delivery]:
        """Return those that are due."""
        due = [one for one in self._waiting if one.at + self._gather_s <= now]
        del self._waiting[: len(due)]
        return due


# After so many restarts that failed in the same way there is no further one.
MOST_SAME_RESTARTS = 3


class RootCause:
    """The cause of an attempt's end, and the places that were quiet then: if one is lost, that was the root cause."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self.cause: Cause | None = None
        self.is_echo = False  # the cause may follow from a failure that is noticed later
        self.progress: object = None  # changes as the program advances
        self._quiet: dict[int, float] = {}  # place -> since when
        self.suspects: set[int] = set()
        self._is_reported = True
        self._last: object = None
        self._same = 0

    def reset(self) -> None:
        """Begin an attempt, which has no cause yet."""
        self.cause, self._is_reported = None, True
        self.suspects.clear()

    def quiet(self, place: int, since: float) -> None:
        """Record that a place sends no heartbeats."""
        self._quiet[place] = since

    def alive(self, place: int) -> None:
        """Record a heartbeat or a message."""
        self._quiet.pop(place, None)
        self.suspects.discard(place)

    def suspect(self, places: Iterable[int]) -> None:
        """Report the cause only once it is known whether those of the places that are quiet now are lost."""
        self.suspects = self._quiet.keys() & places

    def is_suspect(self, place: int) -> bool:
        """Return whether the loss of a place would be the cause: it was quiet, or an echo may be one of that loss."""
        return place in self.suspects or (self.is_echo and place not in self._roster.ended)

    def silent_since(self, place: int) -> float | None:
        """Return since when such a place is quiet; None for any other."""
        return self._quiet.get(place) if self.is_suspect(place) else None

    def set(self, cause: Cause) -> None:
        """Make this the cause, in place of the one before."""
        if self.cause is not None and self.cause.is_of_host:
            self._roster.failures[self.cause.host] -= 1
        self.cause, self._is_reported = cause, False
        self.is_echo = messages.ECHO.search(cause.exception) is not None
        if cause.is_of_host:
            self._roster.failures[cause.host] += 1

    def to_report(self) -> Cause | None:
        """Return the cause once it is certain, and only once."""
        if self._is_reported or self.suspects or self.is_echo:
            return None
        self._is_reported = True
        return self.cause

    def is_same_again(self) -> bool:
        """Count the cause; tell whether too many restarts in a row have failed in the same way without progress."""
        last = None if self.cause is None or self.cause.likeness is None else (self.cause.likeness, self.progress)
        has_trained = self.cause is not None and self.cause.after_s >= LONG_S
        self._same = self._same + 1 if last is not None and last == self._last and not has_trained else 0
        self._last = last
        return self._same >= MOST_SAME_RESTARTS


# ended: COMMAND did; unformed: it never began; silent, gone: its agent; absent: an agent never came;
# isolated: the runner's host; stalled: no member wrote.
Kind = Literal["ended", "unformed", "silent", "gone", "absent", "isolated", "stalled"]

# The infrastructure failed, and trying again makes sense.
INFRASTRUCTURE = os.EX_TEMPFAIL
SIGNALLED = 128
# Statuses of `mingle exec` before COMMAND begins that another try does not change: all but those of the infrastructure.
_PASSING = (MissingError.exit_code, NetworkError.exit_code)
_MISTAKES = {MingleError.exit_code, *(kind.exit_code for kind in MingleError.__subclasses__())}.difference(_PASSING)
# What differs between two failures that are the same: numbers and addresses.
_VARYING = re.compile(r"0x[0-9a-fA-F]+|\d+")
# The first line about a process, and of a thread's stack.
_BLOCK = re.compile(r"Process \d|(Current t|T)hread ")
# An attempt that trained for so long counts as progress.
LONG_S = 600.0
# Lines of an error by which it is known again.
SAME_LINES = 5


class Cause(NamedTuple):
    """The first failure of an attempt."""

    kind: Kind
    host: Host
    rank: Rank | None
    after_s: Duration  # since the attempt began; where none has, since the run
    status: Status = INFRASTRUCTURE
    signal: SignalNumber | None = None
    is_oom: bool = False
    silent_s: Duration | None = None
    tail: Annotated[str, any_text(MOST_TAIL)] = ""
    exception: Annotated[str, any_text(MOST_EXCEPTION)] = ""

    @property
    def may_be_retried(self) -> bool:
        """Whether another attempt may end otherwise."""
        return self.kind != "unformed" and not (self.kind == "ended" and self.status in (126, 127))

    @property
    def is_of_host(self) -> bool:
        """Whether it counts as a failure of its host."""
        return self.may_be_retried and self.kind not in ("isolated", "stalled")

    @property
    def likeness(self) -> tuple[object, ...] | None:
        """Return what is equal for two failures that are the same; None where it was not the program."""
        if self.kind != "ended":
            return None
        what = (_VARYING.sub("0", self.exception),) if self.exception else _error_lines(self.tail)
        return self.status, self.signal, self.is_oom, what


def cause_of_end(ended: Ended, host: str, rank: int, after_s: float) -> Cause:
    """Return the cause for the end of a COMMAND."""
    status = SIGNALLED + ended.signal if ended.signal is not None else ended.status
    if not ended.formed:
        status = status if status in _MISTAKES else INFRASTRUCTURE
        return Cause("unformed", host, rank, after_s, status, tail=ended.tail)
    return Cause(
        "ended", host, rank, after_s, status, ended.signal, ended.is_oom, tail=ended.tail, exception=ended.exception
    )


def _error_lines(tail: str) -> tuple[str, ...]:
    """Return the first lines of the error in what COMMAND wrote last; numbers differ from run to run."""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    first = next((at for at, line in enumerate(lines) if "traceback" in line.lower() or "error" in line.lower()), None)
    found = lines[-SAME_LINES:] if first is None else lines[first : first + SAME_LINES]
    return tuple(_VARYING.sub("0", line) for line in found)


Fields = Mapping[str, Any]

# Of the output of the first member that failed.
MOST_LINES, LONGEST_LINE = 20, 400


def event_text(name: str, fields: Fields) -> str | None:
    """Return the line about an event; None for one that only the log has."""
    text = EVENTS[name].text
    found = text(fields) if callable(text) else text.format(**fields, name=signal_name(fields.get("number") or 0))
    return f"mingle run: {found}\n" if found else None


def signal_name(number: int) -> str:
    """Return a signal's name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _failed(fields: Fields) -> str:
    cause = Cause._make(fields[name] for name in Cause._fields)
    if cause.kind == "stalled":
        return f"no rank has written anything for {_duration(cause.silent_s or 0.0)}"
    exception = f"{printable(cause.exception, LONGEST_LINE)}; " if cause.exception else ""
    return f"{_member(fields)}: {exception}{_what(cause)}{_lines(cause)}"


def _member(fields: Fields) -> str:
    return f"{fields['host']}" if fields.get("rank") is None else f"{fields['host']} (rank {fields['rank']})"


def _duration(time_s: float) -> str:
    minutes, rest_s = divmod(time_s, 60)
    return f"{time_s:g} s" if rest_s or not minutes else f"{minutes:.0f} min"


def stacks_text(host: str, rank: int, text: str) -> str:
    """Return a member's stacks as text, equal ones once, without control characters that a terminal would obey."""
    lines = [f"  {printable(line, LONGEST_LINE)}\n" for line in _merged(text.splitlines())]
    return f"mingle run: {host} (rank {rank}): its stacks:\n{''.join(lines)}"


def _merged(lines: Sequence[str]) -> list[str]:
    """Return stacks as py-spy and faulthandler write them, with equal ones of a process's threads once."""
    starts = [at for at, line in enumerate(lines) if _BLOCK.match(line)]
    found, more = [*lines[: starts[0] if starts else None]], Counter[int]()
    first: dict[tuple[str, ...], int] = {}  # a stack of this process -> the place of its first thread in `found`
    for start, end in itertools.pairwise([*starts, len(lines)]):
        head, *stack = [line for line in lines[start:end] if line]
        if head.startswith("Process "):
            first.clear()
        elif (at := first.setdefault(tuple(stack), len(found))) != len(found):
            more[at] += 1
            continue
        found += [head, *stack]
    for at, count in more.items():
        found[at] += f" and {count} more with the same stack"
    return found


def _what(cause: Cause) -> str:
    after = f"after {cause.after_s:.0f} s"
    if cause.kind in ("silent", "isolated"):
        what = "no sign of life" if cause.kind == "silent" else "cut off from all other nodes"
        return f"{what} for {cause.silent_s or 0:.0f} s"
    if cause.kind == "gone":
        return f"its agent was killed or lost its connection {after}"
    if cause.kind == "absent":  # with the starter's last output, where that has ended
        how = "could not be started" if cause.tail else f"did not start within {cause.after_s:.0f} s"
        return f"its agent {how}"
    if cause.kind == "unformed":
        return f"no world formed {after} (status {cause.status})"
    oom = ": out of memory" if cause.is_oom else ""
    if cause.signal is not None:
        return f"killed by {signal_name(cause.signal)} {after}{oom}"
    return f"exited with status {cause.status} {after}{oom}"


def _lines(cause: Cause) -> str:
    lines = [line for line in cause.tail.splitlines() if line.strip()]
    if not lines or cause.kind in ("absent", "unformed"):  # what a starter, or mingle itself, printed has been shown
        return ""
    return "; its last lines:\n" + "\n".join(f"  {printable(line, LONGEST_LINE)}" for line in lines[-MOST_LINES:])


def _missing(fields: Fields) -> str:
    return f"{fold(fields['hosts'])} cannot be reached: called again for up to {_duration(fields['within_s'])}"


def _used_up(fields: Fields) -> str:
    return f"no restart: {fold(fields['hosts'])} failed twice each, and too few other hosts are left"


def _paused(fields: Fields) -> str:
    return f"{_member(fields)}: no heartbeat for {fields['silent_s']:.0f} s, but the host answers: waiting for it"


def _lost(fields: Fields) -> str | None:
    return None if fields.get("rank") is not None else f"{fields['host']}, which waited, is lost"


def _stopped(fields: Fields) -> str:
    why = fields["why"] or f"{signal_name(fields['number'])} received"
    return f"ending: {why}; the grace period of COMMAND is {fields['grace_s']:.0f} s"


def _formed(fields: Fields) -> str | None:
    """Say where the world is, where it is more than this host."""
    hosts = fields["hosts"]
    where = f"rank 0 at {fields['addr']} port {fields['port']}"
    return f"{fold(hosts)} are one world, {where}" if len(hosts) > 1 else None


# The version of an event's form: fields are added without a new one.
EVENT_SCHEMA = 1


class EventKind(NamedTuple):
    """What an event of events.jsonl means, and its line on stderr: empty where it has none."""

    help: str
    text: str | Callable[[Fields], str | None] = ""


EVENTS = {
    "forming": EventKind("An attempt begins on these hosts."),
    "missing": EventKind("These hosts have no agent; mingle starts it again for within_s.", _missing),
    "absent": EventKind("A host has not returned.", "{host} did not return"),
    "used_up": EventKind("These hosts have failed twice, and too few others are left.", _used_up),
    "started": EventKind("A member has its place in the world; spent_ms are the durations of its start."),
    "formed": EventKind("All members have their places; the others waited for `last`.", _formed),
    "ended": EventKind("COMMAND has ended on a host."),
    "failed": EventKind("The first failure of an attempt.", _failed),
    "paused": EventKind("An agent is silent, but its host answers.", _paused),
    "lost": EventKind("An agent is lost.", _lost),
    "unreached": EventKind(
        "mingle cannot end the processes of a lost host.", "{host} cannot be reached: processes there end by themselves"
    ),
    "again": EventKind("An attempt follows.", "restarts: attempt {attempt}"),
    "same": EventKind("No attempt follows.", "the same failure repeats: no further restart"),
    "warned": EventKind("The time limit is near.", "the time limit is near: {name} to all"),
    "signal": EventKind("The run received a signal and sent it to COMMAND.", "{name} received, and sent to all nodes"),
    "stopped": EventKind("The run ends on request.", _stopped),
    "over": EventKind("The run has ended with this status."),
}
