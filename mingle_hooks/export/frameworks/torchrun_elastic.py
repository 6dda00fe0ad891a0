"""torchrun with c10d rendezvous, for --max-restarts and a changing number of nodes.

Who hosts the store is said by is_host: left to itself torchrun compares host names, and on a second network
no node recognises itself (pytorch#73656). PET_LOCAL_ADDR keeps it from announcing its full host name, which
need not resolve. Node ranks are c10d's own and need not be mingle's.
"""

from __future__ import annotations

from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from mingle_hooks.export.view import View


def settings(view: View) -> dict[str, str]:
    """Return the whole set, or nothing."""
    world, place = view.world, view.place
    if place.node_rank is None:
        return {}
    found = {
        "PET_NNODES": str(world.nodes),
        "PET_NPROC_PER_NODE": str(place.slots),
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ID": world.digest,
        "PET_RDZV_ENDPOINT": view.endpoint,
        "PET_RDZV_CONF": f"is_host={1 if place.node_rank == 0 else 0}",
    }
    return found | ({"PET_LOCAL_ADDR": place.address} if place.address else {})
