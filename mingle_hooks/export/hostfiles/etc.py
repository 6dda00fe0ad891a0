"""Lines of /etc/hosts, for hosts that no name service knows."""

from __future__ import annotations

from collections.abc import Sequence

from mingle_hooks.errors import ConflictError, FactsError
from mingle_hooks.net.addresses import is_hostname
from mingle_hooks.world import Member


def text(members: Sequence[Member]) -> str:
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
