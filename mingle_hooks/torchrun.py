"""`torchrun --rdzv-backend mingle`: torch's own rendezvous, at the address and port that mingle's world gives.

torch finds this module through the entry point group torchrun.handlers and loads it in every torchrun, so it imports
nothing until it is chosen.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters


def handler() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """Return the function that creates torch's handler, as the entry point requires."""
    return _join


def _join(params: RendezvousParameters) -> RendezvousHandler:
    """Wait for the other nodes, and return the static handler for --nnodes N, else c10d's for MIN:MAX.

    --rdzv-conf takes the options of `mingle_hooks.join` too. Raises what `mingle_hooks.join` raises.
    """
    from torch.distributed.elastic.rendezvous import RendezvousParameters, rendezvous_handler_registry

    from mingle_hooks.api import Options, export, join
    from mingle_hooks.settings import load

    # torch's own default of the timeout is no text, and its default of --rdzv-id is "none".
    texts = {name: value for name, value in params.config.items() if isinstance(value, str)}
    options: Any = {name: value for name, value in texts.items() if name in Options.__annotations__}
    config = {name: value for name, value in params.config.items() if name not in options}  # torch reads no timeout=5m
    options["nodes"] = params.max_nodes
    if params.run_id != "none":
        options["id"] = params.run_id
    if params.endpoint:
        options["master"] = params.endpoint
    if is_elastic := params.min_nodes < params.max_nodes:  # then a restarted node gets its rank back
        options["frameworks"] = [*load(os.environ, options).frameworks, "torchrun-elastic"]
    # torchrun has read its own PET_* variables already; mingle would take them for leftovers.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
    view = join(environ=environ, **options)
    export(view)  # the interface, for the workers
    nodes, rank, name = view.processes, view.process, view.world.digest
    if is_elastic:
        config["is_host"] = rank == 0
        ends = ("c10d", view.endpoint, name, params.min_nodes, nodes, params.local_addr or view.place.address)
    else:
        config["rank"] = rank
        ends = ("static", view.endpoint, name, nodes, nodes, params.local_addr)
    found = rendezvous_handler_registry.create_handler(RendezvousParameters(*ends, **config))
    found.get_backend = lambda: params.backend  # torch compares it with the name that was asked for
    return found
