"""A fingerprint as one printable text: ``name=value`` parts, sorted, which the leader compares as a whole.

A name in lower case is a field's, or one of its parts (``limits.memlock``); one in upper case is a variable's.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# Characters of the whole, and of one value; twenty fields of usual length leave room for some thirty variables.
LONGEST, LONGEST_VALUE = 1024, 48
# What did not fit, as one hash: who has this part may have set variables that it does not name.
MORE = "more"
NOTHING = "-"  # there is none, which is also something to compare
FULL = "full"  # of /dev/shm and /tmp: told of whoever has it, whatever the others have
DOWN, NO_DEVICE, SILENT = "down", "no-device", "silent"  # of RDMA: what it says instead of the active ports
_ROOM = LONGEST - len(f" {MORE}=01234567")
# What stands for itself: ASCII from "!" on, but for the sign of an escape.
_PLAIN = "".join(map(chr, range(0x21, 0x7F))).replace("%", "")


def dumps(parts: Mapping[str, str]) -> str:
    """Return the text of at most LONGEST characters; where not all has room, the last variables by name have none."""
    words: list[str] = []
    left_out: list[str] = []
    length = -1
    for name in sorted(parts, key=lambda name: (is_variable(name), name)):
        word = f"{name}={_escaped(shortened(parts[name], LONGEST_VALUE))}"
        if not left_out and length + 1 + len(word) <= _ROOM:
            words.append(word)
            length += 1 + len(word)
        else:
            left_out.append(word)
    if left_out:
        words.append(f"{MORE}={hashed(' '.join(left_out))}")
    return " ".join(sorted(words))


def loads(text: str) -> dict[str, str]:
    """Return the parts of a text; what another version wrote in another way is left out."""
    pairs = (word.partition("=") for word in text.split(" "))
    return {name: _unescaped(value) for name, is_part, value in pairs if is_part and name}


def is_variable(name: str) -> bool:
    """Tell whether a part is a variable of the environment."""
    return name[:1].isupper()


def shortened(value: str, longest: int) -> str:
    """Return a value that is not longer than this, or a hash in its place."""
    return value if len(value) <= longest else f"#{hashed(value)}"


def hashed(value: str) -> str:
    """Return 8 hex digits for a text: enough to tell a few apart, and nothing to get the text back from."""
    # No more than its beginning and its length are hashed, as a variable may be of a megabyte.
    return sha256(f"{len(value)} {value[:4096]}".encode("utf-8", "surrogateescape")).hexdigest()[:8]


def _escaped(value: str) -> str:
    if not value.strip(_PLAIN):
        return value
    data = value.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if chr(byte) in _PLAIN else f"%{byte:02x}" for byte in data)


def _unescaped(value: str) -> str:
    first, *others = value.split("%")
    if not others:
        return value
    try:
        data = first.encode() + b"".join(bytes.fromhex(other[:2]) + other[2:].encode() for other in others)
    except ValueError:
        return value
    return data.decode("utf-8", "replace")
