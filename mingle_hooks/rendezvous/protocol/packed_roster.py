"""The roster as it travels: encoded once, compressed, the same octets for every member that asks for it.

It goes before the answer, without a MAC of its own: the answer, which has one, holds its digest.
"""

from __future__ import annotations

import zlib
from hashlib import sha256

from mingle_hooks import jsontext
from mingle_hooks.rendezvous.protocol.wire import MOST_LEADER_BYTES, WireError

# Fast: the rows of neighbours are alike, and every further level takes longer than it saves.
LEVEL = 1


def pack(text: bytes) -> bytes:
    """Return the rows' JSON text, compressed."""
    return zlib.compress(text, LEVEL)


def digest(packed: bytes) -> str:
    """Return what the answer says of packed rows: their SHA-256 in hex."""
    return sha256(packed).hexdigest()


def check(packed: bytes, expected: str) -> None:
    """Raise WireError for other rows than those of which the answer has this digest."""
    if digest(packed) != expected:
        raise WireError("roster: not the one of this answer")


def unpack(packed: bytes) -> object:
    """Return what was packed, to be checked; WireError if it is no such thing."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(packed, MOST_LEADER_BYTES)
        if not unpacker.eof:
            raise WireError(f"roster: more than {MOST_LEADER_BYTES} bytes, or cut short")
        return jsontext.loads(text)
    except (zlib.error, ValueError, RecursionError) as error:
        raise WireError("roster: not a packed one") from error
