"""--progress FILE: whether the program has got further."""

from __future__ import annotations

import os


def seen(path: str | None) -> object:
    """Return what is another thing each time that the file has changed; None where there is none."""
    try:
        its = os.stat(path or "")
    except OSError:
        return None
    return its.st_mtime_ns, its.st_size, its.st_ino
