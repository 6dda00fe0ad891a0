"""A pipe's end, as a loop watches it."""

from __future__ import annotations

import os


class Descriptor:
    """Holds its number, and closes it."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        """Return its number."""
        return self._number

    def close(self) -> None:
        """Close it."""
        os.close(self._number)
