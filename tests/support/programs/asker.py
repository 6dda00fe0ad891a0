"""Somebody without the key who says to a leader all that could make it prove the key; arguments: id, host, port.

What comes back is printed in hex, one line for each thing that was said, and is the same each time as far as it is
this program's own doing: nothing that it says is random.
"""

import socket
import sys

from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.wire import PROTOCOL_VERSION as VERSION
from mingle_hooks.rendezvous.wire import Attempt

PATIENCE_S = 3.0
tag = Attempt(sys.argv[1]).tag.hex()
where = sys.argv[2], int(sys.argv[3])


def heard(*said: bytes) -> bytes:
    """Return all that comes back until the leader hangs up, which it should do at once."""
    with socket.create_connection(where, PATIENCE_S) as sock:
        sock.sendall(b"".join(said))
        found = b""
        try:
            while data := sock.recv(4096):
                found += data
        except ConnectionResetError:  # it left something unread
            pass
        except TimeoutError:
            return found + b"..."
        return found


with socket.create_connection(where, PATIENCE_S) as sock:
    at = wire.endpoint(sock.getpeername())
proofs = {"proof": "00" * wire.MAC_BYTES, "door": "00" * wire.MAC_BYTES}
hello = {"tag": tag, "version": VERSION, "nonce": "00" * wire.NONCE_BYTES, "host": "asker", "at": at, **proofs}
verify = {"tag": tag, "nonce": "00" * wire.NONCE_BYTES, "proof": "00" * wire.MAC_BYTES}
without = {name: value for name, value in hello.items() if name not in proofs}
for greeting in (hello, without, {**hello, "version": VERSION + 1}, {**hello, "at": "10.77.0.9 1"}):
    said = wire.frame(wire.HELLO, wire.encode(greeting))
    print(heard(said).hex())
    print(heard(said, wire.frame(wire.CHECKIN, bytes(200))).hex())
for kind, body in ((wire.VERIFY, verify), (wire.CHALLENGE, hello), (wire.FAILED, hello), (wire.RIVAL, hello)):
    print(heard(wire.frame(kind, wire.encode(body))).hex())
print(heard(b"\xff" * 8).hex())
