"""Ending a run's processes without their supervisor: those of this user that have the run's id in their environment."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from mingle_hooks.supervise.node.processes import descendants, everybody, parent, send

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST_S = 5.0
_AGAIN_S = 0.02
_VARIABLE = b"MINGLE_RUN_ID="


def sweep(run_id: str, spared: Sequence[int]) -> tuple[int, int]:
    """Kill until none is left, for 5 s at most; return how many there were, and how many are left.

    This process, those above it, and `spared` with all below them are left alone: they may be the runner's own.
    """
    above = [os.getpid()]
    while above[-1] > 1:
        above.append(parent(above[-1]))
    ended: set[int] = set()
    deadline = time.monotonic() + _LONGEST_S
    while True:
        kept = {*above, *spared, *(pid for root in spared for pid in descendants(root))}
        found = set(members(run_id)) - kept
        found |= {pid for root in found for pid in descendants(root)} - kept
        if not found or time.monotonic() > deadline:
            return len(ended | found), len(found)
        ended |= found
        send([*found], signal.SIGKILL)
        time.sleep(_AGAIN_S)


def members(run_id: str) -> list[int]:
    """Return this user's processes whose environment has the run's id, alone or behind those of runs around it."""
    return [pid for pid in everybody() if _is_member(f"/proc/{pid}", run_id.encode())]


def _is_member(path: str, run_id: bytes) -> bool:
    try:
        if os.stat(path).st_uid != os.getuid():
            return False
        with open(f"{path}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:  # it has ended, or hides
        return False
    ids = [variable[len(_VARIABLE) :].split(b",") for variable in variables if variable.startswith(_VARIABLE)]
    return any(run_id in listed for listed in ids)
