"""Who is told how a rendezvous goes: an interface, which nothing has to load at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.errors import MingleError
    from mingle_hooks.rendezvous.member.membership import Progress


class Observer(Protocol):
    """Who is told how it goes, as text for a person."""

    # For --explain: how the world formed, a line each, once it has. None: nobody asks.
    tell: Callable[[str], None] | None

    def progress(self, progress: Progress) -> None:
        """Hear how many are in, about once a second."""

    def failed(self, error: MingleError) -> None:
        """Hear why there is no world, from rank 0, as soon as it is known: it stays to tell the others."""

    def note(self, text: str) -> None:
        """Hear something that a person should know."""
