"""The one kind of datagram: a leader's beacon, or a member's question.

``MNGL | version | kind | tag (8) | leader (16) | ticket (8) | port (2) | count (1) | addresses (16 each) |
nonces (8 each) | MAC (16)``; an IPv4 address travels as ::ffff:a.b.c.d.

Anybody can record a beacon and send it again, for as long as they like, and its MAC stays right. So a beacon only makes
a member ask, with a nonce of its own, and only a beacon that carries an open nonce of ours is an answer, and leads to a
connection. One beacon answers many members, so that a leader's datagrams do not grow with them. Even then all is proved
again over TCP.

A beacon without nonces looks the same in every version of mingle: by it members of two versions meet over TCP, where
they can tell each other so.
"""

from __future__ import annotations

import socket
import struct
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.rendezvous.protocol.attempt import TAG_BYTES

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.protocol.attempt import Secret

MAGIC = b"MNGL\x01"
BEACON, QUESTION = 1, 2
NOBODY = bytes(16)
MOST_ADDRESSES = 8
NONCE_BYTES, MAC_BYTES = 8, 16
# Members that one beacon answers at most: as many as leave it below the smallest MTU of IPv6.
MOST_NONCES = 128
_HEAD = struct.Struct(f"!5sB{TAG_BYTES}s16sQHB")
# The largest packet: 1209.
MOST_BYTES = _HEAD.size + 16 * MOST_ADDRESSES + NONCE_BYTES * MOST_NONCES + MAC_BYTES
_MAPPED = b"\0" * 10 + b"\xff\xff"


class Packet(NamedTuple):
    """What a datagram says; `port` and `addresses` are a leader's, `nonces` a question's own or those it answers.

    `leader` is the sender, in a question of a member that is no candidate too.
    """

    kind: int
    tag: bytes
    leader: bytes
    ticket: int = 0
    port: int = 0
    addresses: tuple[str, ...] = ()
    genuine: bool = True
    nonces: tuple[bytes, ...] = ()

    @property
    def precedence(self) -> tuple[int, bytes]:
        """What the lowest of wins an election."""
        return (self.ticket, self.leader)


def pack(packet: Packet, secret: Secret) -> bytes:
    """Return the datagram."""
    addresses = packet.addresses[:MOST_ADDRESSES]
    head = _HEAD.pack(MAGIC, packet.kind, packet.tag, packet.leader, packet.ticket, packet.port, len(addresses))
    data = head + b"".join(_packed(address) for address in addresses) + b"".join(packet.nonces[:MOST_NONCES])
    return data + secret.mac(b"beacon", data)[:MAC_BYTES]


def unpack(data: bytes, tag: bytes, secret: Secret) -> Packet | None:
    """Return what a datagram says, None where it is not of this world; `genuine` tells whether the key fits."""
    if not _HEAD.size + MAC_BYTES <= len(data) <= MOST_BYTES or not data.startswith(MAGIC):
        return None
    _, kind, its_tag, leader, ticket, port, count = _HEAD.unpack_from(data)
    middle, end = _HEAD.size + 16 * count, len(data) - MAC_BYTES
    if its_tag != tag or kind not in (BEACON, QUESTION) or count > MOST_ADDRESSES or middle > end:
        return None
    if (end - middle) % NONCE_BYTES:
        return None
    genuine = compare_digest(data[end:], secret.mac(b"beacon", data[:end])[:MAC_BYTES])
    addresses = tuple(_text(data[start : start + 16]) for start in range(_HEAD.size, middle, 16))
    nonces = tuple(data[start : start + NONCE_BYTES] for start in range(middle, end, NONCE_BYTES))
    return Packet(kind, its_tag, leader, ticket, port, addresses, genuine, nonces)


def _packed(address: str) -> bytes:
    if ":" in address:
        return socket.inet_pton(socket.AF_INET6, address)
    return _MAPPED + socket.inet_pton(socket.AF_INET, address)


def _text(row: bytes) -> str:
    if row.startswith(_MAPPED):
        return socket.inet_ntop(socket.AF_INET, row[12:])
    return socket.inet_ntop(socket.AF_INET6, row)
