"""The one kind of datagram: a leader's beacon, or a newcomer's question.

``MNGL | version | kind | tag (8) | leader (16) | ticket (8) | port (2) | count (1) | addresses (16 each) | MAC (16)``;
an IPv4 address travels as ::ffff:a.b.c.d. A beacon only tells where to knock: everything is proved again over TCP,
so a beacon that is repeated, late or from yesterday costs one connection and changes nothing.
"""

from __future__ import annotations

import struct

from mingle_hooks import sockets as socket
from mingle_hooks.digest import compare_digest
from mingle_hooks.rendezvous.attempt import TAG_BYTES
from mingle_hooks.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.attempt import Secret

MAGIC = b"MNGL\x01"
BEACON, QUESTION = 1, 2
MOST_ADDRESSES = 8
MAC_BYTES = 16
_HEAD = struct.Struct(f"!5sB{TAG_BYTES}s16sQHB")
# The largest packet that is read; all of ours are smaller, and below any MTU.
MOST_BYTES = _HEAD.size + 16 * MOST_ADDRESSES + MAC_BYTES
_MAPPED = b"\0" * 10 + b"\xff\xff"


class Packet(NamedTuple):
    """What a datagram says; `port` and `addresses` are a leader's."""

    kind: int
    tag: bytes
    leader: bytes
    ticket: int = 0
    port: int = 0
    addresses: tuple[str, ...] = ()
    genuine: bool = True


def pack(packet: Packet, secret: Secret) -> bytes:
    """Return the datagram."""
    addresses = packet.addresses[:MOST_ADDRESSES]
    head = _HEAD.pack(MAGIC, packet.kind, packet.tag, packet.leader, packet.ticket, packet.port, len(addresses))
    data = head + b"".join(_packed(address) for address in addresses)
    return data + secret.mac(b"beacon", data)[:MAC_BYTES]


def unpack(data: bytes, tag: bytes, secret: Secret) -> Packet | None:
    """Return what a datagram says, None where it is not of this world; `genuine` tells whether the key fits."""
    if len(data) < _HEAD.size + MAC_BYTES or not data.startswith(MAGIC):
        return None
    _, kind, its_tag, leader, ticket, port, count = _HEAD.unpack_from(data)
    end = _HEAD.size + 16 * count
    if its_tag != tag or kind not in (BEACON, QUESTION) or count > MOST_ADDRESSES or len(data) != end + MAC_BYTES:
        return None
    genuine = compare_digest(data[end:], secret.mac(b"beacon", data[:end])[:MAC_BYTES])
    rows = [data[start : start + 16] for start in range(_HEAD.size, end, 16)]
    return Packet(kind, its_tag, leader, ticket, port, tuple(_text(row) for row in rows), genuine)


def _packed(address: str) -> bytes:
    if ":" in address:
        return socket.inet_pton(socket.AF_INET6, address)
    return _MAPPED + socket.inet_pton(socket.AF_INET, address)


def _text(row: bytes) -> str:
    if row.startswith(_MAPPED):
        return socket.inet_ntop(socket.AF_INET, row[12:])
    return socket.inet_ntop(socket.AF_INET6, row)
