"""A run as a state machine: what happens goes in, what is to be done comes out.

It has no sockets and no clock; whoever runs it hands over each event with its time, and Time once `due` has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.rendezvous.leader import timeline
from mingle_hooks.rendezvous.protocol.spent import Spent
from mingle_hooks.supervise.runner import causes
from mingle_hooks.supervise.runner.causes import INFRASTRUCTURE, SIGNALLED, Cause
from mingle_hooks.supervise.runner.phases import Phases
from mingle_hooks.supervise.runner.roster import Absence
from mingle_hooks.supervise.runner.stopping import ENDS, INT, PIPE, TERM
from mingle_hooks.supervise.runner.words import (
    Clean,
    CommandEnded,
    Deliver,
    Drop,
    Exit,
    Formed,
    Heard,
    Hurry,
    Joined,
    Lost,
    Noticed,
    Quiet,
    ReaderGone,
    Show,
    Stacks,
    StarterEnded,
    Swept,
    Time,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mingle_hooks.supervise.runner.words import Action, Event, Plan

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
        found = timeline.last(timeline.phases(told))
        return {} if found is None else {"last": found}

    def _command_ended(self, event: CommandEnded, now: float) -> None:
        place, ended = event
        if ended.attempt != self.attempt or self.roster.state[place] != "busy" or place in self.roster.ended:
            return
        self.roster.ended.add(place)
        self._tell("ended", place=place, status=ended.status, signal=ended.signal)
        if self.phase == "running" and self._stopping.asked is None and (ended.status or ended.signal is not None):
            cause = causes.of_ended(ended, self.roster.host(place), self._ranks[place], now - self._began)
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
        kind: causes.Kind = "gone" if event.silent_s is None else "silent"
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
