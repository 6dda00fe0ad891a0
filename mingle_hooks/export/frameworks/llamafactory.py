"""LLaMA-Factory: `llamafactory-cli train …` on every node, which starts torchrun itself, with one GPU only when forced.

Read in LLaMA-Factory 0.9.5, src/llamafactory/launcher.py: else each node would train alone. It hands NNODES,
NODE_RANK, MASTER_ADDR, MASTER_PORT and NPROC_PER_NODE on.
"""

from __future__ import annotations

from mingle_hooks.world import View


def settings(view: View) -> dict[str, str]:
    """Return the force, and how many processes it starts on this node."""
    slots = view.place.slots
    return {"FORCE_TORCHRUN": "1", "NPROC_PER_NODE": str(slots)} if slots is not None else {}
