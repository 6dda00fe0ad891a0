"""The hosts of a world as other programs read them: one function and one row in FORMATS for each format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from mingle_hooks import values
from mingle_hooks.errors import ConflictError, FactsError
from mingle_hooks.net.addresses import is_hostname
from mingle_hooks.world import Member

Addresses = Literal["needed", "shown", "unused"]


class Format(NamedTuple):
    """How a format is written, and what it does with the members' addresses."""

    text: Callable[[Sequence[Member]], str]
    addresses: Addresses = "unused"


def text(name: str, members: Sequence[Member]) -> str:
    """Return the members, in rank order, in the format of this name. Raises ConflictError."""
    return FORMATS[name].text(members)


def slots(members: Sequence[Member]) -> dict[str, int]:
    """Return host -> slots in rank order; members that share a host are added up."""
    found: dict[str, int] = {}
    for member in members:
        found[member.host] = found.get(member.host, 0) + member.slots
    return found


# Open MPI's hostfile (mpirun(1), --hostfile).
def _mpi(members: Sequence[Member]) -> str:
    """Return a line for each host."""
    return "".join(f"{host} slots={count}\n" for host, count in slots(members).items())


# The machine file of Hydra, the launcher of MPICH, MVAPICH and Intel MPI.
def _mpich(members: Sequence[Member]) -> str:
    """Return a line for each host."""
    return "".join(f"{host}:{count}\n" for host, count in slots(members).items())


# The hosts as horovodrun's -H takes them (read in horovod 0.28, runner/common/util/hosts.py).
def _horovod(members: Sequence[Member]) -> str:
    """Return all hosts in one line."""
    return ",".join(f"{host}:{count}" for host, count in slots(members).items()) + "\n"


# A node file, as PBS_NODEFILE: a line for each process, so that a host stands there as often as it has slots.
def _nodefile(members: Sequence[Member]) -> str:
    """Return a line for each slot, in the order of the ranks."""
    return "".join(f"{member.host}\n" * member.slots for member in members)


# JSON, with all that is known of each member.
def _json(members: Sequence[Member]) -> str:
    """Return a list with an object for each member; its address is null where nobody was asked for it."""
    rows = [
        {"rank": rank, "host": host, "address": address or None, "slots": slots}
        for rank, host, address, slots in members
    ]
    return f"{values.to_json(rows)}\n"


# Lines of /etc/hosts, for hosts that no name service knows.
def _etc(members: Sequence[Member]) -> str:
    """Return a line for each address; a member may come several times, once with each of its names.

    A name that several hosts have is left out; ConflictError where one of them has no other. What every host calls
    itself, localhost, is never written, nor is an address that another host cannot use. Raises FactsError for a name
    that no host can have: whatever is written here, every program of the host reads.
    """
    named: dict[str, list[str]] = {}
    addresses: dict[str, list[str]] = {}
    for member in members:
        if not is_hostname(member.host):
            raise FactsError("a host name", member.host, "--hosts NAMES, or correcting the scheduler's list")
        if not _is_of_one_host(member.address) and member.host.partition(".")[0] != "localhost":
            _add(named, member.address, member.host)
            _add(addresses, member.host, member.address)
    lines = []
    for address, names in named.items():
        own = [name for name in names if len(addresses[name]) == 1]
        if not own:
            seen = f"{names[0]} at {' and '.join(addresses[names[0]])}"
            raise ConflictError("a different name for each host", seen, "renaming one of them")
        lines.append(f"{address} {' '.join(own)}\n")
    return "".join(lines)


def _add(found: dict[str, list[str]], key: str, value: str) -> None:
    if value not in found.setdefault(key, []):
        found[key].append(value)


def _is_of_one_host(address: str) -> bool:
    """Tell whether another host would reach itself by it, or needs the number of an interface for it."""
    return not address or address.startswith("127.") or address == "::1" or "%" in address


FORMATS = {
    "etc": Format(_etc, "needed"),
    "mpi": Format(_mpi),
    "mpich": Format(_mpich),
    "deepspeed": Format(_mpi),  # each host once (read in deepspeed 0.19, launcher/runner.py)
    "horovod": Format(_horovod),
    "nodefile": Format(_nodefile),
    "json": Format(_json, "shown"),
}
