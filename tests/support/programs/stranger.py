"""A program without the key that knows the id and tries all it can; on SIGTERM it tells what it did, as JSON.

Arguments: id, the addresses to connect to, separated by commas.
"""

import contextlib
import json
import os
import signal
import socket
import struct
import sys
import time
from collections import deque

from mingle_hooks.rendezvous import multicast, wire
from mingle_hooks.rendezvous.wire import PROTOCOL_VERSION as VERSION, Attempt, Secret, check_in_ports, multicast_port

MOST_HELD = 300
attempt, targets, secret = Attempt(sys.argv[1]), sys.argv[2].split(","), Secret(b"not the key")
done = dict.fromkeys(("heard", "sent", "knocked", "answered"), 0)
captured: deque[bytes] = deque(maxlen=20)
held: deque[socket.socket] = deque(maxlen=MOST_HELD)  # half open; the oldest is closed as it goes

port, own = multicast_port(attempt), socket.gethostbyname(socket.gethostname())
udp, server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.create_server(("", 0))
udp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
udp.bind(("", port))
group = socket.inet_aton(attempt.group4)
udp.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + socket.inet_aton(own))
udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)  # its own would drown the others'
for sock in (udp, server):
    sock.settimeout(0)
its_port = server.getsockname()[1]
forged = [
    multicast.pack_beacon(
        multicast.Beacon(kind, attempt.tag, os.urandom(16), ticket, its_port, (own, "127.0.0.1")), secret
    )
    for kind in (multicast.BEACON, multicast.QUESTION)
    for ticket in (0, 1, 2**63)
]
said = {"tag": attempt.tag.hex(), "version": VERSION, "nonce": "00" * 16, "at": f"{own} {its_port}"}
hello = wire.frame(wire.HELLO, wire.encode({**said, "proof": "00" * 32, "door": "00" * 32}))
begun = hello + wire.frame(wire.CHECKIN, bytes(200))
greetings = [b"", b"\xff" * 4096, struct.pack("!IB", 2**32 - 1, 1), hello, begun]
terms = {"nonce": "00" * 16, "leader": "00" * 16, "ticket": 0, "host": "mallory", "proof": "00" * 32}
challenge = wire.frame(wire.CHALLENGE, wire.encode(terms))
open_ports = check_in_ports(attempt, secret, range(20_000, 25_000))[0]


def knock(target: str, at: int, data: bytes) -> None:
    """Connect, say something, and keep the connection half open."""
    sock = socket.socket()
    sock.settimeout(0.2)
    held.append(sock)
    with contextlib.suppress(OSError):
        sock.connect((target, at))
        done["knocked"] += 1
        sock.sendall(data)


signal.signal(signal.SIGTERM, lambda *_: sys.exit(print(json.dumps(done), flush=True)))
print("ready", flush=True)
turn = 0
while True:
    turn += 1
    with contextlib.suppress(BlockingIOError):
        captured.append(udp.recv(2048))
        done["heard"] += 1
    with contextlib.suppress(BlockingIOError):
        held.append(server.accept()[0])
        held[-1].sendall(challenge)
        done["answered"] += 1
    for data in [*forged, *captured]:
        with contextlib.suppress(OSError):
            udp.sendto(data, (attempt.group4, port))
            done["sent"] += 1
    beacons = {struct.unpack_from("!H", d, 5 + 1 + 8 + 16 + 8)[0] for d in captured if d[5] == multicast.BEACON}
    for where in {*open_ports, *beacons} - {0}:
        for target in targets:
            knock(target, where, greetings[turn % len(greetings)])
    time.sleep(0.01)
