"""Listen on ports in both families, and answer nobody; arguments: the ports."""

import signal
import socket
import sys

FAMILIES = (("", socket.AF_INET), ("::", socket.AF_INET6))
held = [socket.create_server((any_, int(port)), family=family) for port in sys.argv[1:] for any_, family in FAMILIES]
print("ready", flush=True)
signal.pause()
