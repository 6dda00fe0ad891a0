"""How often another user of rank 0's host, without the key, gets MASTER_PORT before the command has bound it.

Of so many worlds of two nodes: before the command starts, and between its start and its own bind. Whoever works ports
out from the id has nothing to go by; whoever scans for listening ports knows the port, and waits for it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from cluster.host import Host
from cluster.hosts import Hosts
from support.members import members

THEFT = Path(__file__).parent / "theft"
WORLDS = 1000


class Race(NamedTuple):
    """What came of it, in worlds; `tries` are the other user's binds."""

    worlds: int
    tries: int
    stolen_before: int  # between mingle's bind and the command's start
    stolen_later: int  # between the command's start and its own bind


def race(two: Sequence[Host], way: str, worlds: int) -> Race:
    """Return what came of so many worlds; `way` is how the other user learns the port (see thief.py)."""
    two[0].write("/run/thief.py", (THEFT / "thief.py").read_text(), mode=0o644)
    thief = two[0].popen([sys.executable, "/run/thief.py", way], user="bob", stdin=-1)
    assert thief.stdin is not None
    assert thief.stdout is not None
    assert thief.stdout.readline() == "ready\n"

    line = [sys.executable, str(THEFT / "raced.py")]
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


def figures(worlds: int = WORLDS) -> dict[str, dict[str, int]]:
    """Return the worlds, the other user's binds, and how many ports it got when, for each way to learn the port."""
    found = {}
    with Hosts(2) as two:
        for way in ("id", "scan"):
            its = race(list(two), way, worlds)._asdict()
            found[way] = its
            print(f"  by {way}: " + ", ".join(f"{name} {count}" for name, count in its.items()))
    return found


if __name__ == "__main__":
    figures(int(sys.argv[1]) if sys.argv[1:] else WORLDS)
