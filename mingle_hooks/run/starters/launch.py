"""What a starter makes: a command line on this host that starts a program on others."""

from __future__ import annotations

from typing import NamedTuple


class Launch(NamedTuple):
    """A process to start here, with the caller's environment, which starts the program on `hosts`.

    Nothing in `argv` is secret: everybody on a host can read the command lines of its processes.
    """

    argv: tuple[str, ...]
    hosts: tuple[str, ...]
    stdin: bytes | None = None
