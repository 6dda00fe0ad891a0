"""Open MPI's hostfile (mpirun(1), --hostfile)."""

from __future__ import annotations

from collections.abc import Sequence

from mingle_hooks.export.hostfiles import slots
from mingle_hooks.world import Member


def text(members: Sequence[Member]) -> str:
    """Return a line for each host."""
    return "".join(f"{host} slots={count}\n" for host, count in slots(members).items())
