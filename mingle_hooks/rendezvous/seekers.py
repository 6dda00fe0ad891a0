"""All the ways of finding a leader that one member uses, as one."""

from __future__ import annotations

from mingle_hooks.errors import NetworkError
from mingle_hooks.rendezvous import ways
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Multicast costs 50 ms of processor to load; where another way may answer first, it gets this head start.
HEAD_START_S = 0.2


class Seekers:
    """Opens the ways, and has them search and announce as the member's state asks; the owner calls close().

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
        self._ways: dict[str, ways.Way] = {}

    def open(self, names: Sequence[str]) -> None:
        """Open those of the named ways that apply here; NetworkError where none does."""
        wanted = [name for name in ways.WAYS if name in names]
        for name in wanted:
            if name != "multicast":
                self._open(name)
        if "multicast" in wanted:
            if self._ways:
                self._context.loop.after(HEAD_START_S, lambda: self._open("multicast"))
            else:
                self._open("multicast")
        if not self._ways:
            raise NetworkError(
                "a way to find the other members",
                f"none of {', '.join(wanted) or 'none'} can be used here",
                "--master HOST, --directory DIR that all share, or a network interface",
            )

    def seek(self) -> None:
        """Look for a leader by every way, and announce this one where it is one."""
        for name, way in self._ways.items():
            self._seek(name, way)

    def rest(self) -> None:
        """Fall silent: a leader has been found."""
        for way in self._ways.values():
            way.announce(None)
            way.search(wanted=False)

    def tried(self) -> str:
        """Tell, for a message, where all ways have looked."""
        return "; ".join(f"{name}: {way.tried()}" for name, way in self._ways.items())

    def close(self) -> None:
        """Close every way."""
        for way in self._ways.values():
            way.close()

    def _open(self, name: str) -> None:
        way = ways.open_way(name, self._context)
        if way is None:
            return
        self._ways[name] = way
        if self._is_wanted():
            self._seek(name, way)

    def _seek(self, name: str, way: ways.Way) -> None:
        notice = self._notice()
        if notice is not None:
            way.announce(notice)
        if notice is None or notice.ticket:
            way.search(wanted=True)
        elif name != "multicast":
            # A leader by right looks for another one too, once the members that are on their way have had its
            # attention. By multicast it need not ask: the other one's beacons come anyway.
            self._context.loop.after(HEAD_START_S, lambda: way.search(self._leads()))
