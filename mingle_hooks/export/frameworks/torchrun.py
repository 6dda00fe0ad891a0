"""torchrun with static rendezvous: plain `torchrun train.py` on every node, no flags.

Read in torch 2.13: torch/distributed/run.py takes PET_<OPTION> as the default of each option, and reads
neither MASTER_ADDR nor NODE_RANK. Static rendezvous joins PET_MASTER_ADDR and PET_MASTER_PORT and splits them
at the last colon, so an IPv6 address stays bare. PET_RDZV_ENDPOINT is left out: it would beat the
PET_MASTER_ADDR that a user set.

The variables of a batch shell reach every task of the job, so they must hold on every node, and no node rank does.
There torchrun gets c10d rendezvous, in which the nodes find their ranks by themselves. is_host=1 on every node: each
opens a store at this port, and all of them use the one at the endpoint's address. Left to itself torchrun opens a
store only where the endpoint is its host name's address, which on a second network is nowhere (pytorch#73656). Who is
alone waits for the others and ends with 1 after the join timeout.

The first of these torchruns announces its host's full name to the others. Where names do not lead to the other
nodes, PET_NODE_RANK holds words instead of a number: torchrun prints them and ends with 2.

`accelerate launch` without machines starts no torchrun where a node has one GPU, or none. On CPUs its script takes
rank 0 where no launcher told it another, and waits half an hour for the others. It asks MVAPICH's variable last (read
in accelerate 1.15, utils/environment.py), which holds such words, too: it prints them and ends with 1.
"""

from __future__ import annotations

from mingle_hooks.errors import UsageError, printable
from mingle_hooks.export.frameworks import load
from mingle_hooks.values import holds
from mingle_hooks.world import View

NOT_HERE = "none: start torchrun on every node of this job: mingle run torchrun train.py"
NO_RANK = {"MV2_COMM_WORLD_RANK": "none: start it on every node of this job: mingle run accelerate launch train.py"}


def settings(view: View) -> dict[str, str]:
    """Return the whole set, the elastic one where the user's PET_RDZV_BACKEND asks for it.

    Raises UsageError for a leftover that contradicts it.
    """
    if view.user_environ.get("PET_RDZV_BACKEND", "static") != "static":
        elastic: dict[str, str] = load("torchrun-elastic").settings(view)
        return elastic
    agent = one_of(view)
    if agent is None:
        return of_every_node(view)
    return agent | {
        "PET_MASTER_ADDR": view.world.master_addr,
        "PET_MASTER_PORT": str(view.world.master_port),
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ID": view.world.digest,
    }


def of_every_node(view: View) -> dict[str, str]:
    """Return what holds on every node alike, and what makes a program end at once where that is not enough.

    Raises UsageError for a leftover that contradicts it.
    """
    batch, nodes = view.batch, view.world.nodes
    if batch is None or nodes is None or (view.user_environ.get("PET_RDZV_BACKEND") or "c10d") != "c10d":
        return NO_RANK | {"PET_NODE_RANK": NOT_HERE}
    _check(view, "PET_NNODES", nodes)
    found = NO_RANK | {
        "PET_NNODES": str(nodes),
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ID": view.world.digest,
        "PET_RDZV_ENDPOINT": view.endpoint,
        # The others' stores may be there later than this one: reaching them may take as long.
        "PET_RDZV_CONF": f"is_host=1,join_timeout={batch.timeout_s},read_timeout={batch.timeout_s}",
    }
    return found | ({"PET_NPROC_PER_NODE": batch.processes} if batch.processes else {})


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
        seen = f"{name}={printable(users, 60)}, as exported"
        raise UsageError(f"{name}={world}, as in the world", seen, f"unset {name}")
