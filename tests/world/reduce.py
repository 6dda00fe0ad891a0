"""A script as users write them: sum the ranks of all nodes through rank 0, which listens on MASTER_PORT."""

import os
import socket
import time

WAIT_S = 20.0
rank, nodes = int(os.environ["NODE_RANK"]), int(os.environ["NNODES"])
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
family = socket.AF_INET6 if ":" in where[0] else socket.AF_INET


def endpoint() -> int:
    """Collect the others' ranks and send everybody the sum."""
    with socket.create_server(where, family=family, backlog=nodes) as server:  # sets SO_REUSEADDR, as torch does
        server.settimeout(WAIT_S)
        others = [server.accept()[0] for _ in range(nodes - 1)]
    total = rank + sum(int(other.recv(16)) for other in others)
    for other in others:
        other.sendall(str(total).encode())
        other.close()
    return total


def follow() -> int:
    """Send the own rank and return the sum; rank 0 may not listen yet."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            with socket.create_connection(where, timeout=WAIT_S) as leader:
                leader.sendall(str(rank).encode())
                return int(leader.recv(16))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


print(f"SUM={follow() if rank else endpoint()}")
