"""A program without the key that knows the id and tries all it can; on SIGTERM it tells what it did, as JSON.

Arguments: id, the addresses to connect to, separated by commas.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import struct
import sys
import time
from dataclasses import dataclass, field

from mingle_hooks.rendezvous import multicast, wire
from mingle_hooks.rendezvous.wire import PROTOCOL_VERSION as VERSION
from mingle_hooks.rendezvous.wire import Attempt, Secret, check_in_ports, multicast_port

MOST_HELD = 300


@dataclass
class Stranger:
    """What it has open, and what it has done."""

    attempt: Attempt
    targets: list[str]
    done: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("heard", "sent", "knocked", "answered"), 0))
    held: list[socket.socket] = field(default_factory=list)
    captured: list[bytes] = field(default_factory=list)

    def rejected_peer(self, port: int, data: bytes) -> None:
        """Connect, say something, and keep the connection half open."""
        for target in self.targets:
            sock = socket.socket()
            sock.settimeout(0.2)
            self.held.append(sock)
            with contextlib.suppress(OSError):
                sock.connect((target, port))
                self.done["knocked"] += 1
                sock.sendall(data)
        while len(self.held) > MOST_HELD:
            self.held.pop(0).close()


def main() -> None:
    """Run until SIGTERM."""
    attempt = Attempt(sys.argv[1])
    me = Stranger(attempt, sys.argv[2].split(","))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(print(json.dumps(me.done), flush=True)))
    port = multicast_port(attempt)
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    udp.bind(("", port))
    own = socket.gethostbyname(socket.gethostname())
    group = socket.inet_aton(attempt.group4)
    udp.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + socket.inet_aton(own))
    udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
    server = socket.create_server(("", 0))
    udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)  # its own would drown the others'
    udp.settimeout(0)
    server.settimeout(0)
    its_port = server.getsockname()[1]
    secret = Secret(b"not the key")
    forged = [
        multicast.pack_beacon(
            multicast.Beacon(kind, attempt.tag, os.urandom(16), ticket, its_port, (own, "127.0.0.1")), secret
        )
        for kind in (multicast.BEACON, multicast.QUESTION)
        for ticket in (0, 1, 2**63)
    ]
    said = {"tag": attempt.tag.hex(), "version": VERSION, "nonce": "00" * 16, "at": f"{own} {its_port}"}
    hello = wire.frame(wire.HELLO, wire.encode({**said, "proof": "00" * 32, "door": "00" * 32}))
    rejected = [
        b"",
        b"\xff" * 4096,
        struct.pack("!IB", 2**32 - 1, 1),
        hello,
        hello + wire.frame(wire.CHECKIN, bytes(200)),
    ]
    open_ports = check_in_ports(attempt, secret, range(20_000, 25_000))[0]
    challenge = {"nonce": "00" * 16, "leader": "00" * 16, "ticket": 0, "host": "mallory", "proof": "00" * 32}
    with selectors.DefaultSelector() as selector:
        for sock in (udp, server):
            selector.register(sock, selectors.EVENT_READ)
        print("ready", flush=True)
        turn = 0
        while True:
            turn += 1
            with contextlib.suppress(BlockingIOError):
                data = udp.recv(2048)
                me.done["heard"] += 1
                me.captured = [*me.captured[-20:], data]
            with contextlib.suppress(BlockingIOError):
                sock, _ = server.accept()
                sock.sendall(wire.frame(wire.CHALLENGE, wire.encode(challenge)))
                me.done["answered"] += 1
                me.held.append(sock)
            for data in [*forged, *me.captured]:
                with contextlib.suppress(OSError):
                    udp.sendto(data, (attempt.group4, port))
                    me.done["sent"] += 1
            beacons = {
                struct.unpack_from("!H", d, 5 + 1 + 8 + 16 + 8)[0] for d in me.captured if d[5] == multicast.BEACON
            }
            for where in {*open_ports, *beacons} - {0}:
                me.rejected_peer(where, rejected[turn % len(rejected)])
            time.sleep(0.01)


main()
