"""A script as users write them: sum the ranks of all nodes through rank 0, which listens on MASTER_PORT.

It is started some hundred times, so that it loads no more than it needs: `socket` takes twice as long as Python itself.
"""

import _socket
import os
import time

WAIT_S = 50.0  # a machine that writes much stands still for longer than one thinks
rank, nodes = int(os.environ["NODE_RANK"]), int(os.environ["NNODES"])
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
family = _socket.AF_INET6 if ":" in where[0] else _socket.AF_INET


def opened(descriptor: int | None = None) -> _socket.socket:
    """Return a socket, of what was accepted if so, that waits no longer than it should."""
    sock = _socket.socket(family, _socket.SOCK_STREAM, 0, descriptor)
    sock.settimeout(WAIT_S)
    return sock


def endpoint() -> int:
    """Collect the others' ranks and send everybody the sum."""
    server = opened()
    server.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)  # as torch does
    server.bind(where)
    server.listen(nodes)
    others = [opened(server._accept()[0]) for _ in range(nodes - 1)]
    server.close()
    total = rank + sum(int(other.recv(16)) for other in others)
    for other in others:
        other.sendall(str(total).encode())
        other.close()
    return total


def follow() -> int:
    """Send the own rank and return the sum; rank 0 may not listen yet."""
    deadline = time.monotonic() + WAIT_S
    while True:
        leader = opened()
        try:
            leader.connect(where)
        except ConnectionRefusedError:
            leader.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
            continue
        leader.sendall(str(rank).encode())
        total = int(leader.recv(16))
        leader.close()
        return total


print(f"SUM={follow() if rank else endpoint()}")
