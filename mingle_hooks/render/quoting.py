"""Values as text for their place: a word of bash, or a comment. Each scheduler has its own for its directives.

The result is always one line without control characters, so it cannot end a comment, a directive or a
function, and it can be read. bash's `$'…'` carries what has to be written as an escape.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mingle_hooks.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+", re.ASCII)
# `a=b` as the first word of a command would be an assignment; as an argument it is not, and is quoted too.
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", "'": "\\'"}
# A literal DEL or \001 is bash's own mark inside $'…' in `declare -f`; older ones double or drop it.
NOT_CARRIED = frozenset("\0\x01\x7f")


def word(value: object) -> str:
    """Return `value` as one word of bash in which nothing is special. Raises UsageError for NUL, SOH and DEL."""
    text = str(value)
    if _PLAIN.fullmatch(text) and "=" not in text:
        return text
    if NOT_CARRIED.intersection(text):
        raise UsageError("text that a shell can carry", repr(text), "leaving out the control characters")
    if text.isprintable():
        return "'" + text.replace("'", "'\\''") + "'"
    return "$'" + "".join(_escaped(char) for char in text) + "'"


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    # surrogateescape: what was not UTF-8 on the command line goes back to the byte that it was
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))


def words(values: Iterable[object]) -> str:
    """Return a command line. `=` is special in the first word only, and --lr=3 reads better without quotes.

    Raises UsageError.
    """
    first, *rest = values
    return " ".join([word(first), *(argument(value) for value in rest)])


def argument(value: object) -> str:
    """Return one word that is not the first of a command. Raises UsageError."""
    text = str(value)
    return text if _PLAIN.fullmatch(text) else word(text)
