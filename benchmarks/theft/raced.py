"""Form one two-node world after another by `mingle exec`, whose command binds MASTER_PORT; tell of each as JSON.

Arguments: this node's rank and how many worlds. Rank 0 tells (held, began, port, is_bound): from when mingle had the
port, when it became the command, in nanoseconds, and whether the command got it. Each is a fork of this process, which
has loaded mingle; nothing in it is replaced, but for noting the time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.programs.binds import forked

from mingle_hooks.rendezvous.rendezvous import Listeners

COMMAND = """
import os, socket
sock = socket.socket()
sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try:
    sock.bind(("", int(os.environ["MASTER_PORT"])))
    sock.listen()
    print(1)
except OSError:
    print(0)
"""


def note_times() -> None:
    """Have this process write when it held the port, and when it becomes the command."""
    times: list[int] = []
    opens, becomes = Listeners.open_master, os.execve

    def open_master(self: Listeners, *how: Any) -> None:
        opens(self, *how)
        times.extend((time.monotonic_ns(), self.master))

    def execve(*how: Any) -> None:
        if times:
            print(times[0], time.monotonic_ns(), times[1], end=" ", flush=True)
        becomes(*how)

    Listeners.open_master, os.execve = open_master, execve  # type: ignore[method-assign, assignment]


def world(rank: str) -> list[int]:
    """Return what one world's rank 0 told."""
    # Multicast too, for whoever scans takes the check-in ports as well once they are free.
    options = ["--id", "job", "--nodes", "2", "--rank", rank, "--timeout", "20", "--quiet"]
    return [int(word) for word in forked(["exec", *options, sys.executable, "-IS", "-c", COMMAND], note_times).split()]


if __name__ == "__main__":
    print(json.dumps([world(sys.argv[1]) for _ in range(int(sys.argv[2]))]))
