"""What a member asks, and when a beacon makes it ask: recorded ones lead to few questions, and to no connection."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mingle_hooks.rendezvous.discovery.multicast.beacon import NONCE_BYTES
from mingle_hooks.rendezvous.discovery.multicast.budget import Budget
from mingle_hooks.rendezvous.member.dialer import CALL_S, REST_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.discovery.multicast.beacon import Packet

# A nonce is open for this long, in seconds: an answer that no longer fits a leader's budget comes with its next beacon
# of that link, once in four seconds where there are four links.
OPEN_S = 5.0
MOST_OPEN = 16
# Beacons that come at once, over several links or of several leaders, have one question: everybody there hears it.
GAP_S = 0.02
# A leader that was asked so many times since it was first heard is asked again after these seconds at the earliest: the
# question or its answer may have been lost. It may also be gone, or hear nobody.
AGAIN_S = (0.2, 0.3, 0.5, 0.5, 1.0, 2.0, 5.0, 20.0)
# The first of these times do not wait for its next beacon.
UNBIDDEN = 2
# Leaders that are remembered; there is one, and candidates as many as an election has.
MOST_HEARD = 256
# Of all questions that beacons cause: a leader that comes while somebody sends recorded ones waits 2 s at the most.
CAUSED = (8, 0.5)
_ANSWERED = -1


class Questions:
    """The nonces that are open, and the leaders that have been asked about."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[bytes, float] = {}  # nonce -> until when, oldest first
        # Leader -> how often it was asked in vain, and when it may be asked again.
        self._heard: dict[bytes, tuple[int, float]] = {}
        self._next = clock()
        self._caused = Budget(*CAUSED, clock)

    def begin(self) -> None:
        """Look anew: a leader that has answered may be asked again at once, for it was lost."""
        self._heard = {leader: heard for leader, heard in self._heard.items() if heard[0] != _ANSWERED}

    def wait_s(self, leader: bytes) -> float | None:
        """Return in how many seconds to ask because of this leader's beacon; None where it has just been asked."""
        now = self._clock()
        if leader not in self._heard and len(self._heard) >= MOST_HEARD:
            self._heard.clear()
        _, due = self._heard.setdefault(leader, (0, now))
        return max(self._next - now, 0.0) if due <= now else None

    def retry_s(self, leader: bytes) -> float | None:
        """Return in how many seconds to ask this leader again although no other beacon of it has come, None: not."""
        count, due = self._heard.get(leader, (_ANSWERED, 0.0))
        return max(due - self._clock(), 0.0) if 0 < count <= UNBIDDEN else None

    def may_ask(self) -> bool:
        """Tell whether one more question may be asked because of a beacon."""
        return self._caused.spend()

    def ask(self) -> bytes:
        """Return a new nonce, open from now on. Every leader heard so far is asked with it."""
        now = self._clock()
        self._next = now + GAP_S
        for leader, (count, due) in self._heard.items():
            if due <= now:
                self._heard[leader] = (count + 1, now + AGAIN_S[min(max(count, 0), len(AGAIN_S) - 1)])
        nonce = os.urandom(NONCE_BYTES)
        self._open[nonce] = now + OPEN_S
        if len(self._open) > MOST_OPEN:
            del self._open[next(iter(self._open))]
        return nonce

    def is_answered(self, beacon: Packet) -> bool:
        """Tell whether this answers a nonce that is open; several leaders may answer one."""
        now = self._clock()
        if not any(self._open.get(nonce, now) > now for nonce in beacon.nonces):
            return False
        self._heard[beacon.leader] = (_ANSWERED, now + CALL_S + REST_S)  # it is being dialled
        return True
