"""sys.stdout and sys.stderr for click: the one all or nothing, the other as far as it goes."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Any

from mingle_hooks.cli import stderr, stdout

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer


class _Standard(io.RawIOBase):
    """A descriptor whose writer knows what a failure means."""

    def __init__(self, descriptor: int, send: Callable[[bytes], None]) -> None:
        self._descriptor, self._send = descriptor, send

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: Buffer) -> int:
        whole = bytes(data)
        self._send(whole)
        return len(whole)


def replace() -> None:
    """Have everything that is printed go through `stdout` and `stderr`, at once."""
    for name, descriptor, send in (("stdout", 1, stdout.send), ("stderr", 2, stderr.send)):
        old = getattr(sys, name)
        raw: Any = _Standard(descriptor, send)  # and no buffer, in which something could be left
        text = io.TextIOWrapper(raw, encoding=old.encoding, errors=old.errors, write_through=True)
        setattr(sys, name, text)
