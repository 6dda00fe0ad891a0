"""Which process of which machine a runner is, so that one that was killed can be told from one that is out of reach."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import NamedTuple

from mingle_hooks.fabric import machine


class Process(NamedTuple):
    """A machine, as one boot of it and one namespace of processes there; a pid; when that began (0: not known)."""

    machine: str
    pid: int
    start: int


def own() -> Process:
    """Return this process."""
    return Process(here(), os.getpid(), _start(os.getpid()) or 0)


def here() -> str:
    """Return 16 hex digits that two processes share when they see the same processes, and the same network."""
    try:
        pids = os.stat("/proc/self/ns/pid").st_ino
    except OSError:  # not Linux
        pids = 0
    return sha256(f"{machine.identity()} {pids}".encode()).hexdigest()[:16]


def is_gone(process: Process) -> bool:
    """Tell whether this process has certainly ended: it was of this machine, where another or none has its pid now."""
    return process.machine == here() and process.start > 0 and _start(process.pid) != process.start


def _start(pid: int) -> int | None:
    """Return when a process began, in ticks since the machine did; None where there is none, or it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if words[0] in (b"Z", b"X") else int(words[19])
