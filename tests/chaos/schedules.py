"""What happens in one schedule on real hosts: who starts how and when, and what goes wrong. All of it from one seed."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

# With so much time left when the last one comes, in seconds, a world has to form where nothing harmful happens.
CALM_S = 12.0
# Deadlines, in seconds: one that schedules reach, and one for a busy machine that they do not.
SHORT_S, LONG_S = 4.0, 40.0
# A tenth of lost packets keeps nobody from being found; see CERTAIN_LOSS of the simulator.
CERTAIN_LOSS = 0.1
# How long a host, and a stopped process of a run, may be silent; and the time from TERM to KILL, all in seconds.
SILENCE_S, STOPPED_S, GRACE_S = 4, 8, 1
# A pause that every wait of the protocol survives, in seconds; longer than SILENCE_S; longer than STOPPED_S.
BRIEF_S, DARK_S, FROZEN_S = 1.5, 9.0, 12.0
# How long COMMAND goes on, in seconds: where nothing ends it, and where a fault is to find it.
TRAINS_S, LONG_TRAINING_S = 0.5, 40.0


class Way(NamedTuple):
    """How the processes start, and whether mingle stays to end all of them together."""

    starter: Literal["each", "srun", "ssh", "salloc"]
    command: Literal["exec", "env", "together", "run"]

    @property
    def stays(self) -> bool:
        """Whether mingle ends COMMAND on all hosts when it ends on one."""
        return self.command in ("together", "run")

    @property
    def is_refused(self) -> bool:
        """Whether mingle refuses it at once: a run in each task of a step."""
        return (self.starter, self.command) == ("srun", "run")


WAYS = {
    "exec": Way("each", "exec"), "env": Way("each", "env"), "together": Way("each", "together"),
    "run": Way("ssh", "run"),
    "srun exec": Way("srun", "exec"), "srun env": Way("srun", "env"), "srun together": Way("srun", "together"),
    "salloc run": Way("salloc", "run"), "srun run": Way("srun", "run"),
}  # fmt: skip
VIA = ("", "multicast", "master", "directory")
Kind = Literal["kill", "replace", "stop", "unplug", "delay", "loss", "clock", "full", "twice"]
KINDS: tuple[Kind, ...] = ("kill", "replace", "stop", "unplug", "delay", "loss", "clock", "full", "twice")
# From when the time of a fault counts: the first start, the last one, the first connection of a member, the first
# COMMAND that has a world; and up to how many seconds later it is made.
After = Literal["start", "last", "connection", "world"]
WITHIN_S: dict[After, float] = {"start": 1.5, "last": 0.8, "connection": 0.4, "world": 0.4}
OF_DAY_S = (-1e7, -3600.0, -30.0, 30.0, 3600.0, 1e7)
FULL = ("own", "own", "home")


@dataclass(frozen=True)
class Fault:
    """What goes wrong on one host, when, in seconds, and for how long."""

    kind: Kind
    host: int  # from 0
    after: After
    at_s: float
    lasts_s: float = 0.0
    amount: float = 0.0  # lost share, seconds of delay, jump of a clock; which process, as a share of all
    where: str = ""  # of a full disk: the host's own directories, or the home that all share

    @property
    def is_harmless(self) -> bool:
        """Whether a world has to form in spite of it, and go on."""
        if self.kind in ("stop", "unplug"):
            return self.lasts_s <= BRIEF_S
        return self.kind in ("delay", "clock") or (self.kind == "loss" and self.amount <= CERTAIN_LOSS)

    @property
    def is_of_process(self) -> bool:
        """Whether it strikes processes of the first job alone, and not its whole host."""
        return self.kind in ("kill", "replace", "stop", "twice")

    def __str__(self) -> str:
        text = f"{self.kind} on node{self.host + 1}, {self.at_s:.2f} s after the {self.after}"
        text += f", for {self.lasts_s:.1f} s" if self.lasts_s else ""
        return text + (f", {self.amount:g}" if self.amount else "") + (f", {self.where}" if self.where else "")


@dataclass(frozen=True)
class Schedule:
    """What a seed stands for."""

    seed: int
    nodes: int
    way: str
    via: str  # backends of bare members; "" for all
    has_ranks: bool
    has_new_key: bool  # under Slurm, where mingle makes it
    is_stubborn: bool  # COMMAND ignores TERM
    timeout_s: float
    offsets_s: tuple[float, ...]  # of each host
    second_s: tuple[float, ...]  # the same of a second job with another id; empty without one
    faults: tuple[Fault, ...]

    @property
    def trains_s(self) -> float:
        """How long COMMAND goes on, in seconds."""
        way = WAYS[self.way]
        is_killed = way.stays and any(fault.kind == "kill" for fault in self.faults)
        is_lost = way.command == "run" and any(fault.lasts_s >= DARK_S for fault in self.faults)
        return LONG_TRAINING_S if is_killed or is_lost else TRAINS_S

    def deadline_s(self, job: str) -> float:
        """Return the --timeout of a job's members, in seconds."""
        return self.timeout_s if job == "first" else LONG_S

    def is_calm(self, job: str = "first") -> bool:
        """Whether nothing happens that could keep this job's world from forming, or end it."""
        offsets = self.offsets_s if job == "first" else self.second_s
        faults = [fault for fault in self.faults if job == "first" or not fault.is_of_process]
        is_in_time = max(offsets) + CALM_S < self.deadline_s(job)
        is_refused = job == "first" and WAYS[self.way].is_refused
        return is_in_time and not is_refused and all(fault.is_harmless for fault in faults)

    def __str__(self) -> str:
        words = [self.via and f"via {self.via}", "with ranks" * self.has_ranks, "a new key" * self.has_new_key]
        words += ["stubborn" * self.is_stubborn, f"timeout {self.timeout_s:g} s"]
        text = (
            f"seed {self.seed}: {self.way} on {self.nodes} hosts, {', '.join(filter(None, words))}; they start after "
        )
        text += ", ".join(f"{offset:.2f}" for offset in self.offsets_s) + " s"
        if self.second_s:
            text += "; a second job after " + ", ".join(f"{offset:.2f}" for offset in self.second_s) + " s"
        return "\n".join([text, *(f"  {fault}" for fault in self.faults)])


def schedule(seed: int, nodes: int) -> Schedule:
    """Return the schedule of a seed for so many hosts."""
    rng = random.Random(seed)  # noqa: S311 - the point of it is that it can be repeated
    name = rng.choice(list(WAYS))
    if WAYS[name].is_refused and rng.random() < 0.8:  # at once, whatever happens
        name = "exec"
    way = WAYS[name]
    bare = way.starter == "each"
    has_ranks = bare and rng.random() < 0.4
    count = rng.choice((0, 1, 1, 1, 1, 2, 2, 3))
    faults = _together(_fault(rng, way, nodes) for _ in range(count))
    is_harmless = all(fault.is_harmless for fault in faults)
    timeout_s = LONG_S if is_harmless and rng.random() < 0.9 else SHORT_S
    spread_s = rng.choice((0.0, 0.1, 0.5, 1.0))
    offsets = [rng.uniform(0.0, spread_s) for _ in range(nodes)]
    if timeout_s == SHORT_S and way.starter in ("each", "srun") and rng.random() < 0.3:
        offsets[rng.randrange(nodes)] = timeout_s + rng.uniform(-0.5, 0.5)  # as the others give up
    has_second = rng.random() < 0.15
    return Schedule(
        seed=seed,
        nodes=nodes,
        way=name,
        via=rng.choice(VIA) if bare else "",
        has_ranks=has_ranks,
        has_new_key=not bare and rng.random() < 0.3,
        # The grace of --together is the scheduler's, which would be waited for: 28 s.
        is_stubborn=way.command == "run" and rng.random() < 0.3,
        timeout_s=timeout_s,
        offsets_s=tuple(offsets),
        second_s=tuple(rng.uniform(0.0, 0.5) for _ in range(nodes)) if has_second else (),
        faults=faults,
    )


def _fault(rng: random.Random, way: Way, nodes: int) -> Fault:
    is_bare = way.starter == "each" and not way.stays
    kinds = [kind for kind in KINDS if is_bare or kind not in ("replace", "twice")]
    kind, host = rng.choice([*kinds, "kill", "stop"]), rng.randrange(nodes)
    afters: tuple[After, ...] = ("start", "last", "connection", "connection", "world")
    after = rng.choice(afters) if kind in ("kill", "replace", "stop", "unplug", "clock") else "start"
    at_s, lasts_s, amount, where = rng.uniform(0.0, WITHIN_S[after]), 0.0, 0.0, ""
    if kind == "kill":
        amount = rng.random()
    elif kind == "replace":
        lasts_s = rng.uniform(0.0, 1.0)
    elif kind in ("stop", "unplug"):
        lasts_s = rng.choice((0.2, 1.0, BRIEF_S, BRIEF_S, 2.0, FROZEN_S if kind == "stop" else DARK_S))
    elif kind == "delay":
        at_s, lasts_s, amount = 0.0, rng.uniform(0.5, 3.0), rng.choice((0.02, 0.1, 0.2))
    elif kind == "loss":
        at_s, lasts_s, amount = 0.0, rng.uniform(0.5, 5.0), rng.choice((0.02, 0.05, CERTAIN_LOSS, 0.3))
    elif kind == "clock":
        amount = rng.choice(OF_DAY_S)
    elif kind == "full":
        at_s, lasts_s, where = rng.choice((0.0, 0.0, at_s)), 3.0, rng.choice(FULL)
    return Fault(kind, host, after, at_s, lasts_s, amount, where)


def _together(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return what can be made at the same time: of a host's cable one fault, and one full disk."""
    kept: dict[object, Fault] = {}
    for number, fault in enumerate(faults):
        of_cable = fault.kind in ("unplug", "delay", "loss")
        kept.setdefault(fault.host if of_cable else "full" if fault.kind == "full" else f"fault {number}", fault)
    return tuple(kept.values())
