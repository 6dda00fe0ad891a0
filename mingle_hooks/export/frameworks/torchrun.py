"""torchrun with static rendezvous: plain `torchrun train.py` on every node, no flags.

Read in torch 2.13: torch/distributed/run.py takes PET_<OPTION> as the default of each option, and reads
neither MASTER_ADDR nor NODE_RANK. Static rendezvous joins PET_MASTER_ADDR and PET_MASTER_PORT and splits them
at the last colon, so an IPv6 address stays bare. PET_RDZV_ENDPOINT is left out: it would beat the
PET_MASTER_ADDR that a user set.

In a batch script PET_NODE_RANK holds words instead of a number: torchrun prints them and ends with 2, where it
would otherwise train on the first node alone and end with 0.
"""

from __future__ import annotations

from mingle_hooks.errors import UsageError, printable
from mingle_hooks.export.frameworks import load
from mingle_hooks.typed import TYPE_CHECKING
from mingle_hooks.values import holds

if TYPE_CHECKING:
    from mingle_hooks.export.view import View


NOT_HERE = "none: torchrun has to be started on every node of this job, as by srun mingle exec torchrun train.py"


def settings(view: View) -> dict[str, str]:
    """Return the whole set, the elastic one where the user's PET_RDZV_BACKEND asks for it.

    Raises UsageError for a leftover that contradicts it.
    """
    if view.user_environ.get("PET_RDZV_BACKEND", "static") != "static":
        elastic: dict[str, str] = load("torchrun-elastic").settings(view)
        return elastic
    agent = one_of(view)
    if agent is None:
        return {"PET_NODE_RANK": NOT_HERE}
    return agent | {
        "PET_MASTER_ADDR": view.world.master_addr,
        "PET_MASTER_PORT": str(view.world.master_port),
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ID": view.world.digest,
    }


def one_of(view: View) -> dict[str, str] | None:
    """Return how many torchruns there are, how many processes this one starts, and which it is; None: not known.

    In task scope each task may start one, with one process: to torchrun each task is a node.
    Raises UsageError for a leftover that contradicts it.
    """
    slots = 1 if view.scope == "task" else view.place.slots
    if view.process is None or view.processes is None or slots is None:
        return None
    _check(view, "PET_NODE_RANK", view.process)
    _check(view, "PET_NNODES", view.processes)
    return {"PET_NNODES": str(view.processes), "PET_NPROC_PER_NODE": str(slots), "PET_NODE_RANK": str(view.process)}


def _check(view: View, name: str, world: int) -> None:
    """Refuse a leftover such as PET_NNODES=1, with which torchrun would not be in the world, or in it twice."""
    users = view.user_environ.get(name) or str(world)
    if not holds(users, world):
        seen = f"{name}={printable(users, 60)}, as it was exported"
        raise UsageError(f"{name}={world}, as in the world", seen, f"unset {name}")
