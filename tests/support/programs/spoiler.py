"""Without any key: find where a host listens, and have it turn eight octets away at each port.

Arguments: host, how many ports are to be found. It prints them as JSON once it has been turned away at all.
"""

import json
import socket
import sys
import time

PORTS = range(20_000, 25_000)
PATIENCE_S = 30.0
host, wanted = sys.argv[1], int(sys.argv[2])


def is_turned_away(port: int) -> bool:
    """Say something that nobody understands, and wait for the other side to hang up first."""
    try:
        with socket.create_connection((host, port), timeout=PATIENCE_S) as sock:
            sock.sendall(b"\xff" * 8)
            return sock.recv(1) == b""
    except ConnectionError:
        return False


found: set[int] = set()
deadline = time.monotonic() + PATIENCE_S
while len(found) < wanted and time.monotonic() < deadline:
    found |= {port for port in PORTS if port not in found and is_turned_away(port)}
print(json.dumps(sorted(found)))
