"""All the ways of finding a leader that one member uses, as one."""

from __future__ import annotations

from mingle_hooks.errors import MingleError, NetworkError, reason
from mingle_hooks.rendezvous import ways
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Multicast costs 50 ms of processor to load; where another way may answer first, it gets this head start.
HEAD_START_S = 0.2


class Seekers:
    """Opens the ways, and has them search and announce as the member's state asks; the owner calls close().

    A way that cannot be opened, or used any longer, is a reason to tell at the end, and the others go on.
    `is_wanted` tells whether a way that opens late is still of use, `notice` what this leader, or candidate,
    announces (None: nothing), and `leads` whether it still gathers members by right.
    """

    def __init__(
        self,
        context: ways.Context,
        is_wanted: Callable[[], bool],
        notice: Callable[[], ways.Notice | None],
        leads: Callable[[], bool],
    ) -> None:
        self._context, self._is_wanted, self._notice, self._leads = context, is_wanted, notice, leads
        self._wanted: tuple[str, ...] = ()
        self._later: tuple[str, ...] = ()  # to be opened when their time has come
        self._ways: dict[str, ways.Way] = {}
        self._reasons: dict[str, str] = {}  # name -> why that way is of no use

    def open(self, names: Sequence[str]) -> None:
        """Open those of the named ways that apply here; NetworkError where none can be used."""
        self._wanted = tuple(name for name in ways.WAYS if name in names)
        self._later = tuple(name for name in self._wanted if ways.WAYS[name].is_costly)
        for name in self._wanted:
            if name not in self._later:
                self._open(name)
        if self._ways and self._later:
            self._context.loop.after(HEAD_START_S, self._open_later)
        else:
            self._open_later()

    def seek(self) -> None:
        """Look for a leader by every way, and announce this one where it is one. Raises as open() does."""
        for name in tuple(self._ways):
            self._seek(name)
        self._check()

    def look(self, name: str) -> None:
        """Look at once for another leader by one way, where this member leads and that way is used."""
        if name in self._ways:
            self._ways[name].search(self._leads())

    def rest(self) -> None:
        """Fall silent: a leader has been found."""
        for way in self._ways.values():
            way.announce(None)
            way.search(wanted=False)

    def tried(self) -> str:
        """Tell, for a message, where all ways have looked, and which could not."""
        return "; ".join([*(f"{name}: {way.tried()}" for name, way in self._ways.items()), *self.faults()])

    def faults(self) -> list[str]:
        """Tell, for a message, which ways, or parts of them, could not be used, and why."""
        lost = [f"no {name}: {why}" for name, why in self._reasons.items()]
        return lost + [f"{name}: {fault}" for name, way in self._ways.items() for fault in way.faults]

    def close(self) -> None:
        """Close every way."""
        for way in self._ways.values():
            way.close()

    def _open_later(self) -> None:
        names, self._later = self._later, ()
        for name in names:
            self._open(name)
        self._check()

    def _check(self) -> None:
        """Raise NetworkError where no way is left, nor any that is still to be opened."""
        if not self._ways and not self._later:
            raise NetworkError(
                "a way to find the other members",
                "; ".join(self.faults()) or f"none of {', '.join(self._wanted) or 'none'} can be used here",
                "--master HOST, --directory DIR that all share, or a network interface",
            )

    def _open(self, name: str) -> None:
        """Open a way, if it applies. Whatever another's package, or ours, raises then is its reason."""
        try:
            way = ways.open_way(name, self._context)
        except Exception as error:  # noqa: BLE001 - an import may raise anything, and the message tells it
            self._drop(name, error)
            return
        if way is None:
            return
        self._ways[name] = way
        if self._is_wanted():
            self._seek(name)

    def _drop(self, name: str, error: Exception) -> None:
        """Go on without a way."""
        self._context.loop.missed(error)
        self._reasons[name] = reason(error)
        if (way := self._ways.pop(name, None)) is not None:
            way.close()

    def _seek(self, name: str) -> None:
        notice, way = self._notice(), self._ways[name]
        try:
            if notice is not None:
                way.announce(notice)
            if notice is None or notice.ticket:
                way.search(wanted=True)
            elif not ways.WAYS[name].hears_rivals:
                # A leader by right looks for another one too, once the members that are on their way have had its
                # attention, unless that way tells of it unasked, as beacons do.
                self._context.loop.after(HEAD_START_S, lambda: self.look(name))
        except (MingleError, OSError) as error:
            self._drop(name, error)
