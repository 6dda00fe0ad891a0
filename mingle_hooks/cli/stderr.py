"""Standard error: what is said there may be lost, for there is nobody else to tell."""

from __future__ import annotations

import os
import sys


def write(text: str) -> None:
    """Write text to stderr, as far as that can be done."""
    send(text.encode(sys.stderr.encoding, "backslashreplace"))


def send(data: bytes) -> None:
    """Write bytes to stderr, as far as that can be done."""
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:  # closed, full, or nobody reads it
        return
