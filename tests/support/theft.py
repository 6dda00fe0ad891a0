"""A race for MASTER_PORT on rank 0's host: mingle and its command against another user without the key."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import NamedTuple

from cluster.host import Host
from support.members import PROGRAMS, members


class Race(NamedTuple):
    """What came of it, in worlds; `tries` are the other user's binds."""

    worlds: int
    tries: int
    stolen_before: int  # between mingle's bind and the command's start
    stolen_later: int  # between the command's start and its own bind


def race(two: Sequence[Host], way: str, worlds: int) -> Race:
    """Return what came of so many worlds; `way` is how the other user learns the port (see thief.py)."""
    two[0].write("/tmp/thief.py", (PROGRAMS / "thief.py").read_text(), mode=0o644)
    thief = two[0].popen([sys.executable, "/tmp/thief.py", way], user="bob", stdin=-1)
    assert thief.stdin is not None
    assert thief.stdout is not None
    assert thief.stdout.readline() == "ready\n"

    line = [sys.executable, str(PROGRAMS / "raced.py")]
    first, _ = members(
        two, lambda rank: [*line, str(rank), str(worlds)], user="alice", timeout=60 + 3.0 * worlds, check=True
    )
    found = json.loads(thief.communicate("\n", timeout=30)[0])
    before = later = 0
    for held, began, port, is_bound in json.loads(first.stdout):
        stolen = any(held < when < began for when, its in found["taken"] if its == port)
        before += stolen
        later += not (stolen or is_bound)
    return Race(worlds, found["tries"], before, later)
