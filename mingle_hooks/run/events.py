"""What the state machine of a run hears and what it asks for, as plain records; a place is named by its number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mingle_hooks.run.messages import Ended
from mingle_hooks.run.starters import Place


class Plan(NamedTuple):
    """What a run was asked for; hosts in the order of their ranks, times in seconds from its beginning."""

    hosts: tuple[str, ...]
    slots: tuple[int, ...]  # places on each of these
    least: int  # hosts that an attempt needs
    most: int  # and takes
    restarts: int = 0
    grace_s: float = 10.0
    join_s: float = 300.0
    window_s: float = 30.0
    warn_at_s: float | None = None
    limit_at_s: float | None = None
    stall_s: float | None = None  # nobody writes for so long
    warn_signal: int = 10
    # Whether a signal of the scheduler's to a supervisor has reached COMMAND too.
    signals_reach_command: bool = False

    @property
    def places(self) -> tuple[Place, ...]:
        """Return all places, host by host."""
        return tuple(
            Place(host, local) for host, count in zip(self.hosts, self.slots, strict=True) for local in range(count)
        )


# --- What it hears.


class Joined(NamedTuple):
    """A supervisor is here."""

    place: int


class Formed(NamedTuple):
    """A place's world has formed, and COMMAND begins."""

    place: int
    attempt: int
    nodes: int
    addr: str
    port: int
    spent: tuple[int, ...] = ()  # its member's, as in rendezvous/protocol/spent.py


class CommandEnded(NamedTuple):
    """A place's COMMAND has ended."""

    place: int
    ended: Ended


class Clean(NamedTuple):
    """Nothing of an attempt is left at a place."""

    place: int
    attempt: int


class Noticed(NamedTuple):
    """A signal reached a place's supervisor, or with None the runner itself."""

    place: int | None
    number: int


class Quiet(NamedTuple):
    """A place has given no sign for some seconds; it may be lost since its last one."""

    place: int


class Heard(NamedTuple):
    """A place that was quiet gives signs again."""

    place: int


class Lost(NamedTuple):
    """A supervisor has gone: silent for so many seconds, or with None its connection ended."""

    place: int
    silent_s: float | None


class Stacks(NamedTuple):
    """What the stacks at a place are, or why they are not known."""

    place: int
    attempt: int
    text: str


class StarterEnded(NamedTuple):
    """What started the supervisors of these hosts has ended."""

    hosts: tuple[str, ...]
    status: int
    said: str


class Swept(NamedTuple):
    """A host has been swept, or could not be reached."""

    host: str
    is_clean: bool


class Hurry:
    """Somebody asks for the end at once."""

    __slots__ = ()


class ReaderGone:
    """Nobody reads the run's output any more."""

    __slots__ = ()


class Time:
    """A moment has come that the machine asked for."""

    __slots__ = ()


Event = (
    Joined
    | Formed
    | CommandEnded
    | Clean
    | Noticed
    | Quiet
    | Heard
    | Lost
    | Stacks
    | StarterEnded
    | Swept
    | Hurry
    | ReaderGone
    | Time
)


# --- What it asks for.


class Launch(NamedTuple):
    """Start supervisors on these hosts."""

    hosts: tuple[str, ...]


class Begin(NamedTuple):
    """Start COMMAND at a place, as this member of an attempt's world."""

    place: int
    attempt: int
    rank: int  # among the attempt's hosts
    hosts: tuple[str, ...]  # of the attempt, in the order of their ranks
    slots: tuple[int, ...]  # places on each of these


class Stop(NamedTuple):
    """End an attempt at a place: TERM, the grace, KILL."""

    place: int
    attempt: int
    grace_s: float


class Deliver(NamedTuple):
    """Pass a signal on at a place."""

    place: int
    id: int
    number: int


class Dump(NamedTuple):
    """Take the stacks at a place, within this time."""

    place: int
    attempt: int
    within_s: float


class Show(NamedTuple):
    """Show the stacks of a place."""

    place: int
    rank: int
    text: str


class Drop(NamedTuple):
    """Have done with a place that is lost: nothing more of it counts."""

    place: int


class Sweep(NamedTuple):
    """End what is left of this run on these hosts."""

    hosts: tuple[str, ...]


class Tell(NamedTuple):
    """Something that people, or events.jsonl, are told."""

    name: str
    fields: Mapping[str, object]


class Exit(NamedTuple):
    """All is over: let the supervisors go, and exit with this status; `at_once` without waiting for them."""

    status: int
    at_once: bool = False


Action = Launch | Begin | Stop | Deliver | Dump | Show | Drop | Sweep | Tell | Exit
