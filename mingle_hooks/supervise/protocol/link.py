"""One proven connection between the runner and a supervisor.

The supervisor proves first: who cannot seal a JOIN over both nonces learns nothing of the key, and is dropped. The
frames of COMMAND's output are not sealed one by one, as a gigabyte of them would cost seconds.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mingle_hooks.rendezvous.protocol.connection import Connection
from mingle_hooks.rendezvous.protocol.wire import (
    HEADER,
    NONCE_BYTES,
    Sealer,
    WireError,
    decode,
    encode,
    frame,
    hexadecimal,
)
from mingle_hooks.supervise.protocol.messages import CHALLENGE, DRAINED, ERR, HELLO, OUT

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.rendezvous.protocol.attempt import Secret
    from mingle_hooks.rendezvous.protocol.wire import Body

RUNNER, SUPERVISOR = b"leader", b"member"
# START with an environment and a command; output comes in frames of some 100 KB.
MOST_BYTES = 8 * 1024 * 1024
_OUTPUT = (OUT, ERR, DRAINED)


class Link:
    """A connection that hands over messages once both sides have proved that they hold the run's key.

    `on_message(kind, body)` gets what was sealed, `on_output(kind, data)` the output; `on_end(reason)` comes once
    where the other side or the network ended it. `on_proved()` comes on the supervisor's side when it may speak.
    """

    __slots__ = (
        *("_connection", "_is_proved", "_nonce", "_sealer", "_secret"),
        *("is_runner", "on_message", "on_output", "on_proved"),
    )

    def __init__(
        self, loop: Loop, sock: socket.socket, secret: Secret, *, is_runner: bool, on_end: Callable[[str], None]
    ) -> None:
        self._connection = Connection(loop, sock, self._frame, on_end)
        self._nonce = os.urandom(NONCE_BYTES)
        self._secret, self.is_runner = secret, is_runner
        self._sealer: Sealer | None = None
        self._is_proved = False  # by a sealed frame of the other side
        self.on_message: Callable[[int, Body], None] = lambda _kind, _body: None
        self.on_output: Callable[[int, bytes], None] = lambda _kind, _data: None
        self.on_proved: Callable[[], None] = lambda: None
        if not is_runner:
            self._connection.send(frame(HELLO, encode({"nonce": self._nonce.hex()})))

    @property
    def closed(self) -> bool:
        """Whether the connection is gone."""
        return self._connection.closed

    @property
    def waiting_bytes(self) -> int:
        """How much has not been taken by the kernel yet."""
        return self._connection.waiting_bytes

    def send(self, kind: int, body: Body) -> None:
        """Send a sealed message; only once the other side is known."""
        if self._sealer is not None:
            self._connection.send(self._sealer.seal(kind, encode(body)))

    def send_output(self, kind: int, *parts: bytes | memoryview) -> None:
        """Send output as it is, in one frame."""
        self._connection.send(HEADER.pack(sum(map(len, parts)), kind), *parts)

    def tell_of_room(self, call: Callable[[], None]) -> None:
        """Call each time when less is waiting than before."""
        self._connection.on_room = call

    def listen(self, *, wanted: bool) -> None:
        """Go on reading what the other side sends, or leave it with the kernel for now."""
        self._connection.listen(wanted=wanted)

    def close(self) -> None:
        """Close now; on_end will not come."""
        self._connection.close()

    def _frame(self, kind: int, payload: bytes) -> None:
        if self._sealer is None:
            self._greet(kind, payload)
        elif kind in _OUTPUT and self.is_runner and self._is_proved:
            self.on_output(kind, payload)
        else:
            body = self._sealer.open(kind, payload)
            self._is_proved, self._connection.most_bytes = True, MOST_BYTES
            self.on_message(kind, body)

    def _greet(self, kind: int, payload: bytes) -> None:
        """Take the other side's nonce; the first sealed frame proves the rest."""
        if kind != (HELLO if self.is_runner else CHALLENGE):
            raise WireError("not a greeting")
        theirs = hexadecimal(decode(payload), "nonce", NONCE_BYTES)
        if self.is_runner:
            self._sealer = Sealer(self._secret, theirs, self._nonce, RUNNER, SUPERVISOR)
            self._connection.send(frame(CHALLENGE, encode({"nonce": self._nonce.hex()})))
        else:
            self._sealer = Sealer(self._secret, self._nonce, theirs, SUPERVISOR, RUNNER)
            self._connection.most_bytes = MOST_BYTES
            self.on_proved()
