"""What people see while a member waits: one live line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mingle_hooks.errors import LONGEST, printable

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import TextIO

    from mingle_hooks.errors import MingleError
    from mingle_hooks.rendezvous.member.membership import Progress

# A world that forms within this many seconds needs no words.
SILENT_S = 1.0
# Between two plain lines in a log: the first soon, then ever less often.
PLAIN_S = (1.0, 10.0, 30.0, 60.0, 300.0)
CLEAR = "\r\x1b[K"


class Waiting:
    """An observer that writes to a stream what it hears; a quiet one writes nothing."""

    def __init__(self, stream: TextIO, *, quiet: bool, tell: Callable[[str], None] | None = None) -> None:
        self._stream, self._quiet, self.tell = stream, quiet, tell
        self._is_terminal = stream.isatty()
        self._began = self._last = time.monotonic()
        self._lines = 0
        self._is_dirty = False

    def __enter__(self) -> Waiting:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    def failed(self, error: MingleError) -> None:
        """Write it at once: a scheduler may end this process as soon as another member has ended."""
        self._clear()
        self._write(f"mingle: {printable(error, LONGEST)}\n")
        error.is_printed = True

    def note(self, text: str) -> None:
        """Write a line that stays."""
        if not self._quiet:
            self._clear()
            self._write(f"mingle: {printable(text)}\n")

    def progress(self, progress: Progress) -> None:
        """Write how many are in, where it is time to."""
        now = time.monotonic()
        waited = now - self._began
        if self._quiet or waited < SILENT_S:
            return
        text = printable(_sentence(progress, waited), 200)
        if self._is_terminal:
            self._write(f"{CLEAR}mingle: {text}")
            self._is_dirty = True
        elif now - self._last >= PLAIN_S[min(self._lines, len(PLAIN_S) - 1)]:
            self._last, self._lines = now, self._lines + 1
            self._write(f"mingle: {text}\n")

    def _clear(self) -> None:
        if self._is_dirty:
            self._write(CLEAR)
            self._is_dirty = False

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:  # a log that is full stops no job
            return


def _sentence(progress: Progress, waited_s: float) -> str:
    """Say who is awaited, and for how long by now."""
    if not progress.inside:  # rank 0 counts, and it has not been met
        return f"still looking for {progress.missing} after {waited_s:.0f} s"
    of = f" of {progress.nodes}" if progress.nodes else ""
    nodes = "node" if progress.inside == 1 and not of else "nodes"
    return f"{progress.inside}{of} {nodes} checked in after {waited_s:.0f} s; waiting for {progress.missing}"
