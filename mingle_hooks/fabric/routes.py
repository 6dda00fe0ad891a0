"""The interface of the default route, from the kernel's own tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# linux/route.h: a route that is there, and one that only refuses.
_UP, _REJECT = 0x1, 0x200
_NOWHERE, _NOWHERE6 = "00000000", "0" * 32


def default_interface(root: str = "/") -> str | None:
    """Return the interface of the default route with the least metric, IPv4's if there is one; None without any."""
    for routes in (_ipv4(f"{root}/proc/net/route"), _ipv6(f"{root}/proc/net/ipv6_route")):
        found = [(metric, name) for name, flags, metric in routes if flags & _UP and not flags & _REJECT]
        if found:
            return min(found, key=lambda route: route[0])[1]
    return None


def _ipv4(path: str) -> Iterator[tuple[str, int, int]]:
    """Yield interface, flags and metric of each default route: of equal ones the kernel lists its choice first."""
    for words in _rows(path, 11):  # Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
        if words[1] == words[7] == _NOWHERE:
            yield words[0], int(words[3], 16), int(words[6])


def _ipv6(path: str) -> Iterator[tuple[str, int, int]]:
    for words in _rows(path, 10):  # destination, its length, source, its length, gateway, metric, 2 counts, flags, name
        if words[0] == _NOWHERE6 and words[1] == "00":
            yield words[9], int(words[8], 16), int(words[5], 16)


def _rows(path: str, columns: int) -> Iterator[list[str]]:
    try:
        with open(path) as table:
            for line in table:
                words = line.split()
                if len(words) == columns:
                    yield words
    except OSError:  # no /proc, or no IPv6
        return
