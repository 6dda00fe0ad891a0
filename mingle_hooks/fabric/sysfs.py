"""Reading the kernel's one-line files under /sys and /proc."""

from __future__ import annotations

import os

_MOST_BYTES = 128


def attribute(path: str) -> str:
    """Return one attribute, or "" where it cannot be read.

    That is an answer, not a failure: the speed of a link that is down is EINVAL, a GPU behind the
    device cgroup is EPERM, and devices come and go.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # open() takes twice as long, and nodes read dozens
    except OSError:
        return ""
    try:
        return os.read(descriptor, _MOST_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def entries(path: str) -> list[str]:
    """Return a directory's entries, or none where there is no such hardware, driver or file system."""
    try:
        return os.listdir(path)
    except OSError:
        return []
