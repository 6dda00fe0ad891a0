"""Standard output, all or nothing."""

from __future__ import annotations

import os


def write(text: str) -> None:
    """Write the whole text to stdout at once; OSError when it cannot be written."""
    data = os.fsencode(text)
    while data:
        data = data[os.write(1, data) :]
