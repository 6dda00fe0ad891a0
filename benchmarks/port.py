"""How often another user of rank 0's host, without the key, gets MASTER_PORT before the command has bound it.

Of so many worlds of two nodes: before the command starts, and between its start and its own bind. Whoever works ports
out from the id has nothing to go by; whoever scans for listening ports knows the port, and waits for it.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from cluster.hosts import Hosts
from support.theft import race

WORLDS = 1000


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
