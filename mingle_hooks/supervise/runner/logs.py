"""--log-dir: what each member wrote, in a file of its own, and what became of the run, in events.jsonl."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from mingle_hooks import jsontext
from mingle_hooks.errors import PlaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EVENTS = "events.jsonl"
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class Logs:
    """Files in one directory; `on_fault(text)` comes once where one cannot be written, and then nothing more is."""

    def __init__(self, directory: str, on_fault: Callable[[str], None]) -> None:
        self._directory, self._on_fault = directory, on_fault
        self._has_failed = False
        self._members: dict[int, int] = {}  # place -> descriptor
        try:
            os.makedirs(directory, exist_ok=True)
            self._events = os.open(f"{directory}/{EVENTS}", _FLAGS, 0o666)
        except OSError as error:
            raise PlaceError("a directory for logs", f"{directory}: {error.strerror}", "another --log-dir") from None

    def begin(self, place: int, name: str) -> None:
        """Open the file of a member; a later attempt goes on in it."""
        self.end(place)
        try:
            self._members[place] = os.open(f"{self._directory}/{name}", _FLAGS, 0o666)
        except OSError as error:
            self._fail(error)

    def take(self, place: int, data: bytes) -> None:
        """Write what a member wrote, as it is."""
        if place in self._members:
            self._write(self._members[place], data)

    def end(self, place: int) -> None:
        """Close a member's file."""
        if (descriptor := self._members.pop(place, None)) is not None:
            os.close(descriptor)

    def note(self, text: str) -> None:
        """Write the runner's word into every member's file."""
        for descriptor in self._members.values():
            self._write(descriptor, text.encode(errors="backslashreplace"))

    def event(self, name: str, fields: Mapping[str, object]) -> None:
        """Write a line of events.jsonl."""
        line = jsontext.dumps({"time": round(time.time(), 3), "event": name, **fields})
        self._write(self._events, f"{line}\n".encode(errors="backslashreplace"))

    def _write(self, descriptor: int, data: bytes) -> None:
        if self._has_failed:
            return
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(descriptor, left) :]
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._on_fault(f"no more logs are written below {self._directory}: {error.strerror}")
