"""When a job ends whose scheduler tells only how long it may run: from the beginning of the job's session."""

from __future__ import annotations

import os

from mingle_hooks.values import number

_MOST_S = 10 * 365 * 24 * 3600


def end(seconds: str) -> int | None:
    """Return when a job of so many seconds ends, in seconds since 1970; None where nobody can tell.

    The script is the session's leader, or an interactive shell is, and begins with the job. proc(5): field 22 of
    /proc/PID/stat counts from the boot, whose time is in /proc/stat.
    """
    allowed = number(seconds, least=1, most=_MOST_S)
    try:
        with open(f"/proc/{os.getsid(0)}/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/stat") as file:
            boot = next(int(line.split()[1]) for line in file if line.startswith("btime "))
    except (OSError, StopIteration):  # hidepid=2, or the session's leader is of another pid namespace
        return None
    return None if allowed is None else boot + ticks // os.sysconf("SC_CLK_TCK") + allowed
