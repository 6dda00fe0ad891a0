"""Who tried to take part without the key: counted, reported, never believed."""

from __future__ import annotations

# More addresses than this are counted together: a report is for a person, and memory has a bound.
MOST_ADDRESSES = 8


class Knocks:
    """Addresses that showed another key, in the order of their first try."""

    def __init__(self) -> None:
        self._addresses: dict[str, None] = {}

    def add(self, address: str) -> bool:
        """Note a try from an address, and tell whether it is news."""
        if address in self._addresses or len(self._addresses) >= MOST_ADDRESSES:
            return False
        self._addresses[address] = None
        return True

    def list(self) -> list[str]:
        """Return the addresses noted so far."""
        return list(self._addresses)
