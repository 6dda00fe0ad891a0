"""A run as a state machine: events go in, actions come out.

It has no sockets and no clock: the caller passes each event with its time, and Time once `due` has come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from mingle_hooks.rendezvous import report
from mingle_hooks.rendezvous.messages import Durations
from mingle_hooks.run import attempt, messages
from mingle_hooks.run.attempt import NEVER, Cause, Plan

# Events. A place is named by its number.


class Joined(NamedTuple):
    """An agent has connected."""

    place: int


class Received(NamedTuple):
    """A message from the agent at a place."""

    place: int
    message: messages.AgentMessage


class Noticed(NamedTuple):
    """A signal reached the runner itself."""

    number: int


class Quiet(NamedTuple):
    """A place has sent no heartbeat for some seconds; it may be lost since its last one."""

    place: int


class Alive(NamedTuple):
    """A place that was quiet sends heartbeats again."""

    place: int


class Paused(NamedTuple):
    """A place has been silent for so many seconds, but its host answers: its agent is stopped."""

    place: int
    silent_s: float


class Isolated(NamedTuple):
    """All agents on other hosts have been silent for so many seconds: it is the runner's host that is cut off."""

    host: str
    silent_s: float


class Lost(NamedTuple):
    """An agent is lost: silent for so many seconds, or its connection has ended (None)."""

    place: int
    silent_s: float | None


class StarterEnded(NamedTuple):
    """The starter of the agents on these hosts has ended, with this last output."""

    hosts: tuple[str, ...]
    output: str


class Swept(NamedTuple):
    """A host has been swept, or could not be reached."""

    host: str
    is_clean: bool


class Resumed(NamedTuple):
    """The runner goes on, which was stopped for so many seconds."""

    stopped_s: float


class Hurry(NamedTuple):
    """A request to end at once."""


class Killed(NamedTuple):
    """`mingle kill` was called."""


class ReaderGone(NamedTuple):
    """Nobody reads the run's output any more."""


class Time(NamedTuple):
    """The time `due` has come."""


OfAgent = Joined | Received | Quiet | Alive | Paused | Lost
Event = OfAgent | Noticed | Isolated | StarterEnded | Swept | Resumed | Hurry | Killed | ReaderGone | Time

# Actions.


class Launch(NamedTuple):
    """Start agents on these hosts."""

    hosts: tuple[str, ...]


class Begin(NamedTuple):
    """Start COMMAND at a place, as this member of an attempt's world."""

    place: int
    attempt: int
    rank: int  # among the attempt's members
    hosts: tuple[str, ...]  # of the attempt, in the order of their ranks
    slots: tuple[int, ...]  # members on each of these


class Send(NamedTuple):
    """Send a message to the agent at a place."""

    place: int
    message: messages.End | messages.Signal | messages.Dump


class Show(NamedTuple):
    """Show the stacks of a place."""

    place: int
    rank: int
    text: str


class Drop(NamedTuple):
    """Forget the agent at a place, which is lost."""

    place: int


class Sweep(NamedTuple):
    """End what is left of this run on these hosts."""

    hosts: tuple[str, ...]


class Report(NamedTuple):
    """An event for people, or for events.jsonl."""

    name: str
    fields: Mapping[str, object]


class Exit(NamedTuple):
    """The run is over: dismiss the agents and exit with this status; `at_once`: without waiting for them."""

    status: int
    at_once: bool = False


Action = Launch | Begin | Send | Show | Drop | Sweep | Report | Exit


class Stall:
    """The clock of --stall: since when no member has written, beginning when a world has formed."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self.since: float | None = None  # None outside of an attempt that runs
        self._is_held = False  # output is not read, as the run's own reader does not read

    @property
    def due(self) -> float:
        """Return when the attempt counts as stalled: never while the clock stands."""
        return NEVER if self.since is None or self._is_held else self.since + self._after_s

    def wrote(self, now: float) -> None:
        """Start the clock anew, because a member has written."""
        if self.since is not None:
            self.since = now

    def hold(self, now: float, *, is_held: bool) -> None:
        """Stop the clock while no output is read, and start it anew afterwards."""
        self._is_held = is_held
        self.wrote(now)


# gathering ──▶ running ──▶ ending ──▶ sweeping ──▶ gathering, for another attempt
#     │            │  ╰▶ dumping ─▲         │
#     └────────────┴────────────────────────┴──────▶ over
Phase = Literal["gathering", "running", "dumping", "ending", "sweeping", "over"]

# Seconds after the grace until a host that is not clean is swept, and that a sweep may take.
CLEAN_S, SWEEP_S = 5.0, 10.0
# Seconds that an agent has to take stacks, and that the runner waits for them.
DUMP_S, STACKS_S = 10.0, 15.0
# Seconds to wait, with enough hosts here, for hosts that would get lower ranks.
ORDER_S = 2.0
# Seconds until hosts that a restart could not reach are called again, doubled each time, and the most.
BACKOFF_S, LONGEST_BACKOFF_S = 1.0, 30.0
# The grace of COMMAND after a second Ctrl-C, and after a first that did not end it.
AT_ONCE_S, SHORT_GRACE_S = 0.0, 2.0


class Machine:
    """One run, which begins now: call `begin` once, then `take` for each event."""

    def __init__(self, plan: Plan, now: float) -> None:
        self.plan = plan
        self.roster = attempt.Roster(plan)
        self.root_cause = attempt.RootCause(self.roster)
        self.phase: Phase = "gathering"
        self.attempt = -1
        self._order: tuple[str, ...] = ()  # the last attempt's hosts, by rank
        self.ranks: dict[int, int] = {}  # place -> rank among the attempt's places
        self._formed: dict[int, tuple[float, tuple[int, ...]]] = {}  # place -> when, and the member's phases
        self.had_world = False  # in any attempt
        self.stopping = attempt.Stopping(plan, now)
        self._had_failed = False  # the attempt, before the request to stop
        self.stall = Stall(plan.stall_s)
        self._dumping: set[int] = set()  # places whose stacks are awaited
        self._deliveries = attempt.Deliveries(reaches=plan.signals_reach_command)
        self._began = now  # the attempt; before the first, the run
        self._until = NEVER  # when the phase is over in any case
        self._settle = NEVER  # when an attempt begins without the hosts that may still come
        self._call_again_at = NEVER  # when hosts that could not be reached are called again
        self._backoff_s = BACKOFF_S
        self._actions: list[Action] = []

    @property
    def due(self) -> float:
        """Return when Time has to come at the latest."""
        if self.phase == "over":
            return NEVER
        of_phase = (self._until, self._settle, self._call_again_at, self._stall_due())
        return min(*of_phase, self._deliveries.due, self.stopping.due)

    @property
    def is_ending(self) -> bool:
        """Whether the attempt is ending, or a request to stop has come."""
        return self.phase not in ("gathering", "running") or self.stopping.request is not None

    def has_formed(self, place: int | None = None) -> bool:
        """Return whether the attempt's world has formed, at one place or at all."""
        return len(self._formed) == len(self.ranks) if place is None else place in self._formed

    def begin(self) -> list[Action]:
        """Return the first actions."""
        self._call(self.plan.hosts, self._began)
        return self._taken()

    def take(self, event: Event, now: float) -> list[Action]:  # noqa: C901, PLR0912 - a branch for each event
        """Take an event; return the actions that it leads to."""
        if self.phase == "over":  # only the rest of its output is awaited
            is_own = isinstance(event, Noticed) and event.number in attempt.ENDS
            return [Exit(self._status(), at_once=True)] if is_own or isinstance(event, Hurry | Killed) else []
        match event:
            case Received(place, message):
                self._received(place, message, now)
            case Joined(place):
                self.root_cause.alive(place)
                if self.roster.state[place] in ("called", "away"):  # or given up, and here after all
                    self.roster.put(place, "idle")
                    if self.roster.is_whole(self.roster.host(place), "idle") or not self.roster.count["called"]:
                        self._gathered(now)
            case Noticed(number):
                self._noticed(None, number, now)
            case Quiet(place):
                self.root_cause.quiet(place, now)
            case Alive(place):
                self.root_cause.alive(place)
            case Paused(place, silent_s):
                self._report("paused", place, silent_s=silent_s)
            case Isolated(host, silent_s):
                if self.phase == "running" and self.stopping.request is None:
                    self._fail(Cause("isolated", host, None, now - self._began, silent_s=silent_s), now)
            case Lost():
                self._lost(event, now)
            case StarterEnded(hosts, output):
                self._starter_ended(hosts, output, now)
            case Swept(host, is_clean):
                self._swept(host, is_clean=is_clean, now=now)
            case Resumed(stopped_s):
                self._resumed(stopped_s, now)
            case Hurry():  # however often it comes, and whatever stopped the run before
                self._stop(attempt.INT, now)
                if not self.stopping.is_hurried:
                    self._hurry(now)
            case Killed():
                self._stop(attempt.TERM, now, attempt.SIGNALLED + attempt.TERM)
            case ReaderGone():
                self._stop(attempt.TERM, now, attempt.SIGNALLED + attempt.PIPE, why="its output is no longer read")
        self._do_what_is_due(now)
        return self._taken()

    def _received(self, place: int, message: messages.AgentMessage, now: float) -> None:
        if isinstance(message, messages.Noticed):
            self._noticed(place, message.signal, now)
        elif message.attempt != self.attempt:
            return
        elif isinstance(message, messages.Stacks):
            if self.phase == "dumping" and place in self._dumping:
                self._actions.append(Show(place, self.ranks[place], message.text))
                self._dumped(place, now)
        elif self.roster.state[place] != "busy":
            return
        elif isinstance(message, messages.Formed):
            self._formed_at(place, message, now)
        elif isinstance(message, messages.Ended):
            self._command_ended(place, message, now)
        else:
            self.roster.put(place, "idle")
            self.root_cause.alive(place)
            self._cleaned(now)

    # Gathering.

    def _call(self, hosts: tuple[str, ...], now: float) -> None:
        self.phase, self._until, self._settle = "gathering", now + self.plan.join_s, NEVER
        self._backoff_s = BACKOFF_S
        will_be_here = {*hosts, *self.roster.here()}
        forming = [host for host in self.plan.hosts if host in will_be_here]
        self._report("forming", attempt=self.attempt + 1, hosts=forming)
        self._launch(hosts)

    def _launch(self, hosts: tuple[str, ...]) -> None:
        self._call_again_at = NEVER
        if hosts:
            self.roster.call(hosts)
            self._actions.append(Launch(hosts))

    def _starter_ended(self, hosts: tuple[str, ...], output: str, now: float) -> None:
        for place in self.roster.give_up(hosts, "called"):
            self.roster.absences[self.roster.host(place)] = output
        self._gathered(now)

    def _missing(self) -> tuple[str, ...]:
        """Return the hosts that an attempt still needs and that can be called.

        A starter starts all agents of a host: those that are left on one are given up first.
        """
        for host in self.plan.hosts:
            if any(self.roster.state[place] == "away" for place in self.roster.at([host])):
                self._actions += map(Drop, self.roster.give_up([host], "idle"))
        return tuple(self.roster.wanted("away")[: max(self.plan.most - len(self.roster.here()), 0)])

    def _wait_for_missing(self, now: float) -> None:
        """Call the hosts that a restart needs once more, later: they may come back. Without any the run is over."""
        missing = self._missing()
        if self.attempt < 0 or not missing:
            self._absent(now)
        elif self._call_again_at == NEVER:
            if self._backoff_s == BACKOFF_S:
                self._report("missing", hosts=list(missing), within_s=self.plan.join_s)
            self._call_again_at = now + self._backoff_s
            self._backoff_s = min(2 * self._backoff_s, LONGEST_BACKOFF_S)

    def _gathered(self, now: float) -> None:
        """Begin an attempt if the hosts that are to train are here, or no other host is awaited."""
        if self.phase != "gathering":
            return
        here, plan = self.roster.here(), self.plan
        if len(here) >= plan.least and self.roster.is_complete():
            self._start(here, now)
        elif not self.roster.count["called"]:
            self._wait_for_missing(now)
        elif len(here) >= plan.least:
            window_s = min(ORDER_S, plan.window_s) if len(here) >= plan.most else plan.window_s
            self._settle = min(self._settle, now + window_s)

    def _gathered_late(self, now: float) -> None:
        """Begin with the hosts that are here, if they are enough; the others are given up."""
        here = self.roster.here()
        if len(here) >= self.plan.least:
            self._start(here, now)
            return
        self.roster.give_up(self.plan.hosts, "called")
        self._absent(now)

    def _absent(self, now: float) -> None:
        """End the run because a host never came, or too few are left that may be used."""
        here, absences = self.roster.here(), self.roster.absences
        missing = [host for host in self.plan.hosts if host not in here and self.roster.is_wanted(host)]
        if not missing:
            failed = [host for host in self.plan.hosts if not self.roster.is_wanted(host)]
            self._report("used_up", hosts=failed)
        else:
            host = next((host for host in missing if host in absences), missing[0])
            if self.root_cause.cause is None:
                self.root_cause.set(Cause("absent", host, None, now - self._began, tail=absences.get(host, "")))
            else:
                self._report("absent", host=host)
        self._over()

    # Running.

    def _start(self, here: list[str], now: float) -> None:
        self.attempt += 1
        self._order = attempt.rank_hosts(self._order, here, self.plan.most)
        self.phase, self._until, self._settle, self._began = "running", NEVER, NEVER, now
        self.root_cause.reset()
        self._formed.clear()
        self.stall.since = None
        self.roster.ended.clear()
        slots = tuple(len(self.roster.at([host])) for host in self._order)
        self.ranks = {place: rank for rank, place in enumerate(self.roster.at(self._order))}
        for place, rank in self.ranks.items():
            self.roster.put(place, "busy")
            self._actions.append(Begin(place, self.attempt, rank, self._order, slots))

    def _formed_at(self, place: int, formed: messages.Formed, now: float) -> None:
        self._formed[place] = now, formed.durations
        self._report("started", place, spent_ms=list(formed.durations))
        if self.has_formed():
            self.had_world = True
            self.stall.since = now
            where = {"addr": formed.addr, "port": formed.port, "hosts": list(self._order)}
            self._report("formed", None, nodes=formed.nodes, **where, **self._last_ready())

    def _last_ready(self) -> dict[str, Any]:
        """Return which member the others waited for, and why; nothing if they did not wait or report no times."""
        found = []
        for place in sorted(self._formed, key=self.ranks.__getitem__):
            formed, phases = self._formed[place]
            if phases:
                durations = Durations(*phases)
                after_s = (durations.formed_ms - durations.in_ms) / 1000
                found.append((self.roster.host(place), formed - after_s, durations))
        last = report.last_to_arrive(report.phases(found))
        return {} if last is None else {"last": last}

    def _command_ended(self, place: int, ended: messages.Ended, now: float) -> None:
        if place in self.roster.ended:
            return
        self.roster.ended.add(place)
        self._report("ended", place, status=ended.status, signal=ended.signal)
        cause = attempt.cause_of_end(ended, self.roster.host(place), self.ranks[place], now - self._began)
        # A program that this run has ended by a signal may have written its exception long ago.
        is_own = ended.exception and not messages.ECHO.search(ended.exception) and cause.status < attempt.SIGNALLED
        if self.phase == "ending" and self.root_cause.is_echo and is_own:
            self.root_cause.set(cause)
        elif self.phase == "running" and self.stopping.request is None and (ended.status or ended.signal is not None):
            self.root_cause.alive(place)
            self.root_cause.suspect(self.roster.busy())
            self._fail(cause, now)

    def _lost(self, event: Lost, now: float) -> None:
        place, state = event.place, self.roster.state[event.place]
        if state in ("away", "lost"):
            return
        was_busy, was_suspect = state == "busy", self.root_cause.is_suspect(place)
        self.root_cause.alive(place)
        self.roster.put(place, "lost" if was_busy else "away")
        self._actions.append(Drop(place))
        self._report("lost", place, silent_s=event.silent_s)
        if was_busy:
            kind: Literal["gone", "silent"] = "gone" if event.silent_s is None else "silent"
            host, after_s = self.roster.host(place), now - self._began
            cause = Cause(kind, host, self.ranks[place], after_s, silent_s=event.silent_s)
            if self.phase == "running" and self.stopping.request is None:
                self._fail(cause, now)
            elif was_suspect and self.phase == "ending":  # it was the first, though another was noticed before
                self.root_cause.set(cause)
        self._dumped(place, now)
        self._cleaned(now)
        self._gathered(now)

    def _fail(self, cause: Cause, now: float) -> None:
        self.root_cause.set(cause)
        self._end(self.plan.grace_s, now)

    def _dump(self, now: float) -> None:
        """Report a stall, and get all stacks before the end."""
        self.root_cause.set(Cause("stalled", self._order[0], None, now - self._began, silent_s=self.plan.stall_s))
        self.phase, self._until, self.stopping.by = "dumping", now + STACKS_S, NEVER
        self._dumping = {*self.roster.busy()}
        self._send_busy(messages.Dump(self.attempt, int(DUMP_S * 1000)))

    def _dumped(self, place: int, now: float) -> None:
        """Wait for no more stacks from a place; the end begins when all are known."""
        self._dumping.discard(place)
        if self.phase == "dumping" and not self._dumping:
            self._end(self.plan.grace_s, now)

    # Signals, and requests to stop.

    def _noticed(self, place: int | None, number: int, now: float) -> None:
        if self.stopping.is_repeated(number, now):
            return
        is_warning = self.stopping.is_warning(number, now)
        is_new = self._deliveries.notice(number, place, now)
        request = self.stopping.request
        if number == attempt.INT and place is None and request is not None and request.number == attempt.INT:
            self._hurry(now)
        elif number in attempt.ENDS and not is_warning:
            self._stop(number, now)
        elif is_new:
            self._report("signal", place, number=number)

    def _stop(self, number: int, now: float, status: int | None = None, why: str = "") -> None:
        """Stop on request: COMMAND gets the signal, and has the grace to end by itself."""
        if not self.stopping.stop(number, now, status):
            return
        if not why and status is None and self.stopping.is_limit(number, now):
            why = "its time limit has come"
        self._report("stopped", number=number, why=why, grace_s=self.plan.grace_s)
        self._had_failed = self.phase in ("ending", "sweeping")
        if self.phase == "gathering":
            self._over()
        elif self.phase == "running":
            self.stopping.by = now + self.plan.grace_s
            self._deliveries.notice(number, None, now)
        elif self.phase == "dumping":
            self._end(self.plan.grace_s, now)

    def _hurry(self, now: float) -> None:
        """End at once what still runs, after a second Ctrl-C; exit without waiting after a third."""
        if self.stopping.is_hurried:
            self.phase = "over"
            self._actions.append(Exit(attempt.SIGNALLED + attempt.INT, at_once=True))
        elif self.phase in ("running", "dumping", "ending"):
            self._end(AT_ONCE_S, now)
        self.stopping.is_hurried = True

    # The end of an attempt, and of the run.

    def _end(self, grace_s: float, now: float) -> None:
        self.phase, self._until, self.stopping.by = "ending", now + grace_s + CLEAN_S, NEVER
        self._send_busy(messages.End(self.attempt, int(grace_s * 1000)))
        self._cleaned(now)

    def _cleaned(self, now: float) -> None:
        """Go on once nothing of the attempt is left that an agent could end."""
        if self.phase in ("running", "ending") and not self.roster.count["busy"]:
            self._sweep(now)

    def _sweep(self, now: float) -> None:
        hosts = self.roster.lost_hosts()
        if hosts:
            self.phase, self._until = "sweeping", now + SWEEP_S
            self._actions.append(Sweep(hosts))
        else:
            self._decide(now)

    def _swept(self, host: str, *, is_clean: bool, now: float) -> None:
        if self.phase != "sweeping":
            return
        self.roster.give_up([host], "lost")
        if not is_clean:
            self._report("unreached", host=host)
        if not self.roster.count["lost"]:
            self._decide(now)

    def _ended_late(self, now: float) -> None:
        """Give up the places that are not clean."""
        for place in self.roster.busy():
            if (since := self.root_cause.silent_since(place)) is not None:
                host, rank = self.roster.host(place), self.ranks[place]
                self.root_cause.set(Cause("silent", host, rank, now - self._began, silent_s=now - since))
            self.root_cause.alive(place)
            self.roster.put(place, "lost")
            self._actions.append(Drop(place))
        self._sweep(now)

    def _decide(self, now: float) -> None:
        """End the run, or restart."""
        self.root_cause.suspects.clear()
        self.root_cause.is_echo = False
        self._report_cause()
        cause = self.root_cause.cause
        if self.stopping.request is not None or cause is None or not self._may_restart(cause):
            self._over()
            return
        self._report("again", attempt=self.attempt + 1)
        self._call(self._missing(), now)
        self._gathered(now)

    def _may_restart(self, cause: Cause) -> bool:
        is_same = self.root_cause.is_same_again()
        is_allowed = self.attempt < self.plan.restarts and cause.may_be_retried
        if is_same and is_allowed:
            self._report("same")
        return is_allowed and not is_same

    def _status(self) -> int:
        """Return the request's status, unless the program had failed before: to queue that again would not help."""
        request, status = self.stopping.request, 0 if self.root_cause.cause is None else self.root_cause.cause.status
        is_broken = self._had_failed and status != attempt.INFRASTRUCTURE
        return status if request is None or is_broken else request.status

    def _over(self) -> None:
        self._report_cause()
        self.phase = "over"
        self._report("over", status=self._status())
        self._actions.append(Exit(self._status()))

    # Time.

    def _do_what_is_due(self, now: float) -> None:
        if self.stopping.is_warning_due(now):
            self._report("warned", number=self.plan.warn_signal)
            self._deliveries.notice(self.plan.warn_signal, None, now)
        if now >= self.stopping.limit_at:
            self._stop(attempt.TERM, now, attempt.INFRASTRUCTURE, why="its time limit is near")
        self._deliver(now)
        if now >= self._stall_due():
            self._dump(now)
        if now >= self.stopping.by:
            request, self.stopping.by = self.stopping.request, NEVER
            if self.phase == "running":
                self._end(SHORT_GRACE_S if request is not None and request.number == attempt.INT else AT_ONCE_S, now)
        if now >= self._call_again_at:
            self._launch(self._missing() if self.phase == "gathering" else ())
        if now >= self._settle:
            self._settle = NEVER
            if self.phase == "gathering" and len(here := self.roster.here()) >= self.plan.least:
                self._start(here, now)
        if now >= self._until:
            self._is_late(now)
        self._report_cause()

    def _resumed(self, stopped_s: float, now: float) -> None:
        """Let no wait end because nobody could do anything: agents may have been stopped with the runner."""
        if self.stall.since is not None:  # and not now: a runner that is often late would never see one
            self.stall.since = min(self.stall.since + stopped_s, now)
        self._until += stopped_s
        self.stopping.by += stopped_s

    def _is_late(self, now: float) -> None:
        """End a phase that has lasted as long as it may."""
        if self.phase == "gathering":
            self._gathered_late(now)
        elif self.phase == "dumping":
            self._end(self.plan.grace_s, now)
        elif self.phase == "ending":
            self._ended_late(now)
        elif self.phase == "sweeping":
            for host in self.roster.lost_hosts():
                self._swept(host, is_clean=False, now=now)

    def _stall_due(self) -> float:
        return self.stall.due if self.phase == "running" and self.stopping.request is None else NEVER

    def _deliver(self, now: float) -> None:
        request = self.stopping.request
        for one in self._deliveries.ready(now):
            # Few programs catch HUP, as of a terminal that was closed: without TERM they would not learn of the end.
            is_hangup = one.number == attempt.HUP and request is not None and request.number == attempt.HUP
            number = attempt.TERM if is_hangup else one.number
            for place in self.roster.busy() if self.phase == "running" else ():
                if place not in one.reached and place not in self.roster.ended:
                    self._actions.append(Send(place, messages.Signal(one.id, number)))

    # What the caller is to do.

    def _report_cause(self) -> None:
        cause = self.root_cause.to_report()
        if cause is not None:
            self._report("failed", **cause._asdict())

    def _report(self, name: str, place: int | None = None, **fields: object) -> None:
        if place is not None:
            host, local = self.roster.places[place]
            fields = {"host": host, "local": local, "rank": self.ranks.get(place), **fields}
        if self.attempt >= 0 and "attempt" not in fields:
            fields["attempt"] = self.attempt
        self._actions.append(Report(name, fields))

    def _send_busy(self, message: messages.End | messages.Dump) -> None:
        for place in self.roster.busy():
            self._actions.append(Send(place, message))

    def _taken(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return actions
