"""SHA-256 and its HMAC without OpenSSL, which takes a tenth of a member's start to load.

The interpreter has SHA-256 built in. Where it was built without, the library's own is used.
"""

from __future__ import annotations

from _operator import _compare_digest as compare_digest

from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import sha256
else:
    try:
        from _sha2 import sha256  # Python 3.12 and later
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:
            from hashlib import sha256

__all__ = ["Hmac", "compare_digest", "sha256"]

_BLOCK_BYTES = 64  # SHA-256's, by which RFC 2104 pads the key
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))


class Hmac:
    """HMAC-SHA-256 (RFC 2104) under one key, which is hashed once for all messages."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        if len(key) > _BLOCK_BYTES:
            key = sha256(key).digest()
        block = key.ljust(_BLOCK_BYTES, b"\0")
        self._inner, self._outer = sha256(block.translate(_INNER)), sha256(block.translate(_OUTER))

    def of(self, message: bytes) -> bytes:
        """Return the 32 bytes of a message."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.digest()
