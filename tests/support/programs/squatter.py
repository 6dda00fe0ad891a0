"""Take the ports that anybody who knows the id can work out, answer nobody; argument: id."""

import signal
import socket
import sys

from mingle_hooks.rendezvous.wire import Attempt, Secret, check_in_ports

ports = check_in_ports(Attempt(sys.argv[1]), Secret(b"not the key"), range(20_000, 25_000))[0]
taken = [socket.create_server(("", port)) for port in ports]
print("ready", flush=True)
signal.pause()
