"""The hosts of a world as other programs read them: one file here and one line in the table for each format."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Literal, NamedTuple

from mingle_hooks.world import Member

Addresses = Literal["needed", "shown", "unused"]


class Format(NamedTuple):
    """Where a format's code is, with its function `text(members)`, and what it does with the members' addresses."""

    module: str
    addresses: Addresses = "unused"


FORMATS = {
    "etc": Format("etc", "needed"),
    "mpi": Format("mpi"),
    "mpich": Format("mpich"),
    "deepspeed": Format("deepspeed"),
    "horovod": Format("horovod"),
    "nodefile": Format("nodefile"),
    "json": Format("json_list", "shown"),
}


def text(name: str, members: Sequence[Member]) -> str:
    """Return the members, in rank order, in the format of this name. Raises ConflictError."""
    found: str = import_module(f"{__name__}.{FORMATS[name].module}").text(members)
    return found


def slots(members: Sequence[Member]) -> dict[str, int]:
    """Return host -> slots in rank order; members that share a host are added up."""
    found: dict[str, int] = {}
    for member in members:
        found[member.host] = found.get(member.host, 0) + member.slots
    return found
