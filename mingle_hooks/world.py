"""The answer: one world, the same on every member, and each member's own place in it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from mingle_hooks.net.addresses import NcclSetting
from mingle_hooks.settings import Scope


class Member(NamedTuple):
    """One line of the roster: a member as the others see it."""

    node_rank: int
    host: str
    address: str  # its own address on the world's network
    slots: int


class World(NamedTuple):
    """What all members share. Two members have the same digest only when all of it is the same.

    nodes and size are None only where nobody else was asked (no wait, batch script) and they are not known.
    """

    id: str
    nodes: int | None
    size: int | None  # slots over all members, WORLD_SIZE
    master_addr: str  # an IP address, IPv6 without brackets, or the name that the user exported
    master_port: int
    digest: str  # 16 hex digits
    roster: tuple[Member, ...] = ()  # in rank order; empty unless it was asked for


class Assignment(NamedTuple):
    """One member's own place in the world; None where it is not known (no wait, batch script)."""

    node_rank: int | None
    slots: int | None  # LOCAL_WORLD_SIZE
    rank_offset: int | None  # the first global rank on this node
    address: str | None = None  # this member's own address on the world's network
    iface: str | None = None  # the interface that carries it
    # Task scope, or one process on each node.
    local_rank: int | None = None
    rank: int | None = None


# What a framework sees of the answer, and the file that it may want.


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
    site: Mapping[str, NcclSetting] = MappingProxyType({})  # what NCCL takes from its files; empty unless asked for
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
