"""What a framework sees of the answer, and the file that it may want."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mingle_hooks.fabric.nccl_conf import Setting
    from mingle_hooks.settings import Scope
    from mingle_hooks.world import Assignment, World


class Batch(NamedTuple):
    """What torchrun is to do where it gets its variables from the batch shell of several nodes, as every task does."""

    timeout_s: int  # how long it waits for the other nodes
    processes: str  # how many it starts on each node, in its own words; empty: as many as it starts by default


class View(NamedTuple):
    """One member's view of the world."""

    world: World
    place: Assignment
    scope: Scope  # "node": one launch on each node; "task": one process for each slot
    user_environ: Mapping[str, str]  # the user's environment: variables.own(os.environ)
    # Active RDMA ports, as mlx5_0:1; empty unless they were asked for, None where a device does not answer.
    hcas: tuple[str, ...] | None = ()
    is_cpu_only: bool = False  # no accelerator of any make is here; False unless it was asked for
    frameworks: tuple[str, ...] = ()  # those for which the members met: they may have needed the roster for it
    site: Mapping[str, Setting] = MappingProxyType({})  # what NCCL takes from its files; empty unless asked for
    spent: tuple[int, ...] = ()  # this member's milliseconds, as in rendezvous/protocol/spent.py
    bound: Mapping[str, str] = MappingProxyType({})  # what --bind sets in place of the scheduler's
    batch: Batch | None = None  # in a batch shell of several nodes that can find each other by their names
    is_named: bool = True  # whether this host's own name leads others to it; True unless it was asked for

    @property
    def endpoint(self) -> str:
        """Rank 0's address and port in one word."""
        return endpoint(self.world.master_addr, self.world.master_port)

    @property
    def processes(self) -> int | None:
        """How many processes the scope counts, over all members; None where it is not known."""
        return self.world.size if self.scope == "task" else self.world.nodes

    @property
    def process(self) -> int | None:
        """Which of them this one is; None where it is not known."""
        return self.place.rank if self.scope == "task" else self.place.node_rank


class File(NamedTuple):
    """A file that the caller writes, and the variables that are then to hold its path."""

    name: str
    text: str
    variables: tuple[str, ...]


def endpoint(address: str, port: int) -> str:
    """Return host:port, with an IPv6 address in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
