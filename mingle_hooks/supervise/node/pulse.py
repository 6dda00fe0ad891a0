"""Signs of life, both ways: one datagram a second, and how long ago the runner's last word was."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from mingle_hooks.supervise.protocol import life
from mingle_hooks.supervise.protocol.link import RUNNER, SUPERVISOR

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.loop import Loop, Timer
    from mingle_hooks.rendezvous.protocol.attempt import Secret
    from mingle_hooks.supervise.protocol.messages import Welcome


class Pulse:
    """Sends signs, and calls `on_silence()` once when the runner was silent for too long.

    The runner's signs are read when the next sign is due: one wake-up a second.
    """

    def __init__(
        self, loop: Loop, secret: Secret, address: str, welcome: Welcome, on_silence: Callable[[], None]
    ) -> None:
        self._loop, self._secret, self._number, self._on_silence = loop, secret, welcome.number, on_silence
        self._tag = life.tag(secret)
        self._silence_s = welcome.silence_ms / 1000
        self._interval_s = life.interval_s(self._silence_s)
        self._sent = self._taken = 0
        self._heard_at = self._beat_at = loop.clock()
        self._timer: Timer | None = None
        self._sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.settimeout(0)
        host, _, zone = address.partition("%")
        self._sock.connect((host, welcome.port, 0, int(zone or 0)) if ":" in host else (host, welcome.port))
        self._beat()

    def heard(self) -> None:
        """Take note of any word of the runner."""
        self._heard_at = self._loop.clock()

    def close(self) -> None:
        """Say and expect no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._sock.close()

    def _beat(self) -> None:
        now = self._loop.clock()
        # A stop of this process, as of a job that is suspended, is not the runner's silence.
        self._heard_at += max(now - self._beat_at - 2 * self._interval_s, 0.0)
        self._beat_at = now
        self._take()
        if now - self._heard_at > self._silence_s:
            self._on_silence()
            return
        self._sent += 1
        try:
            self._sock.send(life.pack(self._secret, self._tag, SUPERVISOR, life.Sign(self._number, self._sent)))
        except OSError:  # the next may get through
            pass
        self._timer = self._loop.after(self._interval_s, self._beat)

    def _take(self) -> None:
        """Read what has come; a number that is not higher than the last is an old sign, or somebody's copy."""
        while True:
            try:
                data = self._sock.recv(life.BYTES + 1)
            except BlockingIOError:
                return
            except OSError:  # what became of an earlier one
                continue
            sign = life.unpack(self._secret, self._tag, RUNNER, data)
            if sign is not None and sign.number == self._number and sign.sequence > self._taken:
                self._taken = sign.sequence
                self.heard()
