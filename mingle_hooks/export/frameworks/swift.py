"""ms-swift: `swift sft …` on every node, which starts torchrun itself.

Read in ms-swift 4.6, swift/cli/main.py: it hands NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT and NPROC_PER_NODE on.
"""

from __future__ import annotations

from mingle_hooks.world import View


def settings(view: View) -> dict[str, str]:
    """Return how many processes it starts on this node."""
    return {"NPROC_PER_NODE": str(view.place.slots)} if view.place.slots is not None else {}
