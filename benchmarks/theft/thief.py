"""Another user of rank 0's host, without the key, who wants MASTER_PORT; argument: how it learns the port.

`id` works out what anybody can who knows the id `job`; `scan` reads in /proc/net/tcp where somebody else listens. It
binds those with SO_REUSEADDR as fast as it can, from before the job begins. A port that it was refused, and then gets,
was somebody's: it keeps that for a second. At the end of its input it tells as JSON how often it tried, and which ports
it got when.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time

from mingle_hooks.net.addresses import candidates
from mingle_hooks.rendezvous.wire import MASTER_PORTS, Attempt

RANGE = range(20_000, 25_000)
KEEP_NS = 10**9
SCAN_EVERY = 20  # turns


def listening() -> set[int]:
    """Return the ports of the range on which others listen."""
    found = set()
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(path) as table:
            next(table)
            rows = [line.split() for line in table]
        found |= {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and int(row[7]) != os.getuid()}
    return {port for port in found if port in RANGE}


def bound(port: int) -> socket.socket | None:
    """Return a socket on a port, None where it is refused."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("", port))
        sock.listen()
    except OSError:
        sock.close()
        return None
    return sock


def main(way: str) -> None:
    """Try until the input ends."""
    targets = dict.fromkeys(candidates(Attempt("job").seed(b"master"), MASTER_PORTS), 0) if way == "id" else {}
    refused, kept, taken, tries = set[int](), dict[int, tuple[socket.socket, int]](), list[tuple[int, int]](), 0
    print("ready", flush=True)
    turn = 0
    while not (turn % SCAN_EVERY == 0 and select.select([sys.stdin], [], [], 0)[0]):
        turn += 1
        now = time.monotonic_ns()
        if way == "scan" and turn % SCAN_EVERY == 0:
            seen = listening()
            refused |= seen
            targets = {port: now for port, last in targets.items() if now - last < KEEP_NS} | dict.fromkeys(seen, now)
        for port, (sock, until) in [*kept.items()]:
            if until < now:
                sock.close()
                del kept[port]
        for port in targets:
            if port in kept:
                continue
            tries += 1
            its = bound(port)
            if its is None:
                refused.add(port)
            elif port in refused:
                refused.discard(port)
                kept[port] = (its, time.monotonic_ns() + KEEP_NS)
                taken.append((time.monotonic_ns(), port))
            else:
                its.close()
    print(json.dumps({"tries": tries, "taken": taken}))


main(sys.argv[1])
