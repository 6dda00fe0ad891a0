"""What a run looks like to who asks: the state machine's, with the times at which it became so."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mingle_hooks.supervise.protocol.messages import MOST_TAIL
from mingle_hooks.supervise.runner.causes import Cause
from mingle_hooks.supervise.runner.words import Joined
from mingle_hooks.supervise.worlds.words import Failure, Node, State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mingle_hooks.supervise.runner.phases import Phases
    from mingle_hooks.supervise.runner.words import Event
    from mingle_hooks.supervise.worlds.registry import Entry

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
