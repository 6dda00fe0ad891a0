"""What a probe makes of an order, where its kernel does not take what it sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mingle_hooks.check.probes import LATE, ProbeRun
from mingle_hooks.check.session import Measured, Peer, parse_record
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.wire import Secret

if TYPE_CHECKING:
    from mingle_hooks.check.probes import Datagrams, Packet

COUNT, TURN_S = 3, 0.04
# Nobody listens on discard's port of the test machine's own.
PEER = Peer(1, 0, begins=False, network=0, mine="127.0.0.1", theirs="127.0.0.1", port=9, mtu=1500)


class Kernel:
    """Takes datagrams from some time on."""

    number = 0

    def __init__(self, has_room_at: float) -> None:
        self.has_room_at, self.now, self.sent = has_room_at, 0.0, 0

    def send(self, _mine: str, _where: tuple[str, int], _its: Packet) -> bool:
        self.sent += self.now >= self.has_room_at
        return self.now >= self.has_room_at


def met(kernel: Kernel, for_s: float) -> Measured:
    """Return what is known of the one peer after so many seconds."""
    datagrams: Datagrams = kernel  # type: ignore[assignment]
    with Loop(clock=lambda: kernel.now) as loop:
        meeting = ProbeRun(loop, Secret(b"a" * 32), datagrams, lambda: 0, [PEER], COUNT, TURN_S)
        while kernel.now < for_s:
            loop.turn(0.0)
            kernel.now += TURN_S / COUNT
        (row,) = meeting.measured()
    return parse_record(Measured, row)


@pytest.mark.parametrize("has_room_at", [0.0, 1.2])
def test_what_the_kernel_does_not_take_is_sent_again(has_room_at: float) -> None:
    """Each once; that there was no room is told."""
    kernel = Kernel(has_room_at)
    found = met(kernel, 3.0)
    assert (found.sent, kernel.sent, found.had_no_room) == (COUNT, COUNT, has_room_at > 0.0)
    assert found.closed not in ("", LATE)


def test_what_the_kernel_never_takes_has_not_been_sent() -> None:
    """Nor is there a call, which would find no more room."""
    found = met(Kernel(99.0), 3.0)
    assert (found.sent, found.had_no_room, found.closed) == (0, True, LATE)
