"""All the discovery backends that one member uses, as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.errors import MingleError, NetworkError, reason
from mingle_hooks.rendezvous import discovery

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Multicast costs 30 ms of processor to load; where another backend may answer first, it gets this head start.
HEAD_START_S = 0.2


class Discovery:
    """Opens the backends, and has them search and announce as the member's state asks; the owner calls close().

    A backend that cannot be opened, or used any longer, is a reason to tell at the end, and the others go on.
    `is_wanted` tells whether a backend that opens late is still of use, `advertisement` what this leader, or candidate,
    announces (None: nothing), and `leads` whether it still gathers members by right.
    """

    def __init__(
        self,
        context: discovery.Context,
        is_wanted: Callable[[], bool],
        advertisement: Callable[[], discovery.Advertisement | None],
        leads: Callable[[], bool],
    ) -> None:
        self._context, self._is_wanted, self._advertisement, self._leads = context, is_wanted, advertisement, leads
        self._wanted: tuple[str, ...] = ()
        self._later: tuple[str, ...] = ()  # to be opened when their time has come
        self._backends: dict[str, discovery.Backend] = {}
        self._reasons: dict[str, str] = {}  # name -> why that backend is of no use

    def open(self, names: Sequence[str]) -> None:
        """Open those of the named backends that apply here; NetworkError where none can be used."""
        self._wanted = tuple(name for name in discovery.BACKENDS if name in names)
        self._later = tuple(name for name in self._wanted if discovery.BACKENDS[name].is_costly)
        for name in self._wanted:
            if name not in self._later:
                self._open(name)
        if self._backends and self._later:
            self._context.loop.after(HEAD_START_S, self._open_later)
        else:
            self._open_later()

    def seek(self) -> None:
        """Look for a leader by every backend, and announce this one where it is one. Raises as open() does."""
        for name in tuple(self._backends):
            self._seek(name)
        self._check()

    def look(self, name: str) -> None:
        """Look at once for another leader by one backend, where this member leads and that backend is used."""
        if name in self._backends:
            self._backends[name].search(wanted=self._leads())

    def rest(self) -> None:
        """Fall silent: a leader has been found."""
        for backend in self._backends.values():
            backend.announce(None)
            backend.search(wanted=False)

    def tried(self) -> str:
        """Tell, for a message, where all backends have looked, and which could not."""
        return "; ".join([*(f"{name}: {backend.tried()}" for name, backend in self._backends.items()), *self.faults()])

    def faults(self) -> list[str]:
        """Tell, for a message, which backends, or parts of them, could not be used, and why."""
        lost = [f"no {name}: {why}" for name, why in self._reasons.items()]
        return lost + [f"{name}: {fault}" for name, backend in self._backends.items() for fault in backend.faults]

    def close(self) -> None:
        """Close every backend."""
        for backend in self._backends.values():
            backend.close()

    def _open_later(self) -> None:
        names, self._later = self._later, ()
        for name in names:
            self._open(name)
        self._check()

    def _check(self) -> None:
        """Raise NetworkError where no backend is left, nor any that is still to be opened."""
        if not self._backends and not self._later:
            raise NetworkError(
                "a discovery backend that works here",
                "; ".join(self.faults()) or f"none (of {', '.join(self._wanted) or 'none'})",
                "--master HOST, or --directory with a directory that all members share",
            )

    def _open(self, name: str) -> None:
        """Open a backend, if it applies. Whatever another's package, or ours, raises then is its reason."""
        try:
            backend = discovery.open_backend(name, self._context)
        except Exception as error:  # noqa: BLE001 - an import may raise anything, and the message tells it
            self._drop(name, error)
            return
        if backend is None:
            return
        self._backends[name] = backend
        if self._is_wanted():
            self._seek(name)

    def _drop(self, name: str, error: Exception) -> None:
        """Go on without a backend."""
        self._context.loop.missed(error)
        self._reasons[name] = reason(error)
        if (backend := self._backends.pop(name, None)) is not None:
            backend.close()

    def _seek(self, name: str) -> None:
        advertisement, backend = self._advertisement(), self._backends[name]
        try:
            if advertisement is not None:
                backend.announce(advertisement)
            if advertisement is None or advertisement.ticket:
                backend.search(wanted=True)
            elif not discovery.BACKENDS[name].hears_rivals:
                # A leader by right looks for another one too, once the members that are on their way have had its
                # attention, unless that backend tells of it unasked, as beacons do.
                self._context.loop.after(HEAD_START_S, lambda: self.look(name))
        except (MingleError, OSError) as error:
            self._drop(name, error)
