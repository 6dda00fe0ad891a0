"""What a process has open: the limit, higher for one that many others call, and what a child has of its parent's."""

from __future__ import annotations

import os


def close_all_but(*kept: int) -> None:
    """Close every other descriptor of this process, one by one: the limit may be a billion."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:  # that of the listing itself
                pass


def allow(wanted: int) -> int:
    """Allow so many open files, as far as this user may; return how many are allowed now."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    return max(soft, wanted)
