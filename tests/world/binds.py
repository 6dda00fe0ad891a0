"""Form one two-node world after another with the same id; tell as JSON how often MASTER_PORT could then be bound here.

Arguments: this node's rank, how many worlds, further options of `mingle env`. The counts are of worlds: `plain` with a
plain bind to all addresses, `own` to MASTER_ADDR alone, `reusing` with SO_REUSEADDR; and of ports: `distinct`.
"""

import json
import socket
import subprocess
import sys


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


def main() -> None:
    """Form the worlds."""
    rank, count, *options = sys.argv[1:]
    counts = dict.fromkeys(("formed", "plain", "own", "reusing"), 0)
    ports = set()
    for _ in range(int(count)):
        asked = ["--id", "job", "--nodes", "2", "--rank", rank, "--timeout", "10", "--master", "node1", *options]
        done = subprocess.run(["mingle", "env", "--shell", "json", *asked], stdout=subprocess.PIPE, check=True)
        world = json.loads(done.stdout)
        addr, port = world["MASTER_ADDR"], int(world["MASTER_PORT"])
        ports.add(port)
        counts["formed"] += 1
        if rank == "0":
            counts["plain"] += binds("", port, reuse=False)
            counts["own"] += binds(addr, port, reuse=False)
            counts["reusing"] += binds("", port, reuse=True)
    print(json.dumps({**counts, "distinct": len(ports)}))  # noqa: T201


main()
