"""This process's descendants, as the kernel lists them, and their end."""

from __future__ import annotations

import os
import signal
from typing import NamedTuple


class Reaped(NamedTuple):
    """A child that has ended: its status, or the signal that it died of."""

    pid: int
    status: int
    signal: int | None


# Not every kernel has these files.
LISTS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def children(pid: int) -> list[int]:
    """Return the children of all threads of a process; none where it is gone."""
    if not LISTS_CHILDREN:
        return [other for other in everybody() if parent(other) == pid]
    found = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += [int(child) for child in file.read().split()]
    except OSError:  # it ended meanwhile
        pass
    return found


def everybody() -> list[int]:
    """Return all processes that can be seen."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def parent(pid: int) -> int:
    """Return who started a process, or has adopted it; 0 where nobody did, or it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def descendants(root: int | None = None) -> list[int]:
    """Return all processes below one, parents first; below this one where none is named."""
    found = children(os.getpid() if root is None else root)
    for pid in found:  # it grows meanwhile
        found += children(pid)
    return found


def send(pids: list[int], number: int) -> None:
    """Send a signal to each that is still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):  # it ended; or it has become another user's
            pass


def catches(pid: int, number: int) -> bool:
    """Tell whether a process has a handler for a signal."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except OSError:
        pass
    return False


def is_running(pid: int) -> bool:
    """Tell whether a process is there and not over; one that nobody has waited for yet is."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def is_python(pid: int) -> bool:
    """Tell whether a process is an interpreter, by the name of its program."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")
    except OSError:  # it ended meanwhile, or has become another user's
        return False


def reap() -> tuple[list[Reaped], bool]:
    """Return the children that have ended, and whether there is none any more."""
    found: list[Reaped] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found, True
        if pid == 0:
            return found, False
        code = os.waitstatus_to_exitcode(status)
        found.append(Reaped(pid, max(code, 0), -code if code < 0 else None))


def kill_all() -> None:
    """Kill all descendants, and wait for their end; those of them that fork meanwhile, too."""
    import time

    pause_s = 0.002
    while not reap()[1]:
        send(descendants(), signal.SIGKILL)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.1)
