"""A race for MASTER_PORT on rank 0's host: mingle and its command against another user without the key."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from cluster.hosts import Hosts
from support.members import KEYED, PROGRAMS


class Race(NamedTuple):
    """What came of it, in worlds; `tries` are the other user's binds."""

    worlds: int
    tries: int
    stolen_before: int  # between mingle's bind and the command's start
    stolen_later: int  # between the command's start and its own bind


def race(two: Hosts, way: str, worlds: int) -> Race:
    """Return what came of so many worlds; `way` is how the other user learns the port (see thief.py)."""
    two[0].write("/tmp/thief.py", (PROGRAMS / "thief.py").read_text(), mode=0o644)
    thief = two[0].popen([sys.executable, "/tmp/thief.py", way], user="bob", stdin=-1)
    assert thief.stdin is not None
    assert thief.stdout is not None
    assert thief.stdout.readline() == "ready\n"

    def node(rank: int) -> str:
        line = [sys.executable, str(PROGRAMS / "raced.py"), str(rank), str(worlds)]
        return two[rank].run(line, env=KEYED, user="alice", timeout=60 + 3.0 * worlds, check=True).stdout

    with ThreadPoolExecutor(2) as pool:
        first, _ = pool.map(node, (0, 1))
    found = json.loads(thief.communicate("\n", timeout=30)[0])
    before = later = 0
    for held, began, port, is_bound in json.loads(first):
        stolen = any(held < when < began for when, its in found["taken"] if its == port)
        before += stolen
        later += not (stolen or is_bound)
    return Race(worlds, found["tries"], before, later)
