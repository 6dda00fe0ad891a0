"""The answer: one world, the same on every member, and each member's own place in it."""

from __future__ import annotations

from typing import NamedTuple


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
