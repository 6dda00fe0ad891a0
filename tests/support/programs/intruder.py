"""A member that holds the key and lies: sends each of some check-ins. Arguments: id, host, port, key, JSON list.

Each is [check-in body, [[kind, body], …]]: what it says of itself, and the frames that it sends after that.
"""

import json
import os
import socket
import sys

from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.wire import PROTOCOL_VERSION as VERSION
from mingle_hooks.rendezvous.wire import Attempt, Secret

PURPOSES = {"proof": b"hello", "door": b"door"}
attempt = Attempt(sys.argv[1])
secret = Secret.derive(sys.argv[4].encode(), attempt)
for join_request, frames in json.loads(sys.argv[5]):
    with socket.create_connection((sys.argv[2], int(sys.argv[3]))) as sock:
        sock.settimeout(10)
        nonce, at = os.urandom(wire.NONCE_BYTES), wire.endpoint(sock.getpeername())
        proofs = {name: secret.mac(purpose, nonce, at.encode()).hex() for name, purpose in PURPOSES.items()}
        hello = {"tag": attempt.tag.hex(), "version": VERSION, "nonce": nonce.hex(), "at": at, **proofs}
        sock.sendall(wire.frame(wire.HELLO, wire.encode(hello)))
        length, _ = wire.HEADER.unpack(sock.recv(wire.HEADER.size, socket.MSG_WAITALL))
        theirs = bytes.fromhex(json.loads(sock.recv(length, socket.MSG_WAITALL))["nonce"])
        session = wire.Sealer(secret, nonce, theirs, b"member", b"leader")
        for kind, body in [[wire.CHECKIN, join_request], *frames]:
            sock.sendall(session.seal(kind, wire.encode(body)))
        while sock.recv(4096):  # until the leader hangs up
            pass
print("done")
