"""Slurm's topology plugins: `spine.leaf1.node2` after the pattern `switch.switch.node`, or `b1.node1`.

Without a plugin there is the node's name alone (srun(1), SLURM_TOPOLOGY_ADDR; 22.05 to 26.05).
"""

from __future__ import annotations

from collections.abc import Mapping


def path(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return what stands before the node's name, which may have dots of its own."""
    levels = environ.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").count(".")
    parts = environ.get("SLURM_TOPOLOGY_ADDR", "").split(".", levels)
    return tuple(parts[:levels]) if len(parts) == levels + 1 else ()
