"""Form one two-node world after another with the same id; tell as JSON how often MASTER_PORT could then be bound here.

Arguments: this node's rank, how many worlds, further options of `mingle env`. The counts are of worlds: `plain` with a
plain bind to all addresses, `own` to MASTER_ADDR alone, `reusing` with SO_REUSEADDR, `waiting` where this host has a
connection of that port in TIME_WAIT; and `digests` is how many different ones there were.

The first `mingle` is started as users start it; the others are forks of this process, which has then loaded it: the
kernel closes what is theirs in the same way, and each world takes a third of the processor.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


def binds(address: str, port: int, *, reuse: bool) -> bool:
    """Tell whether a server can be opened there."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        try:
            sock.bind((address, port))
            sock.listen()
        except OSError:
            return False
        return True


def waits(port: int) -> bool:
    """Tell whether a connection of this port, at either end, is in TIME_WAIT on this host."""
    found = []
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError), Path(f"/proc/net/{table}").open() as file:
            found += [line.split()[1:4] for line in file]
    ends = (local.rpartition(":")[2] + remote.rpartition(":")[2] for local, remote, state in found if state == "06")
    return any(f"{port:04X}" in (both[:4], both[4:]) for both in ends)


def started(words: list[str]) -> str:
    """Return what `mingle` writes."""
    return subprocess.run(["mingle", *words], stdout=subprocess.PIPE, text=True, check=True).stdout


def forked(words: list[str], first: Callable[[], object] = int) -> str:
    """Return what a `mingle` writes that is a fork of this process, and does something first."""
    from mingle_hooks.cli.main import main

    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writing, 1)
        os.closerange(3, writing + 1)
        sys.argv = ["mingle", *words]
        first()
        main()
    os.close(writing)
    with open(reading) as pipe:
        said = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0, said
    return said


def main() -> None:
    """Form the worlds."""
    rank, count, *options = sys.argv[1:]
    counts = dict.fromkeys(("formed", "plain", "own", "reusing", "waiting"), 0)
    digests = set()
    for number in range(int(count)):
        asked = ["--id", "job", "--nodes", "2", "--rank", rank, "--timeout", "10", "--master", "node1", *options]
        world = json.loads((forked if number else started)(["env", "--shell", "json", *asked]))
        addr, port = world["MASTER_ADDR"], int(world["MASTER_PORT"])
        digests.add(world["MINGLE_WORLD"])
        counts["formed"] += 1
        counts["waiting"] += waits(port)
        if rank == "0":
            counts["plain"] += binds("", port, reuse=False)
            counts["own"] += binds(addr, port, reuse=False)
            counts["reusing"] += binds("", port, reuse=True)
    print(json.dumps({**counts, "digests": len(digests)}))


if __name__ == "__main__":
    main()
