"""A run as a state machine: what happens goes in, what is to be done comes out.

It has no sockets and no clock; whoever runs it hands over each event with its time, and Time once `due` has come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from mingle_hooks.rendezvous import timeline
from mingle_hooks.rendezvous.messages import Spent
from mingle_hooks.run import attempt
from mingle_hooks.run.attempt import (
    ENDS,
    INFRASTRUCTURE,
    INT,
    PIPE,
    SIGNALLED,
    TERM,
    Absence,
    Blame,
    Cause,
    Deliveries,
    Kind,
    Roster,
    Stopping,
    cause_of_end,
)
from mingle_hooks.run.events import (
    Action,
    Begin,
    Clean,
    CommandEnded,
    Deliver,
    Drop,
    Dump,
    Event,
    Exit,
    Formed,
    Heard,
    Hurry,
    Joined,
    Launch,
    Lost,
    Noticed,
    Plan,
    Quiet,
    ReaderGone,
    Show,
    Stacks,
    StarterEnded,
    Stop,
    Sweep,
    Swept,
    Tell,
    Time,
)

# Since when nobody has written: the clock of --stall, which stands still where nobody could know.


class Stall:
    """Counts from the moment at which an attempt's world has formed, and anew from each word of a member's."""

    def __init__(self, after_s: float | None) -> None:
        self._after_s = after_s
        self._since: float | None = None  # None outside of an attempt that runs
        self._is_held = False  # output is not read, as the run's own reader does not read

    @property
    def due(self) -> float | None:
        """Return when it is a stall."""
        if self._after_s is None or self._since is None or self._is_held:
            return None
        return self._since + self._after_s

    def begin(self, now: float) -> None:
        """Begin to count."""
        self._since = now

    def end(self) -> None:
        """Count no more."""
        self._since = None

    def wrote(self, now: float) -> None:
        """Take note that a member has written."""
        if self._since is not None:
            self._since = now

    def hold(self, now: float, *, is_held: bool) -> None:
        """Stand still while nothing is read, and begin anew afterwards."""
        self._is_held = is_held
        self.wrote(now)


# The phases of a run: what begins each, what it waits for, and for how long.
#
# ::
#
#     gathering ──▶ running ──▶ ending ──▶ sweeping ──▶ gathering, for another attempt
#         │            │  ╰▶ dumping ─▲         │
#         └────────────┴───────────────────────┴──────▶ over

Phase = Literal["gathering", "running", "dumping", "ending", "sweeping", "over"]

# Beyond the grace, a host that is not clean is swept after this long; and a sweep may take so long.
CLEAN_S, SWEEP_S = 5.0, 10.0
# Stacks may take so long there, and are waited for so long here.
DUMP_S, STACKS_S = 10.0, 15.0
# With enough hosts here, wait this long for those that would have lower ranks.
ORDER_S = 2.0


class Phases:
    """One run, but for what happens to it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.roster = Roster(plan)
        self.blame = Blame(self.roster)
        self.phase: Phase = "gathering"
        self.attempt = -1
        self._order: tuple[str, ...] = ()  # the last attempt's hosts, by rank
        self._ranks: dict[int, int] = {}  # place -> rank among the attempt's places
        self._formed: set[int] = set()
        self.had_world = False  # in any attempt
        self._started: dict[int, tuple[float, tuple[int, ...]]] = {}  # place -> when, and what its member spent
        self._stopping = Stopping(plan)
        self.stall = Stall(plan.stall_s)
        self._dumping: set[int] = set()  # places whose stacks are awaited
        self._deliveries = Deliveries(reaches=plan.signals_reach_command)
        self._began = 0.0  # the attempt; before the first, the run
        self._until: float | None = None  # when the phase is over in any case
        self._settle: float | None = None  # when an attempt begins without those who may still come
        self._actions: list[Action] = []

    def has_formed(self, place: int | None = None) -> bool:
        """Tell whether the attempt's world has formed, at one place or at all."""
        return len(self._formed) == len(self._ranks) if place is None else place in self._formed

    def rank(self, place: int) -> int | None:
        """Return a place's rank in the attempt."""
        return self._ranks.get(place)

    def _call(self, hosts: tuple[str, ...], now: float) -> None:
        self.phase, self._until, self._settle = "gathering", now + self.plan.join_s, None
        self._tell("forming", attempt=self.attempt + 1, hosts=list(hosts))
        if hosts:
            self.roster.called(hosts)
            self._do(Launch(hosts))

    def _gathered(self, now: float) -> None:
        """Begin an attempt where those that are to train are here, or nobody else is awaited."""
        if self.phase != "gathering":
            return
        here, plan = self.roster.here(), self.plan
        if len(here) >= plan.least and self.roster.is_complete(plan.most):
            self._start(here, now)
        elif not self.roster.awaited():
            self._absent(now)
        elif len(here) >= plan.least and self._settle is None:
            self._settle = now + (min(ORDER_S, plan.window_s) if len(here) >= plan.most else plan.window_s)
        elif len(here) >= plan.most and self._settle is not None:
            self._settle = min(self._settle, now + ORDER_S)

    def _absent(self, now: float) -> None:
        """Say who never came; the run is over."""
        missing = [host for host in self.plan.hosts if host not in self.roster.here() and self.roster.is_wanted(host)]
        host = next((host for host in missing if host in self.roster.absences), (missing or [*self.plan.hosts])[0])
        absence = self.roster.absences.get(host)
        said = "" if absence is None else absence.said
        if self.blame.cause is None:
            self.blame.on(Cause("absent", host, None, now - self._began, tail=said))
        else:
            self._tell("absent", host=host)
        self._over(self._status())

    def _start(self, here: list[str], now: float) -> None:
        self.attempt += 1
        self._order = attempt.rank_hosts(self._order, here, self.plan.most)
        self.phase, self._until, self._settle, self._began = "running", None, None, now
        self.blame.forget()
        self._formed.clear()
        self._started.clear()
        self.stall.end()
        self.roster.ended.clear()
        slots = tuple(len(self.roster.at([host])) for host in self._order)
        self._ranks = {place: rank for rank, place in enumerate(self.roster.at(self._order))}
        for rank, host in enumerate(self._order):
            for place in self.roster.at([host]):
                self.roster.state[place] = "busy"
                self._do(Begin(place, self.attempt, rank, self._order, slots))

    def _dump(self, now: float) -> None:
        """Say that nobody has written for too long, and ask for all stacks before the end."""
        self.blame.on(Cause("stalled", self._order[0], None, now - self._began, silent_s=self.plan.stall_s))
        self.phase, self._until, self._stopping.by = "dumping", now + STACKS_S, None
        self._dumping = {*self.roster.busy()}
        for place in self.roster.busy():
            self._do(Dump(place, self.attempt, DUMP_S))

    def _dumped(self, place: int, now: float) -> None:
        """Wait for no more stacks from there; the end begins when all are known."""
        self._dumping.discard(place)
        if self.phase == "dumping" and not self._dumping:
            self._end(self.plan.grace_s, now)

    def _end(self, grace_s: float, now: float) -> None:
        self.phase, self._until, self._stopping.by = "ending", now + grace_s + CLEAN_S, None
        for place in self.roster.busy():
            self._do(Stop(place, self.attempt, grace_s))
        self._cleaned(now)

    def _cleaned(self, now: float) -> None:
        """Go on where nothing of the attempt is left that a supervisor could end."""
        if self.phase in ("running", "ending") and not self.roster.busy():
            self._sweep(now)

    def _sweep(self, now: float) -> None:
        hosts = self.roster.lost_hosts()
        if hosts:
            self.phase, self._until = "sweeping", now + SWEEP_S
            self._do(Sweep(hosts))
        else:
            self._decide(now)

    def _decide(self, now: float) -> None:
        """End the run, or begin again."""
        self.blame.suspects.clear()
        self._say_cause()
        if self._stopping.asked is not None or self.blame.cause is None or not self._again(self.blame.cause):
            self._over(self._status())
            return
        self._tell("again", attempt=self.attempt + 1)
        wanted = self.plan.most - len(self.roster.here())
        self._call(tuple(self.roster.callable()[: max(wanted, 0)]), now)
        self._gathered(now)

    def _again(self, cause: Cause) -> bool:
        is_same = self.blame.is_same_again()
        if self.attempt >= self.plan.restarts or not cause.may_help:
            return False
        if is_same:
            self._tell("same")
        return not is_same

    def _status(self) -> int:
        if self._stopping.asked is not None:
            return self._stopping.asked.status
        return 0 if self.blame.cause is None else self.blame.cause.status

    def _over(self, status: int) -> None:
        self._say_cause()
        self.phase = "over"
        self._tell("over", status=status)
        self._do(Exit(status))

    def _is_late(self, now: float) -> None:
        """Go on where the phase has lasted as long as it may."""
        if self.phase == "gathering":
            self._start_late(now)
        elif self.phase == "dumping":
            self._end(self.plan.grace_s, now)
        elif self.phase == "ending":
            for place in self.roster.busy():
                if (since := self.blame.suspects.pop(place, None)) is not None:
                    host, rank = self.roster.host(place), self._ranks[place]
                    self.blame.on(Cause("silent", host, rank, now - self._began, silent_s=now - since))
                self.roster.state[place] = "lost"
                self._do(Drop(place))
            self._sweep(now)
        elif self.phase == "sweeping":
            for host in self.roster.lost_hosts():
                self._swept(host, is_clean=False, now=now)

    def _start_late(self, now: float) -> None:
        """Begin with those that are here, where they are enough; the others are given up."""
        here = self.roster.here()
        for place in self.roster.at(self.roster.awaited()):
            if len(here) < self.plan.least and self.roster.state[place] == "called":
                self.roster.state[place] = "away"
        if len(here) >= self.plan.least:
            self._start(here, now)
        else:
            self._absent(now)

    def _swept(self, host: str, *, is_clean: bool, now: float) -> None:
        if self.phase != "sweeping":
            return
        for place in self.roster.at([host]):
            if self.roster.state[place] == "lost":
                self.roster.state[place] = "away"
        if not is_clean:
            self._tell("unreached", host=host)
        if not self.roster.lost_hosts():
            self._decide(now)

    def _failed(self, cause: Cause, now: float) -> None:
        self.blame.on(cause)
        if self.phase == "running":
            self._end(self.plan.grace_s, now)

    def _say_cause(self) -> None:
        cause = self.blame.to_tell()
        if cause is not None:
            self._tell("failed", **cause._asdict())

    def _tell(self, name: str, **fields: object) -> None:
        its_place = fields.pop("place", None)
        if isinstance(its_place, int):
            place = self.roster.places[its_place]
            fields = {"host": place.host, "local": place.local, "rank": self._ranks.get(its_place), **fields}
        if self.attempt >= 0 and "attempt" not in fields:
            fields["attempt"] = self.attempt
        self._do(Tell(name, fields))

    def _do(self, action: Action) -> None:
        self._actions.append(action)

    def _taken(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return actions


# What COMMAND has after a second Ctrl-C, and what after a first that it did not heed.
AT_ONCE_S, SHORT_GRACE_S = 0.0, 2.0


class Machine(Phases):
    """One run. `take` is all that there is to call, after `begin`."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._takes: dict[type, Callable[[Any, float], None]] = {
            Joined: self._joined,
            Formed: self._formed_at,
            CommandEnded: self._command_ended,
            Clean: self._clean,
            Quiet: self._quiet,
            Heard: self._heard,
            Lost: self._lost,
            Stacks: self._stacks,
            StarterEnded: self._starter_ended,
            Swept: self._is_swept,
            Noticed: self._noticed,
            Hurry: self._at_once,
            ReaderGone: self._reader_gone,
            Time: self._time,
        }

    @property
    def due(self) -> float | None:
        """Return when Time has to come at the latest."""
        if self.phase == "over":
            return None
        times = (self._until, self._settle, self._deliveries.due, self._stopping.due, self._stall_due())
        return min((time for time in times if time is not None), default=None)

    @property
    def was_warned(self) -> bool:
        """Whether COMMAND was told that its time is nearly over, by us or by the scheduler."""
        return self._stopping.was_warned

    @property
    def is_ending(self) -> bool:
        """Whether what runs is told to end, or has been."""
        return self.phase not in ("gathering", "running") or self._stopping.asked is not None

    def begin(self, now: float) -> list[Action]:
        """Begin the run."""
        self._began = self._stopping.began = now
        self._call(self.plan.hosts, now)
        return self._taken()

    def take(self, event: Event, now: float) -> list[Action]:
        """Take an event in; return what is to be done."""
        if self.phase == "over":  # and only what is left of its output is awaited
            is_own = isinstance(event, Noticed) and event.place is None and event.number in ENDS
            return [Exit(self._status(), at_once=True)] if is_own or isinstance(event, Hurry) else []
        self._takes[type(event)](event, now)
        self._passed(now)
        return self._taken()

    def _joined(self, event: Joined, now: float) -> None:
        if self.roster.state[event.place] == "called":
            self.roster.state[event.place] = "idle"
            self._gathered(now)

    def _starter_ended(self, event: StarterEnded, now: float) -> None:
        for place in self.roster.at(event.hosts):
            if self.roster.state[place] == "called":
                self.roster.state[place] = "away"
                self.roster.absences[self.roster.host(place)] = Absence(event.status, event.said)
        self._gathered(now)

    def _formed_at(self, event: Formed, now: float) -> None:
        if event.attempt == self.attempt and self.roster.state[event.place] == "busy":
            self._formed.add(event.place)
            self._started[event.place] = now, event.spent
            self._tell("started", place=event.place, spent_ms=list(event.spent))
            if len(self._formed) == len(self._ranks):
                self.had_world = True
                self.stall.begin(now)
                where = {"addr": event.addr, "port": event.port, "hosts": list(self._order)}
                self._tell("formed", nodes=event.nodes, **where, **self._last_ready())

    def _last_ready(self) -> dict[str, Any]:
        """Return who kept the others waiting, and with what; nothing where it was nobody, or they do not tell."""
        told = []
        for place in sorted(self._started, key=self._ranks.__getitem__):
            formed, spent = self._started[place]
            if spent:
                its = Spent(*spent)
                told.append((self.roster.host(place), formed - (its.formed_ms - its.in_ms) / 1000, its))
        found = timeline.last_to_arrive(timeline.phases(told))
        return {} if found is None else {"last": found}

    def _command_ended(self, event: CommandEnded, now: float) -> None:
        place, ended = event
        if ended.attempt != self.attempt or self.roster.state[place] != "busy" or place in self.roster.ended:
            return
        self.roster.ended.add(place)
        self._tell("ended", place=place, status=ended.status, signal=ended.signal)
        if self.phase == "running" and self._stopping.asked is None and (ended.status or ended.signal is not None):
            cause = cause_of_end(ended, self.roster.host(place), self._ranks[place], now - self._began)
            self.blame.heard(place)
            self.blame.suspect(self.roster.busy())
            self._failed(cause, now)

    def _clean(self, event: Clean, now: float) -> None:
        place, attempt = event
        if attempt == self.attempt and self.roster.state[place] == "busy":
            self.roster.state[place] = "idle"
            self.blame.heard(place)
            self._cleaned(now)

    def _lost(self, event: Lost, now: float) -> None:
        place, state = event.place, self.roster.state[event.place]
        if state in ("away", "lost"):
            return
        was_at_work, since = state == "busy", self.blame.suspects.get(place)
        self.blame.heard(place)
        self.roster.state[place] = "lost" if was_at_work else "away"
        self._do(Drop(place))
        self._tell("lost", place=place, silent_s=event.silent_s)
        if was_at_work:
            self._lost_at_work(event, since, now)
        self._dumped(event.place, now)
        self._cleaned(now)
        self._gathered(now)

    def _lost_at_work(self, event: Lost, since: float | None, now: float) -> None:
        kind: Kind = "gone" if event.silent_s is None else "silent"
        host, after = self.roster.host(event.place), now - self._began
        cause = Cause(kind, host, self._ranks[event.place], after, silent_s=event.silent_s)
        if self.phase == "running" and self._stopping.asked is None:
            self._failed(cause, now)
        elif since is not None and self.phase == "ending":  # it was the first, though another was noticed before
            self.blame.on(cause)

    def _stacks(self, event: Stacks, now: float) -> None:
        if self.phase == "dumping" and event.attempt == self.attempt and event.place in self._dumping:
            self._do(Show(event.place, self._ranks[event.place], event.text))
            self._dumped(event.place, now)

    def _quiet(self, event: Quiet, now: float) -> None:
        self.blame.quiet(event.place, now)

    def _heard(self, event: Heard, _now: float) -> None:
        self.blame.heard(event.place)

    def _is_swept(self, event: Swept, now: float) -> None:
        self._swept(event.host, is_clean=event.is_clean, now=now)

    def _at_once(self, _event: Hurry, now: float) -> None:
        """End as after a second Ctrl-C, however often it is asked, and whoever has asked for the end before."""
        self._stop(INT, now)
        if not self._stopping.is_hurried:
            self._hurry(now)

    def _reader_gone(self, _event: ReaderGone, now: float) -> None:
        self._stop(TERM, now, SIGNALLED + PIPE, why="its output is no longer read")

    def _time(self, _event: Time, now: float) -> None:
        """Do nothing but what is due."""

    def _noticed(self, event: Noticed, now: float) -> None:
        place, number = event
        if self._stopping.is_repeated(number, now):
            return
        is_warning = self._stopping.is_warning(number, now)
        is_new = self._deliveries.notice(number, place, now)
        asked = self._stopping.asked
        if number == INT and place is None and asked is not None and asked.number == INT:
            self._hurry(now)
        elif number in ENDS and not is_warning:
            self._stop(number, now)
        elif is_new:
            self._tell("signal", number=number, place=place)

    def _stop(self, number: int, now: float, status: int | None = None, why: str = "") -> None:
        """End because it was asked for: COMMAND hears it, and has the grace to end by itself."""
        if not self._stopping.ask(number, status):
            return
        self._tell("stopped", number=number, why=why, grace_s=self.plan.grace_s)
        if self.phase == "gathering":
            self._over(self._status())
        elif self.phase == "running":
            self._stopping.by = now + self.plan.grace_s
            self._deliveries.notice(number, None, now)
        elif self.phase == "dumping":
            self._end(self.plan.grace_s, now)

    def _hurry(self, now: float) -> None:
        """End at once what still runs, after a second Ctrl-C; after a third, go."""
        if self._stopping.is_hurried:
            self.phase = "over"
            self._do(Exit(SIGNALLED + INT, at_once=True))
        elif self.phase in ("running", "dumping", "ending"):
            self._end(AT_ONCE_S, now)
        self._stopping.is_hurried = True

    def _passed(self, now: float) -> None:
        """Do what is due."""
        if self._stopping.is_warning_due(now):
            self._tell("warned", number=self.plan.warn_signal)
            self._deliveries.notice(self.plan.warn_signal, None, now)
        if self._stopping.is_limit_due(now):
            self._stop(TERM, now, INFRASTRUCTURE, why="its time limit is near")
        self._deliver(now)
        if _is_past(self._stall_due(), now):
            self._dump(now)
        if _is_past(self._stopping.by, now):
            asked, self._stopping.by = self._stopping.asked, None
            if self.phase == "running":
                self._end(SHORT_GRACE_S if asked is not None and asked.number == INT else AT_ONCE_S, now)
        if _is_past(self._settle, now):
            self._settle = None
            if self.phase == "gathering" and len(here := self.roster.here()) >= self.plan.least:
                self._start(here, now)
        if _is_past(self._until, now):
            self._is_late(now)
        self._say_cause()

    def _stall_due(self) -> float | None:
        return self.stall.due if self.phase == "running" and self._stopping.asked is None else None

    def _deliver(self, now: float) -> None:
        for number, signal, reached in self._deliveries.ready(now):
            for place in self.roster.busy() if self.phase == "running" else ():
                if place not in reached and place not in self.roster.ended:
                    self._do(Deliver(place, number, signal))


def _is_past(at: float | None, now: float) -> bool:
    return at is not None and now >= at
