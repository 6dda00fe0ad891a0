"""A member that is one process with its ranks: TORCHELASTIC_RUN_ID says so, as torchrun says to its workers.

Lightning 2.6 (plugins/environments/torchelastic.py) then takes RANK and WORLD_SIZE as they are, under Slurm too, and
refuses `devices` that do not fit. By LOCAL_RANK alone it would wait for processes that nobody starts.
"""

from __future__ import annotations

from mingle_hooks.export.frameworks import cpu
from mingle_hooks.world import View


def settings(view: View) -> dict[str, str]:
    """Return the world's id where this process knows its rank, and accelerate's switch where there are only CPUs."""
    found = {"TORCHELASTIC_RUN_ID": view.world.digest} if view.place.rank is not None else {}
    if view.is_cpu_only:
        found |= cpu.settings(view)
    return found
