"""Leaders that hold the key and lie.

Arguments: the key, and a file with a JSON object, port -> {"id": …, "says": what it says} of each.

{"host": …, "roster": …, "frames": [[kind, body], …]}: what it calls itself in its challenge, the rows that it sends
packed, and what it sends after a check-in. A body that is text is sent as it is, sealed; in any other, "packed" stands
for the digest of the rows.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from mingle_hooks.rendezvous import messages, wire
from mingle_hooks.rendezvous.wire import Attempt, Secret

LEADER = b"L" * 16
says: dict[str, Any] = {}
secret: Secret


def read(sock: socket.socket) -> tuple[int, bytes]:
    """Return one frame."""
    head = sock.recv(wire.HEADER.size, socket.MSG_WAITALL)
    length, kind = wire.HEADER.unpack(head)
    return kind, sock.recv(length, socket.MSG_WAITALL)


def serve(sock: socket.socket) -> None:
    """Answer one member."""
    _, hello = read(sock)
    nonce, mine = bytes.fromhex(json.loads(hello)["nonce"]), b"m" * wire.NONCE_BYTES
    host = says.get("host", "node1")
    proof = secret.mac(b"challenge", nonce, mine, LEADER, bytes(8), host.encode())
    body = {"nonce": mine.hex(), "leader": LEADER.hex(), "ticket": 0, "host": host, "proof": proof.hex()}
    sock.sendall(wire.frame(wire.CHALLENGE, wire.encode(body)))
    session = wire.Sealer(secret, nonce, mine, b"leader", b"member")
    session.open(*read(sock))
    packed = messages.pack_roster(json.dumps(says.get("roster")).encode())
    if "roster" in says:
        sock.sendall(wire.frame(wire.ROSTER, packed))
    for kind, what in says["frames"]:
        text = (
            what
            if isinstance(what, str)
            else json.dumps(what).replace('"packed"', f'"{messages.roster_digest(packed)}"')
        )
        sock.sendall(session.seal(kind, text.encode()))
    while sock.recv(4096):
        pass


def listen(server: socket.socket) -> None:
    """Answer all who come."""
    while True:
        sock, _ = server.accept()
        with sock:
            try:
                serve(sock)
            except (OSError, wire.struct.error):
                continue


servers = {
    socket.create_server(("", int(port))): lie for port, lie in json.loads(Path(sys.argv[2]).read_text()).items()
}
for server, lie in servers.items():
    if os.fork() == 0:
        says, secret = lie["says"], Secret.derive(sys.argv[1].encode(), Attempt(lie["id"]))
        listen(server)
print("ready", flush=True)
signal.pause()
