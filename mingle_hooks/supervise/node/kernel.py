"""The one system call for which Python has no name."""

from __future__ import annotations

import ctypes

_SET_CHILD_SUBREAPER = 36  # prctl(2)


def adopt_orphans() -> bool:
    """Become the parent of all descendants whose parents end; tell whether it worked."""
    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
    status: int = prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return status == 0
