"""What came of a schedule, as it is seen from outside: files that the processes wrote, and what is left."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.seats import Seat

from chaos.schedules import Fault


@dataclass(frozen=True)
class Process:
    """One process that somebody started: a member, or the runner of `mingle run`. Seconds count from the beginning."""

    name: str  # its host's, and what tells it from others there
    job: str
    began_s: float
    ended_s: float | None  # None: it never ended
    status: int | None
    stderr: str

    @property
    def host(self) -> str:
        """The name of its host."""
        return self.name.partition(".")[0]


@dataclass(frozen=True)
class Trained:
    """COMMAND began on a host, with this place in a world."""

    job: str
    host: str
    at_s: float
    seat: Seat
    leader: str  # the host that MASTER_ADDR is an address of


@dataclass(frozen=True)
class Hit:
    """A fault that was made, when, and how many processes it struck."""

    fault: Fault
    began_s: float
    ended_s: float
    processes: int = 0

    @property
    def host(self) -> str:
        """The name of its host."""
        return f"node{self.fault.host + 1}"


@dataclass(frozen=True)
class Outcome:
    """All that can be seen of one schedule."""

    processes: tuple[Process, ...]
    trained: tuple[Trained, ...]
    hits: tuple[Hit, ...]
    evaluated: tuple[str, ...] = ()  # what each `mingle env` gave to eval, with the status where it failed
    over_s: float = 0.0  # when nothing of it ran any more
    left: tuple[str, ...] = ()  # processes, sockets and files
    log: str = ""  # of what started them, such as srun

    def __str__(self) -> str:
        lines = [
            f"{hit.began_s:6.2f} to {hit.ended_s:.2f} s: {hit.fault}, {hit.processes} processes" for hit in self.hits
        ]
        lines += [f"{its.at_s:6.2f} s: {its.job} trains on {its.host}: {its.seat}" for its in self.trained]
        for its in self.processes:
            lines.append(f"{its.job} {its.name} began at {its.began_s:.2f} s, ended at {its.ended_s}: {its.status}")
            lines += [f"    {line}" for line in its.stderr.splitlines()]
        lines += [
            f"eval {text!r}" for text in self.evaluated if not text.startswith("eval unset MASTER_ADDR MASTER_PORT")
        ]
        lines += [f"left: {line}" for line in self.left]
        return "\n".join([*lines, f"{self.over_s:6.2f} s: all over", *self.log.splitlines()])
