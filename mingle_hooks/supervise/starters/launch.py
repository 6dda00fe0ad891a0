"""What a starter makes: a command line on this host that starts a program on others."""

from __future__ import annotations

from mingle_hooks.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Launch(NamedTuple):
    """A process to start here, which starts the program on `hosts`; `environ` is what it needs besides the caller's.

    Nothing in `argv` is secret: everybody on a host can read the command lines of its processes.
    """

    argv: tuple[str, ...]
    hosts: tuple[str, ...]
    stdin: bytes | None = None
    environ: Mapping[str, str] = {}
