"""The result of a rendezvous: the world, the same on every member, and each member's place in it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from mingle_hooks.net.addresses import NcclSetting
from mingle_hooks.settings import Scope


class Member(NamedTuple):
    """One entry of the roster."""

    node_rank: int
    host: str
    address: str  # its own address on the world's network
    slots: int


class World(NamedTuple):
    """The part that all members share; equal digests mean equal worlds.

    nodes and size are None only without a rendezvous (--no-wait, batch script), if they are unknown.
    """

    id: str
    nodes: int | None
    size: int | None  # slots over all members, WORLD_SIZE
    master_addr: str  # an IP address, IPv6 without brackets, or the name that the user exported
    master_port: int
    digest: str  # 16 hex digits
    roster: tuple[Member, ...] = ()  # in rank order; empty unless requested


class Assignment(NamedTuple):
    """One member's place in the world; unknown fields (--no-wait, batch script) are None."""

    node_rank: int | None
    slots: int | None  # LOCAL_WORLD_SIZE
    rank_offset: int | None  # the first global rank on this node
    address: str | None = None  # this member's own address on the world's network
    iface: str | None = None  # the interface that carries it
    # Task scope, or one process on each node.
    local_rank: int | None = None
    rank: int | None = None


class Batch(NamedTuple):
    """How torchrun runs with the variables of a batch shell, which every node of the job inherits."""

    timeout_s: int  # how long torchrun waits for the other nodes
    processes: str  # torchrun's --nproc-per-node; empty for its default


class View(NamedTuple):
    """One member's view of the world."""

    world: World
    place: Assignment
    scope: Scope  # "node": one launch on each node; "task": one process for each slot
    user_environ: Mapping[str, str]  # the user's environment: variables.own(os.environ)
    # Active RDMA ports, as mlx5_0:1; empty unless requested, None if a device does not answer.
    hcas: tuple[str, ...] | None = ()
    is_cpu_only: bool = False  # there is no accelerator of any make; False unless requested
    frameworks: tuple[str, ...] = ()  # those of this call; they decide whether there is a roster
    site: Mapping[str, NcclSetting] = MappingProxyType({})  # what NCCL reads from its files; empty unless requested
    durations_ms: tuple[int, ...] = ()  # this member's: Durations of rendezvous/messages.py
    gpu_variables: Mapping[str, str] = MappingProxyType({})  # variables that --bind changes
    batch: Batch | None = None  # in a batch shell whose nodes can resolve each other's names
    has_known_name: bool = True  # whether others can resolve this host's name; True unless requested

    def __repr__(self) -> str:
        """One line for a person, without the user's environment."""
        rank, nodes, size = ("?" if n is None else n for n in (self.place.node_rank, self.world.nodes, self.world.size))
        return f"<world {self.world.id}: node {rank} of {nodes}, {size} slots, rank 0 at {self.endpoint}>"

    @property
    def endpoint(self) -> str:
        """Rank 0's address and port as host:port."""
        return endpoint(self.world.master_addr, self.world.master_port)

    @property
    def processes(self) -> int | None:
        """The number of processes in task scope, of nodes in node scope; None if unknown."""
        return self.world.size if self.scope == "task" else self.world.nodes

    @property
    def process(self) -> int | None:
        """The rank of this process in task scope, of this node in node scope; None if unknown."""
        return self.place.rank if self.scope == "task" else self.place.node_rank


class File(NamedTuple):
    """A file that the caller writes, and the variables that get its path."""

    name: str
    text: str
    variables: tuple[str, ...]


def endpoint(address: str, port: int) -> str:
    """Return host:port, with an IPv6 address in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
