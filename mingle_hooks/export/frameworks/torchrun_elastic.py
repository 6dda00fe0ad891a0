"""torchrun with c10d rendezvous, for --max-restarts and a changing number of nodes.

Who hosts the store is said by is_host: left to itself torchrun compares host names, and on a second network
no node recognises itself (pytorch#73656). PET_LOCAL_ADDR keeps it from announcing its full host name, which
need not resolve. Node ranks are c10d's own and need not be mingle's,
so PET_NODE_RANK, which only static rendezvous reads, does no harm.

A node that is started again joins the next round. Its workers need a store of their own, which
TORCH_DISABLE_SHARE_RDZV_TCP_STORE says: on the agents' store those of the last round are still counted.
"""

from __future__ import annotations

from mingle_hooks.export.frameworks.torchrun import of_every_node, one_of
from mingle_hooks.world import View

# torchrun's own default is 0, with which one lost node ends the job; more hide a script that always fails.
MAX_RESTARTS = 3


def settings(view: View) -> dict[str, str]:
    """Return the whole set. Raises UsageError for a leftover that contradicts it."""
    restarts = {"PET_MAX_RESTARTS": str(MAX_RESTARTS), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    agent = one_of(view)
    if agent is None:
        found = of_every_node(view)
        return found | restarts if "PET_RDZV_ID" in found else found
    found = agent | {
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ID": view.world.digest,
        "PET_RDZV_ENDPOINT": view.endpoint,
        "PET_RDZV_CONF": f"is_host={1 if view.process == 0 else 0}",
        **restarts,
    }
    return found | ({"PET_LOCAL_ADDR": view.place.address} if view.place.address else {})
