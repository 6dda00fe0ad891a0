"""Reading the kernel's one-line files under /sys and /proc."""

from __future__ import annotations

import os


def attribute(path: str) -> str:
    """Return one attribute, or "" where it cannot be read.

    That is an answer, not a failure: the speed of a link that is down is EINVAL, a GPU behind the
    device cgroup is EPERM, and devices come and go.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(64).strip()
    except OSError:
        return ""


def entries(path: str) -> list[str]:
    """Return a directory's entries, or none where there is no such hardware, driver or file system."""
    try:
        return os.listdir(path)
    except OSError:
        return []
