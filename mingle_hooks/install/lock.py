"""One installation at a time: two at once would each write a manifest without the other's files."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mingle_hooks.errors import PlaceError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Root's alone, as any user could hold a lock on a file that is open to all. It is no lock file by its presence, so
# one that a power cut leaves is in nobody's way.
PATH = "/run/mingle-hooks.lock"


@contextmanager
def alone(root: str) -> Iterator[None]:
    """Keep other installations below root out meanwhile. Raises PlaceError where there is one already."""
    try:
        if root:  # nothing is written into an image but the hooks
            descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        else:
            descriptor = os.open(PATH, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as wrong:
        raise PlaceError("a lock", f"{root or PATH}: {wrong.strerror}", "running it as root") from None
    try:
        _lock(descriptor, root or PATH)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        seen = f"another that is at work ({path} is locked)"
        raise PlaceError("one mingle hooks install or uninstall at a time", seen, "again when that ends") from None
