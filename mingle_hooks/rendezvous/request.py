"""What one member brings to a rendezvous."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple, Protocol

from mingle_hooks.errors import MingleError, UsageError
from mingle_hooks.net.addresses import Preference, machine_id
from mingle_hooks.net.devices import GpuBinding
from mingle_hooks.net.ports import DEFAULT_RANGE
from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.local_tasks import LocalPeers
from mingle_hooks.rendezvous.messages import MEMBER_BYTES, Failure, JoinRequest
from mingle_hooks.rendezvous.wire import Attempt, Material
from mingle_hooks.schedulers.facts import JobFacts
from mingle_hooks.settings import BACKENDS, Settings
from mingle_hooks.values import Counted


class Request(NamedTuple):
    """What one member brings: who it is, what it knows, and how it may look for the others."""

    attempt: Attempt
    key: Material
    host: str
    machine: str
    slots: int
    rank: int | None = None
    rank_source: str = ""  # where it comes from: --rank, NODE_RANK, a scheduler's variable
    nodes: int | None = None
    timeout_s: float = 300.0
    pinned: Mapping[str, str] = MappingProxyType({})
    # MASTER_ADDR may be no address of rank 0's host: --master says so too, or this is a pod behind a service.
    trusts_addr: bool = False
    wants_roster: bool = False
    age_s: float = 0.0  # of this process
    orders_by_switch: bool = False
    topology: str = ""  # this member's switches
    hosts: tuple[str, ...] = ()
    leader_hosts: tuple[str, ...] = ()
    host_suffix: str = ""
    master: tuple[str, int | None] | None = None
    directory: str | None = None
    via: tuple[str, ...] = BACKENDS
    prefer: tuple[Preference, ...] = ()
    environ: Mapping[str, str] = MappingProxyType({})  # the user's, for what it says of networks
    port_range: range = DEFAULT_RANGE
    port_hold: bool = True
    ttl: int = 1
    key_from: str = ""  # for a message
    tells: Callable[[], tuple[str, str]] | None = (
        None  # this node's fingerprint and addresses, once it looks for others
    )
    strict: tuple[str, ...] = ()  # which differences between nodes form no world
    asks_rdma: bool = False
    obstacle: Failure | None = None  # why this node, or a task of it, cannot start the command
    local_peers: LocalPeers | None = None  # this node's other tasks, without which it is no member
    held: list[socket.socket] | None = None  # gets what keeps MASTER_PORT on rank 0; without it the port is let go

    @property
    def exported(self) -> str:
        """The exported variable, if any, by which this member looks for rank 0 elsewhere."""
        if "MASTER_ADDR" in self.pinned:
            return "MASTER_ADDR"
        return "NODE_RANK" if self.rank_source == "NODE_RANK" else ""

    @property
    def expected_leader(self) -> str:
        """Where rank 0 should be, as messages put it after "rank 0"."""
        if "MASTER_ADDR" in self.pinned:
            return f" ({self.pinned['MASTER_ADDR']}, from the exported MASTER_ADDR)"
        if self.leader_hosts:
            return f" ({self.leader_hosts[0]})"
        return f" (this is rank {self.rank}, from the exported NODE_RANK)" if self.exported else ""


def join_request(request: Request) -> JoinRequest:
    """Return what this member says of itself. Raises UsageError where no leader would take it."""
    me = JoinRequest(
        os.urandom(MEMBER_BYTES),
        request.host,
        request.rank,
        request.nodes,
        request.slots,
        request.machine,
        request.pinned,
        request.wants_roster,
        topology=request.topology,
        obstacle=request.obstacle,
    )
    try:
        wire.parse(JoinRequest, me.body())
    except wire.WireError as error:
        seen = f"{error} (host {request.host}, slots {request.slots})"
        raise UsageError("a valid check-in", seen, "correcting hostname, --slots, --nodes or --rank") from None
    return me


# Who is told how a rendezvous goes: an interface, which nothing has to load at run time.


def _count(body: wire.Body, name: str) -> int | None:
    return wire.integer(body, name, 0, 10**6) or None  # 0: nobody in knows it


class Progress(NamedTuple):
    """How far the world is, as its leader last told."""

    inside: Annotated[int, wire.Key("in"), wire.within(0, 10**6)]
    nodes: Annotated[int | None, wire.Key("of"), _count]
    missing: Annotated[str, wire.printable_text(400)]
    rejected: Annotated[tuple[Annotated[str, wire.printable_text(64)], ...], wire.Key("knocks"), wire.Most(64)] = ()


class Observer(Protocol):
    """Who is told how it goes, as text for a person."""

    # For --explain: how the world formed, a line each, once it has. None: nobody asks.
    tell: Callable[[str], None] | None

    def progress(self, progress: Progress) -> None:
        """Hear how many are in, about once a second."""

    def failed(self, error: MingleError) -> None:
        """Hear why there is no world, from rank 0, as soon as it is known: it stays to tell the others."""

    def note(self, text: str) -> None:
        """Hear something that a person should know."""


# Where the number of slots came from.
SlotsFrom = Counted | Literal["--slots", "LOCAL_WORLD_SIZE", "default"]


class MemberSpec(NamedTuple):
    """What one call asks: the facts, completed by what the user said."""

    settings: Settings
    facts: JobFacts
    user_environ: Mapping[str, str]  # the user's environment
    attempt: Attempt
    nodes: int | None
    nodes_source: str
    rank: int | None
    rank_source: str
    slots: int
    slots_from: SlotsFrom
    pinned: Mapping[str, str]
    binding: GpuBinding | None

    @property
    def node(self) -> str:
        """What tells this node from others that may share its directories, the same for all of its tasks.

        The scheduler's own name holds in every container of the job, whatever host name or network that has.
        """
        return self.facts.host or machine_id()

    @property
    def is_shared(self) -> bool:
        """Whether several tasks on this node get one member's answer."""
        return self.settings.scope == "task" and (self.facts.local_count or 1) > 1
