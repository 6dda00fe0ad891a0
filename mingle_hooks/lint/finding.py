"""What is compared, and what comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = "kinds"  # of nodes: no field, as a heterogeneous job is in order


class Compared(NamedTuple):
    """One member: its host, its fingerprint, what its clock is ahead of the leader's, and its own addresses."""

    host: str
    fingerprint: str
    clock: tuple[float, float] | None = None  # at least, at most; in seconds
    addresses: str = ""  # with blanks between them


class Group(NamedTuple):
    """Members whose fingerprints are the same text."""

    parts: Mapping[str, str]
    hosts: list[str]  # one for each member
    lack: str = ""  # why they cannot use RDMA, where others can


class Finding(NamedTuple):
    """One difference. `hosts` are blamed for it; none are where nobody can tell which of them is right."""

    field: str
    hosts: tuple[str, ...]
    text: str

    @property
    def is_blamed(self) -> bool:
        """Whether it names who differs from nearly all."""
        return bool(self.hosts)
