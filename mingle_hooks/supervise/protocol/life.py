"""Signs of life: one small datagram a second, both ways, that only holders of the run's key can make.

A datagram is ``tag (8) | number (4) | sequence (8) | MAC (16)``. Lost ones cost nothing; TCP's own signs would wait
behind its retransmissions, for more than 15 s where a third of the packets is lost.
"""

from __future__ import annotations

import struct
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.protocol.attempt import Secret

_FIELDS = struct.Struct("!8sIQ")
_TAG_BYTES, _MAC_BYTES = 8, 16
BYTES = _FIELDS.size + _MAC_BYTES
INTERVAL_S = 1.0
# Where the allowed silence is short, so many signs are given in it.
_SIGNS_IN_SILENCE = 4
# A peer that is silent for so long is asked.
ASK_S = 3.0


class Sign(NamedTuple):
    """A sign of life: a supervisor's number, and a sequence number that only grows, so that no old one counts."""

    number: int
    sequence: int


def tag(secret: Secret) -> bytes:
    """Return what all datagrams of a run begin with."""
    return secret.mac(b"run")[:_TAG_BYTES]


def interval_s(silence_s: float) -> float:
    """Return the time between two signs where a silence of so long ends all."""
    return min(INTERVAL_S, silence_s / _SIGNS_IN_SILENCE)


def pack(secret: Secret, tag: bytes, side: bytes, sign: Sign) -> bytes:
    """Return a datagram of one side (link.RUNNER or link.SUPERVISOR)."""
    fields = _FIELDS.pack(tag, *sign)
    return fields + secret.mac(b"life", side, fields)[:_MAC_BYTES]


def unpack(secret: Secret, tag: bytes, side: bytes, data: bytes) -> Sign | None:
    """Return what one side said; None for what it did not."""
    if len(data) != BYTES or not data.startswith(tag):
        return None
    fields, mac = data[: _FIELDS.size], data[_FIELDS.size :]
    if not compare_digest(mac, secret.mac(b"life", side, fields)[:_MAC_BYTES]):
        return None
    _, number, sequence = _FIELDS.unpack(fields)
    return Sign(number, sequence)
