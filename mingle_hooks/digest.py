"""SHA-256 and its HMAC without OpenSSL, which takes a tenth of a member's start to load.

The interpreter has SHA-256 built in. Where it was built without, and for long messages, where OpenSSL is several
times as fast, the library's own is used.
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

__all__ = ["compare_digest", "hmac_sha256", "sha256"]

_BLOCK_BYTES = 64  # SHA-256's, by which RFC 2104 pads the key
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))
_LONG_BYTES = 1 << 15


def hmac_sha256(key: bytes, message: bytes) -> bytes:
    """Return the 32 bytes of HMAC-SHA-256 (RFC 2104)."""
    if len(message) > _LONG_BYTES:
        from hmac import digest  # noqa: PLC0415 - only a roster of hundreds is so long

        return digest(key, message, "sha256")
    if len(key) > _BLOCK_BYTES:
        key = sha256(key).digest()
    block = key.ljust(_BLOCK_BYTES, b"\0")
    inner = sha256(block.translate(_INNER) + message).digest()
    return sha256(block.translate(_OUTER) + inner).digest()
