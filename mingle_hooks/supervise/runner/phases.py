"""The phases of a run: what begins each, what it waits for, and for how long.

::

    gathering ──▶ running ──▶ ending ──▶ sweeping ──▶ gathering, for another attempt
        │            │  ╰▶ dumping ─▲         │
        └────────────┴───────────────────────┴──────▶ over
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.supervise.runner import choice
from mingle_hooks.supervise.runner.blame import Blame
from mingle_hooks.supervise.runner.causes import Cause
from mingle_hooks.supervise.runner.delivery import Deliveries
from mingle_hooks.supervise.runner.roster import Roster
from mingle_hooks.supervise.runner.stall import Stall
from mingle_hooks.supervise.runner.stopping import Stopping
from mingle_hooks.supervise.runner.words import Begin, Drop, Dump, Exit, Launch, Stop, Sweep, Tell

if TYPE_CHECKING:
    from typing import Literal

    from mingle_hooks.supervise.runner.words import Action, Plan

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
        self._order = choice.ranked(self._order, here, self.plan.most)
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
