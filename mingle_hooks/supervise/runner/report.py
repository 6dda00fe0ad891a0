"""What people are told on stderr: one line each, and what the first failing member wrote last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.errors import printable
from mingle_hooks.schedulers import hostlist
from mingle_hooks.supervise.runner.causes import Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Fields = Mapping[str, object]

# Of what the first failing member wrote.
MOST_LINES, LONGEST_LINE = 20, 400


def text(name: str, fields: Fields) -> str | None:
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


def stacks(host: str, rank: int, text: str) -> str:
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
