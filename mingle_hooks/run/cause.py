"""What people are told on stderr: one line each, and what the first failing member wrote last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from mingle_hooks.errors import (
    ConflictError,
    FactsError,
    MingleError,
    PlaceError,
    SecretError,
    SettingsError,
    UsageError,
    printable,
)
from mingle_hooks.run.messages import Ended
from mingle_hooks.schedulers import hostlist

# Why an attempt failed: the status that tells it, and whether trying again makes sense.

# ended: COMMAND did; unformed: it never began; silent, gone: its supervisor; absent: a supervisor never came;
# stalled: nobody wrote.
Kind = Literal["ended", "unformed", "silent", "gone", "absent", "stalled"]

# EX_TEMPFAIL of sysexits.h: the infrastructure failed, and trying again makes sense.
INFRASTRUCTURE = 75
SIGNALLED = 128
# What `mingle exec` says before COMMAND begins, and says again however often it is asked; 126, 127: no such program.
_MISTAKES = {
    error.exit_code
    for error in (MingleError, UsageError, FactsError, PlaceError, ConflictError, SecretError, SettingsError)
} | {126, 127}
# Lines of an error by which it is known again.
SAME_LINES = 5


class Cause(NamedTuple):
    """The first failure of an attempt."""

    kind: Kind
    host: str
    rank: int | None
    after_s: float  # since the attempt began; where none has, since the run
    status: int = INFRASTRUCTURE
    signal: int | None = None
    is_oom: bool = False
    silent_s: float | None = None
    tail: str = ""

    @property
    def may_help(self) -> bool:
        """Whether another attempt may end otherwise."""
        return self.kind != "unformed" and not (self.kind == "ended" and self.status in (126, 127))

    @property
    def is_of_host(self) -> bool:
        """Whether it counts against its host."""
        return self.may_help and self.kind != "stalled"

    @property
    def likeness(self) -> tuple[object, ...] | None:
        """Return what two failures of the program share that are the same; None where it was not the program."""
        if self.kind != "ended":
            return None
        return (self.status, self.signal, self.is_oom, _error_lines(self.tail))


def cause_of_end(ended: Ended, host: str, rank: int, after_s: float) -> Cause:
    """Return the cause that a COMMAND's end is."""
    status = SIGNALLED + ended.signal if ended.signal is not None else ended.status
    if not ended.formed:
        status = status if status in _MISTAKES else INFRASTRUCTURE
        return Cause("unformed", host, rank, after_s, status, tail=ended.tail)
    return Cause("ended", host, rank, after_s, status, ended.signal, ended.is_oom, tail=ended.tail)


def _error_lines(tail: str) -> tuple[str, ...]:
    """Return the first lines of the error in what COMMAND wrote last; numbers differ from run to run."""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    first = next((at for at, line in enumerate(lines) if "traceback" in line.lower() or "error" in line.lower()), None)
    found = lines[-SAME_LINES:] if first is None else lines[first : first + SAME_LINES]
    return tuple("".join("0" if letter.isdigit() else letter for letter in line) for line in found)


Fields = Mapping[str, object]

# Of what the first failing member wrote.
MOST_LINES, LONGEST_LINE = 20, 400


def event_text(name: str, fields: Fields) -> str | None:
    """Return what is said of an event; None for one that only the log takes."""
    said = _SAID.get(name)
    found = None if said is None else said(fields)
    return None if found is None else f"mingle run: {found}\n"


def signal_name(number: object) -> str:
    """Return a signal's name."""
    from signal import Signals

    try:
        return Signals(int(str(number))).name
    except ValueError:
        return f"signal {number}"


def _failed(fields: Fields) -> str:
    cause = Cause._make(fields[name] for name in Cause._fields)
    if cause.kind == "stalled":
        return f"no rank has written anything for {_duration(cause.silent_s or 0.0)}"
    rank = "" if cause.rank is None else f" (rank {cause.rank})"
    return f"{cause.host}{rank}: {_what(cause)}{_lines(cause)}"


def _duration(time_s: float) -> str:
    minutes, rest_s = divmod(time_s, 60)
    return f"{time_s:g} s" if rest_s or not minutes else f"{minutes:.0f} min"


def stacks_text(host: str, rank: int, text: str) -> str:
    """Return what a member's stacks are, with nothing in them that a terminal would obey."""
    lines = [f"  {printable(line, LONGEST_LINE)}\n" for line in text.splitlines()]
    return f"mingle run: {host} (rank {rank}): its stacks:\n{''.join(lines)}"


def _what(cause: Cause) -> str:
    after = f"after {cause.after_s:.0f} s"
    if cause.kind == "silent":
        return f"no sign of life for {cause.silent_s or 0:.0f} s"
    if cause.kind == "gone":
        return f"its supervisor was killed or lost its connection {after}"
    if cause.kind == "absent":  # with the last words of what was to start it, where that has ended
        how = "could not be started" if cause.tail else f"did not start within {cause.after_s:.0f} s"
        return f"its supervisor {how}"
    if cause.kind == "unformed":
        return f"no world formed {after} (status {cause.status})"
    oom = ": out of memory" if cause.is_oom else ""
    if cause.signal is not None:
        return f"killed by {signal_name(cause.signal)} {after}{oom}"
    return f"exited with status {cause.status} {after}{oom}"


def _lines(cause: Cause) -> str:
    lines = [line for line in cause.tail.splitlines() if line.strip()]
    if not lines or cause.kind == "absent":  # what a starter said has been shown
        return ""
    return "; its last lines:\n" + "\n".join(f"  {printable(line, LONGEST_LINE)}" for line in lines[-MOST_LINES:])


def _lost(fields: Fields) -> str | None:
    return None if fields.get("rank") is not None else f"{fields['host']}, which waited, is lost"


def _stopped(fields: Fields) -> str:
    why = fields["why"] or f"{signal_name(fields['number'])} received"
    return f"ending: {why}; the grace period of COMMAND is {fields['grace_s']:.0f} s"


def _formed(fields: Fields) -> str | None:
    """Say where the world is, where it is more than this host."""
    hosts = [str(host) for host in fields["hosts"]] if isinstance(fields["hosts"], list) else []
    where = f"rank 0 at {fields['addr']} port {fields['port']}"
    return f"{hostlist.fold(hosts)} are one world, {where}" if len(hosts) > 1 else None


_SAID: dict[str, Callable[[Fields], str | None]] = {
    "formed": _formed,
    "failed": _failed,
    "lost": _lost,
    "stopped": _stopped,
    "absent": lambda fields: f"{fields['host']} did not return",
    "again": lambda fields: f"restarts: attempt {fields['attempt']}",
    "same": lambda _fields: "the same failure repeats: no further restart",
    "unreached": lambda fields: f"{fields['host']} cannot be reached: processes there end by themselves",
    "warned": lambda fields: f"the time limit is near: {signal_name(fields['number'])} to all",
    "signal": lambda fields: f"{signal_name(fields['number'])} received, and sent to all nodes",
}
