"""COMMAND's output and the runner's own words, on the runner's stdout and stderr.

A reader that stops reading holds up nothing but output: writes do not block, and what waits is bounded, as the
supervisors are not read from while much of it does.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from mingle_hooks.supervise.protocol.messages import ERR, OUT
from mingle_hooks.supervise.runner.writer import Writer, is_same_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.loop import Loop

STDOUT, STDERR = 1, 2
# With more than this waiting for a reader no more is taken, until less than the second is.
MOST_WAITING, FEW_WAITING = 4 << 20, 1 << 20
# The end of a line that is longer than this is not waited for.
LONGEST_LINE = 1 << 20
# Larger than what is got and freed for one frame.
_KEPT_BYTES = 2 << 20
# Colours of a terminal that can be read on dark and on light.
_COLOURS = (36, 33, 32, 35, 34, 31)


def labelled(label: bytes, lines: bytes) -> tuple[bytes | memoryview, ...]:
    """Return whole lines with a label in front of each, in parts: to join them costs more than all the rest.

    The last may have no end yet, and then gets one.
    """
    found = lines.replace(b"\n", b"\n" + label)
    return (label, memoryview(found)[: -len(label)]) if lines.endswith(b"\n") else (label, found, b"\n")


def _keep_memory() -> None:
    """Free something large: from then on glibc keeps what is freed, which the kernel would have to clear each time.

    malloc(3), M_TRIM_THRESHOLD: twice the largest block of its own that was freed. It saves a quarter of all.
    """
    bytes(_KEPT_BYTES)


class _Stream:
    """One stream of one member: its label, and the beginning of a line that is too long for one message."""

    __slots__ = ("kind", "label", "rest")

    def __init__(self, kind: int, label: bytes) -> None:
        self.kind, self.label, self.rest = kind, label, b""

    def take(self, data: bytes) -> tuple[bytes | memoryview, ...]:
        """Return what can be written now, in parts."""
        if not self.label:
            return (data,)
        data = self.rest + data if self.rest else data
        self.rest = b""
        if not data.endswith(b"\n") and len(data) < LONGEST_LINE:
            cut = data.rfind(b"\n") + 1
            data, self.rest = data[:cut], data[cut:]
        return labelled(self.label, data) if data else ()

    def end(self) -> tuple[bytes | memoryview, ...]:
        """Return the rest, in parts."""
        data, self.rest = self.rest, b""
        return labelled(self.label, data) if data else ()


class Output:
    """Writes what members say. `on_gone()` comes once where nobody reads stdout; `hold(bool)` stops and frees members.

    Without a label output is passed on as it is.
    """

    def __init__(self, loop: Loop, on_gone: Callable[[], None], hold: Callable[[bool], None]) -> None:
        self._hold, self._is_held, self.is_last = hold, False, False
        _keep_memory()
        fault = self._fault
        self._out = Writer(loop, STDOUT, on_gone, fault, self._room)
        is_same = is_same_file(STDOUT, STDERR)
        self._err = self._out if is_same else Writer(loop, STDERR, lambda: None, fault, self._room)
        self._streams: dict[tuple[int, int], _Stream] = {}

    @property
    def waiting_bytes(self) -> int:
        """How much waits for a reader."""
        return self._out.waiting_bytes + (0 if self._err is self._out else self._err.waiting_bytes)

    @property
    def taken_bytes(self) -> int:
        """How much readers have taken by now."""
        return self._out.taken_bytes + self._err.taken_bytes

    def begin(self, place: int, label: str, colour: int) -> None:
        """Give a place the label of its member; an empty one is none."""
        self.end(place)
        for kind, descriptor in ((OUT, STDOUT), (ERR, STDERR)):
            shown = label
            if label and os.isatty(descriptor) and not os.environ.get("NO_COLOR"):
                shown = f"\x1b[{_COLOURS[colour % len(_COLOURS)]}m{label}\x1b[0m"
            self._streams[place, kind] = _Stream(kind, shown.encode())

    def take(self, place: int, kind: int, data: bytes) -> None:
        """Write what a member wrote."""
        stream = self._streams.get((place, kind))
        if stream is not None:
            self._write(kind, stream.take(data))

    def end(self, place: int) -> None:
        """Write what is left of a member's last lines."""
        for kind in (OUT, ERR):
            stream = self._streams.get((place, kind))
            if stream is not None and stream.rest:
                self._write(kind, stream.end())

    def say(self, text: str) -> None:
        """Write the runner's own words."""
        self._err.write(text.encode(sys.stderr.encoding or "utf-8", "backslashreplace"))

    def give_up(self) -> int:
        """Forget what waits for readers; return how much it was."""
        waiting = self.waiting_bytes
        for writer in (self._out, self._err):
            writer.forget()
        return waiting

    def _write(self, kind: int, parts: tuple[bytes | memoryview, ...]) -> None:
        for part in parts:
            (self._out if kind == OUT else self._err).write(part)
        if not self._is_held and not self.is_last and self.waiting_bytes > MOST_WAITING:
            self._is_held = True
            self._hold(True)  # noqa: FBT003 - a callback

    def _room(self) -> None:
        if self._is_held and self.waiting_bytes < FEW_WAITING:
            self._is_held = False
            self._hold(False)  # noqa: FBT003 - a callback

    def _fault(self, descriptor: int, reason: str) -> None:
        """Say once that what is written there is lost, where there is another place to say it."""
        if descriptor == STDOUT and self._err is not self._out:
            self.say(f"mingle run: its output cannot be written ({reason}) and is lost\n")
