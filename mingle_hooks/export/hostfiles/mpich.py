"""The machine file of Hydra, the launcher of MPICH, MVAPICH and Intel MPI."""

from __future__ import annotations

from collections.abc import Sequence

from mingle_hooks.export.hostfiles import slots
from mingle_hooks.world import Member


def text(members: Sequence[Member]) -> str:
    """Return a line for each host."""
    return "".join(f"{host}:{count}\n" for host, count in slots(members).items())
