"""torchrun with static rendezvous: plain `torchrun train.py` on every node, no flags.

Read in torch 2.13: torch/distributed/run.py takes PET_<OPTION> as the default of each option, and reads
neither MASTER_ADDR nor NODE_RANK. Static rendezvous joins PET_MASTER_ADDR and PET_MASTER_PORT and splits them
at the last colon, so an IPv6 address stays bare. PET_RDZV_ENDPOINT is left out: it would beat the
PET_MASTER_ADDR that a user set.
"""

from __future__ import annotations

from mingle_hooks.export.frameworks import torchrun_elastic
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from mingle_hooks.export.view import View


def settings(view: View) -> dict[str, str]:
    """Return the whole set, or nothing; the elastic one where the user's PET_RDZV_BACKEND asks for it."""
    world, place = view.world, view.place
    if place.node_rank is None:
        return {}
    if view.own.get("PET_RDZV_BACKEND", "static") != "static":
        return torchrun_elastic.settings(view)
    return {
        "PET_NNODES": str(world.nodes),
        "PET_NPROC_PER_NODE": str(place.slots),
        "PET_NODE_RANK": str(place.node_rank),
        "PET_MASTER_ADDR": world.master_addr,
        "PET_MASTER_PORT": str(world.master_port),
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ID": world.digest,
    }
