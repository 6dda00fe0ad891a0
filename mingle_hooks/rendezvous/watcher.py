"""Who is told how a meeting goes."""

from __future__ import annotations

from mingle_hooks.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.member import Progress


class Watcher(NamedTuple):
    """Who is told how it goes, as text for a person."""

    progress: Callable[[Progress], None]
    note: Callable[[str], None]
    # For --explain: how the world formed, a line each, once it has. None: nobody asks.
    tell: Callable[[str], None] | None = None
