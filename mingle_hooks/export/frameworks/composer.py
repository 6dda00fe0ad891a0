"""Composer: `composer train.py` on every node.

Read in Composer 0.32, composer/cli/launcher.py: it reads WORLD_SIZE, LOCAL_WORLD_SIZE, NODE_RANK, MASTER_ADDR and
MASTER_PORT, and refuses nodes that differ in their processes unless BASE_RANK says where this one's begin.
"""

from __future__ import annotations

from mingle_hooks.world import View


def settings(view: View) -> dict[str, str]:
    """Return the first rank of this node."""
    return {"BASE_RANK": str(view.place.rank_offset)} if view.place.rank_offset is not None else {}
