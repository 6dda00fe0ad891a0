"""MLX's ring: MLX_RANK, and in MLX_HOSTFILE every process's address and port.

Read in mlx 0.32, "Distributed Communication": a JSON list with a list of `address:port` for each rank.
"""

from __future__ import annotations

from mingle_hooks.export.frameworks import tensorflow
from mingle_hooks.world import File, View


def settings(view: View) -> dict[str, str]:
    """Return this process's rank, or nothing without a roster."""
    return {} if view.process is None or not view.world.roster else {"MLX_RANK": str(view.process)}


def files(view: View) -> tuple[File, ...]:
    """Return the hostfile, or nothing without a roster."""
    import json

    if not settings(view):
        return ()
    ring = [[where] for where in tensorflow.workers(view)]
    return (File("mlx.json", json.dumps(ring) + "\n", ("MLX_HOSTFILE",)),)
