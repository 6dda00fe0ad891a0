"""Who is there: the state of each place, and what is held against each host."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.supervise.runner import choice

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from mingle_hooks.supervise.runner.words import Plan

    # away: not launched, or given up; called: launched; idle: here, without COMMAND; busy: COMMAND, or something of it,
    # runs; lost: what it started may run on.
    State = Literal["away", "called", "idle", "busy", "lost"]

# A host whose failure ended so many attempts is not taken again where there is another.
MOST_FAILURES = 2


class Absence(NamedTuple):
    """How a starter ended whose supervisors never came."""

    status: int
    said: str


class Roster:
    """The places of a plan by number, and their hosts."""

    def __init__(self, plan: Plan) -> None:
        self.places = plan.places
        self._hosts = plan.hosts
        self._has_spares = len(plan.hosts) > plan.least
        self.state: list[State] = ["away"] * len(self.places)
        self.ended: set[int] = set()  # busy places whose COMMAND has ended
        self.failures = dict.fromkeys(plan.hosts, 0)
        self.absences: dict[str, Absence] = {}
        self._at: dict[str, list[int]] = {host: [] for host in plan.hosts}
        for number, place in enumerate(self.places):
            self._at[place.host].append(number)

    def host(self, place: int) -> str:
        """Return a place's host."""
        return self.places[place].host

    def at(self, hosts: Iterable[str]) -> list[int]:
        """Return the places on these hosts, in their order."""
        return [place for host in hosts for place in self._at[host]]

    def called(self, hosts: Iterable[str]) -> None:
        """Note that supervisors have been started on these hosts."""
        for place in self.at(hosts):
            self.state[place] = "called"
            self.absences.pop(self.host(place), None)

    def is_wanted(self, host: str) -> bool:
        """Tell whether a host may be taken."""
        return not self._has_spares or self.failures[host] < MOST_FAILURES

    def here(self) -> list[str]:
        """Return the hosts that can take part now."""
        return [
            host
            for host in self._hosts
            if self.is_wanted(host) and all(self.state[place] == "idle" for place in self._at[host])
        ]

    def awaited(self) -> list[str]:
        """Return the hosts whose supervisors are on their way."""
        return [host for host in self._hosts if any(self.state[place] == "called" for place in self._at[host])]

    def callable(self) -> list[str]:
        """Return the hosts that may be called again: nobody is there, and not for what they did."""
        return [
            host
            for host in self._hosts
            if self.is_wanted(host) and all(self.state[place] == "away" for place in self._at[host])
        ]

    def busy(self) -> list[int]:
        """Return the places that have something of an attempt."""
        return [place for place, state in enumerate(self.state) if state == "busy"]

    def lost_hosts(self) -> tuple[str, ...]:
        """Return the hosts where something of this run may be left that no supervisor ends."""
        return tuple(dict.fromkeys(self.host(place) for place, state in enumerate(self.state) if state == "lost"))

    def is_complete(self, most: int) -> bool:
        """Tell whether those that are to train are here, and none of them may still come."""
        here = self.here()
        return bool(here) and (not self.awaited() or choice.is_chosen_now(self._hosts, here, most))
