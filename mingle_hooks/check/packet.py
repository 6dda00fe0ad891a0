"""The datagrams between probes, which only holders of the check's key can make.

``magic | kind | from | to | network | value | time | MAC (8)``, and zeros up to its size where that is what counts.
"""

from __future__ import annotations

import struct
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.protocol.attempt import Secret

# Asks for an echo; the echo; asks for nothing; one of a size, and that it came; a door's word, and one to all.
PING, ECHO, NOTE, SIZE, SIZED, HERE, ALL = range(1, 8)
_HEAD = struct.Struct("!4sBHHHIQ")
_MAGIC, _MAC_BYTES = b"MCHK", 8
BYTES = _HEAD.size + _MAC_BYTES
# What IP and UDP put in front.
HEADERS_4, HEADERS_6 = 28, 48


class Packet(NamedTuple):
    """From which host to which, on which network; `value` counts, or is a size in octets, `time` in nanoseconds."""

    kind: int
    sender: int
    to: int
    network: int = 0
    value: int = 0
    time: int = 0


def pack(secret: Secret, packet: Packet) -> bytes:
    """Return the datagram."""
    head = _HEAD.pack(_MAGIC, *packet)
    return head + secret.mac(b"check", head)[:_MAC_BYTES]


def unpack(secret: Secret, data: bytes) -> Packet | None:
    """Return what a datagram says; None where it is none of ours."""
    if len(data) < BYTES or not data.startswith(_MAGIC):
        return None
    head = data[: _HEAD.size]
    if not compare_digest(data[_HEAD.size : BYTES], secret.mac(b"check", head)[:_MAC_BYTES]):
        return None
    return Packet(*_HEAD.unpack(head)[1:])


def padding(where: str, size: int) -> int:
    """Return how many zeros make a datagram to this address a packet of so many octets."""
    return max(size - (HEADERS_6 if ":" in where else HEADERS_4) - BYTES, 0)
