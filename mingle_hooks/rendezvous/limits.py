"""Which limits of this host are too low for a leader of N members: it cannot hold them, or some come later."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import NamedTuple

from mingle_hooks.net.addresses import list_entries, read_attribute
from mingle_hooks.rendezvous.messages import Failure

# Smaller worlds are below the lowest defaults, 1,024 open files and neighbours: nothing is read for them.
FEW_NODES = 1000
# Descriptors that a leader needs besides one per member: for its probes of addresses, its files, and strangers.
SPARE_DESCRIPTORS = 512
OPEN_FILES = "ulimit -Hn"
FILES, BACKLOG, SYN_BACKLOG, SYN_COOKIES, NEIGHBOURS, TRACKED = _SYSCTLS = (
    "fs.file-max",
    "net.core.somaxconn",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.neigh.default.gc_thresh3",
    "net.netfilter.nf_conntrack_max",
)
# The leader accepts connections while others come: 16,384 at once formed a world in 7.4 s with a queue of 4,096.
MEMBERS_PER_QUEUE_ENTRY = 4
# In a route's flags: it goes through a gateway (linux/route.h).
_GATEWAY = 2


class Limits(NamedTuple):
    """The limits of a leader's process, host and network namespace."""

    open_files: int  # the hard limit of descriptors; RLIM_INFINITY if there is none
    opened: int  # descriptors in use
    kernel: Mapping[str, int]  # sysctl -> value, without those that this kernel or namespace does not have
    on_subnet: int  # hosts that the largest subnet of the leader's addresses can have


class Shortfall(NamedTuple):
    """A limit that is too low: its name, its value, and the value that suffices."""

    name: str
    value: int
    needed: int
    is_fatal: bool  # the leader cannot hold the world; else the kernel drops some packets, which TCP repeats

    def __str__(self) -> str:
        return f"{self.name} {self.value}"

    @property
    def remedy(self) -> str:
        """The command or setting that raises it."""
        if self.name == OPEN_FILES:
            return (
                f"LimitNOFILE={self.needed} for the scheduler's daemon there, or `{OPEN_FILES} {self.needed}` as root"
            )
        return f"`sysctl -w {self.name}={self.needed}` there"


def shortfalls(nodes: int, limits: Limits) -> list[Shortfall]:
    """Return the limits that are too low for a leader of N members."""
    found = []
    # One for each other member, and one for whoever connects next.
    least = nodes + limits.opened
    if limits.open_files != resource.RLIM_INFINITY and limits.open_files < least:
        found.append(Shortfall(OPEN_FILES, limits.open_files, nodes + SPARE_DESCRIPTORS, is_fatal=True))
    if limits.kernel.get(FILES, least) < least:
        found.append(Shortfall(FILES, limits.kernel[FILES], 2 * nodes + SPARE_DESCRIPTORS, is_fatal=True))
    needs = {BACKLOG: nodes, NEIGHBOURS: min(nodes, limits.on_subnet), TRACKED: 2 * nodes}
    if limits.kernel.get(SYN_COOKIES) == 0:  # with cookies a full queue of SYNs drops none
        needs[SYN_BACKLOG] = nodes
    for name, needed in needs.items():
        places = MEMBERS_PER_QUEUE_ENTRY if name in (BACKLOG, SYN_BACKLOG) else 1
        if places * limits.kernel.get(name, needed) < needed:
            found.append(Shortfall(name, limits.kernel[name], needed, is_fatal=False))
    return found


class Capacity(NamedTuple):
    """How many members this host lets a leader hold, where that is fewer than N, and why there is no world then."""

    members: int
    failure: Failure


def capacity(nodes: int, host: str, limits: Limits) -> Capacity | None:
    """Return what the leader on this host can hold, None if that is N members."""
    fatal = [one for one in shortfalls(nodes, limits) if one.is_fatal]
    if not fatal:
        return None
    seen, remedies = ", ".join(map(str, fatal)), ", and ".join(one.remedy for one in fatal)
    members = min(one.value for one in fatal) - limits.opened
    return Capacity(members, Failure("limits", (str(nodes), host, seen, remedies)))


def warning(nodes: int, host: str, limits: Limits) -> str | None:
    """Return the line about limits that only delay members, None if there are none."""
    slow = [one for one in shortfalls(nodes, limits) if not one.is_fatal]
    if not slow:
        return None
    seen, remedies = ", ".join(map(str, slow)), ", ".join(one.remedy for one in slow)
    return f"{host}, rank 0's host, delays some of {nodes} nodes that connect at once ({seen}); try {remedies}"


def read(addresses: Iterable[str], root: str = "/proc") -> Limits:
    """Return what matters for a leader that has these addresses."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    values = {name: read_attribute(f"{root}/sys/{name.replace('.', '/')}") for name in _SYSCTLS}
    kernel = {name: int(value) for name, value in values.items() if value.isascii() and value.isdigit()}
    opened = len(list_entries(f"{root}/self/fd"))
    return Limits(hard, opened, kernel, _hosts_on_subnet(addresses, f"{root}/net/route"))


def _hosts_on_subnet(addresses: Iterable[str], path: str) -> int:
    """Return how many hosts the largest IPv4 subnet of these addresses can have, by the routes (proc(5))."""
    own = [int(found) for found in map(ip_address, addresses) if found.version == 4]  # noqa: PLR2004 - IPv4
    most = 0
    for line in read_attribute(path, 1 << 16).splitlines()[1:]:
        fields = line.split()
        try:
            network, flags, mask = (int(fields[index], 16) for index in (1, 3, 7))
        except (IndexError, ValueError):
            continue
        # Addresses are as in memory: their first byte is the lowest on a little-endian machine.
        network, mask = (int.from_bytes(value.to_bytes(4, sys.byteorder), "big") for value in (network, mask))
        if not flags & _GATEWAY and any(address & mask == network for address in own):
            most = max(most, (mask ^ 0xFFFFFFFF) - 1)
    return most
