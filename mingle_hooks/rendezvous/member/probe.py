"""One address that a leader offers: a member tries it until it answers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mingle_hooks.rendezvous.protocol import wire
from mingle_hooks.rendezvous.protocol.connection import Connection, dial

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.loop import Loop, Timer
    from mingle_hooks.rendezvous.protocol.attempt import Attempt, Secret

# Try an offered address again after this long, in seconds: TCP's own second try comes after one. Each further time
# after twice as long: where it is the leader that is slow, with thousands at its door, tries keep it so.
PROBE_AGAIN_S, PROBE_SELDOM_S = 2.0, 16.0


class Probe:
    """Connects to one offered address until it answers: the proof that this member can reach it.

    It counts once the leader has closed. Whoever closes first keeps the port in TIME_WAIT, and that has to be the
    leader's host, where the kernel then hands the world's port to nobody.
    """

    def __init__(
        self,
        loop: Loop,
        attempt: Attempt,
        secret: Secret,
        leader: bytes,
        address: str,
        port: int,
        on_reached: Callable[[Probe], None],
    ) -> None:
        self._loop, self._attempt, self._secret, self._leader = loop, attempt, secret, leader
        self.address, self._port, self._on_reached = address, port, on_reached
        self._connection: Connection | None = None
        self.own_address = ""  # this side's address, once the leader has proved itself
        self._nonce = b""
        self._again_s = PROBE_AGAIN_S
        self._timer: Timer | None = None

    @property
    def connected(self) -> str:
        """The address, while somebody is there who has not answered yet."""
        return self.address if self._connection is not None and self._connection.is_connected else ""

    def start(self) -> None:
        """Try now, and again until it answers."""
        self._end_try()
        self._timer = self._loop.after(self._again_s, self.start)
        self._again_s = min(2 * self._again_s, PROBE_SELDOM_S)
        try:
            sock = dial(self.address, self._port)
        except OSError as error:  # no route, say: the next try may find one
            self._loop.missed(error)
            return
        self._nonce, self.own_address = os.urandom(wire.NONCE_BYTES), ""
        self._connection = Connection(self._loop, sock, self._frame, self._ended)
        at = wire.dialled(self.address, self._port).encode()
        proof = self._secret.mac(b"verify", self._nonce, self._leader, at)
        body = {"tag": self._attempt.tag.hex(), "nonce": self._nonce.hex(), "proof": proof.hex()}
        self._connection.send(wire.frame(wire.VERIFY, wire.encode(body)))

    def close(self) -> None:
        """Stop trying."""
        self._end_try()
        if self._timer is not None:
            self._timer.cancel()

    def _end_try(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _frame(self, kind: int, payload: bytes) -> None:
        proof = wire.hexadecimal(wire.decode(payload), "proof", wire.MAC_BYTES)
        connection = self._connection
        if connection is None or kind != wire.VERIFIED or self.own_address:
            raise wire.WireError("not an answer")
        if not self._secret.agrees(proof, b"verified", self._nonce):
            raise wire.WireError("not our leader")
        self.own_address = connection.own_address()

    def _ended(self, _reason: str) -> None:
        if self.own_address:
            self.close()
            self._on_reached(self)
