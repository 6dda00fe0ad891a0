"""A user without the key who knows PBS_JOBCOOKIE: tries it as the key at every port that the id tells; JSON at SIGTERM.

Arguments: id, host, "text" or "octets", cookies.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import time

from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.wire import PROTOCOL_VERSION as VERSION
from mingle_hooks.rendezvous.wire import Attempt, Material, Secret, check_in_ports
from mingle_hooks.rendezvous.wire import run_material as run_of

did: dict[str, object] = {"tried": 0, "said": []}
said: set[str] = set()


def ask(port: int, attempt: Attempt, secret: Secret) -> None:
    """Say HELLO with this key, and note what comes back."""
    with contextlib.suppress(OSError), socket.create_connection((sys.argv[2], port), 1.0) as sock:
        sock.settimeout(1.0)
        nonce, at = os.urandom(wire.NONCE_BYTES), wire.endpoint(sock.getpeername())
        hello = {"tag": attempt.tag.hex(), "version": VERSION, "nonce": nonce.hex(), "host": "thief", "at": at}
        hello["proof"] = secret.mac(b"hello", nonce, at.encode()).hex()
        hello["door"] = secret.attempt_secret.mac(b"door", nonce, at.encode()).hex()
        sock.sendall(wire.frame(wire.HELLO, wire.encode(hello)))
        length, kind = wire.HEADER.unpack(sock.recv(wire.HEADER.size, socket.MSG_WAITALL))
        body = wire.decode(sock.recv(length, socket.MSG_WAITALL))
        said.add(f"refused: {body['why']}" if kind == wire.REFUSED else f"kind {kind}: {body}")
        did["tried"] = int(str(did["tried"])) + 1


def main() -> None:
    """Try until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(print(json.dumps({**did, "said": sorted(said)}), flush=True)))
    while True:
        for cookie in sys.argv[4:]:
            key = Material(cookie.encode() if sys.argv[3] == "text" else bytes.fromhex(cookie))
            for run in (run_of(cookie), Material()):
                attempt = Attempt(sys.argv[1], run=run)
                for port in check_in_ports(attempt, Secret(b"not the key"), range(20_000, 25_000))[0]:
                    ask(port, attempt, Secret.derive(key, attempt))
        time.sleep(0.05)


main()
