"""The limit of open files, which has to be higher for one process that many others call."""

from __future__ import annotations

import resource


def allow(wanted: int) -> int:
    """Allow so many open files, as far as this user may; return how many are allowed now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    return max(soft, wanted)
