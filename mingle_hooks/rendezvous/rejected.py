"""Who tried to take part without the key: counted, reported, never believed."""

from __future__ import annotations

from mingle_hooks.errors import printable

# More addresses than this are counted together: a report is for a person, and memory has a bound.
MOST_ADDRESSES = 8
# What a leader tells its members of one address is at most this long.
LONGEST_LABEL = 64


def label(address: str, host: str) -> str:
    """Return an address with the host that it says it is; only an address cannot be made up."""
    is_name = host.isascii() and host.replace("-", "").replace(".", "").replace("_", "").isalnum()
    return printable(f"{address} ({host})" if is_name else address, LONGEST_LABEL)


class RejectedPeers:
    """Addresses that showed another key, in the order of their first try."""

    def __init__(self) -> None:
        self._hosts: dict[str, str] = {}

    def add(self, address: str, host: str = "") -> bool:
        """Note a try from an address, which says that it is this host, and tell whether it is news."""
        if self._hosts.get(address) or (address in self._hosts and not host):
            return False
        if address not in self._hosts and len(self._hosts) >= MOST_ADDRESSES:
            return False
        self._hosts[address] = host
        return True

    def list(self) -> list[str]:
        """Return who has tried so far: a host that comes by several addresses once, with the first."""
        first: dict[str, str] = {}
        for address, host in self._hosts.items():
            first.setdefault(host or address, label(address, host))
        return list(first.values())
