"""What a run shows of itself to `mingle ls` and `mingle show`, and how `mingle kill` ends it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mingle_hooks.errors import NetworkError, printable
from mingle_hooks.export.shells import sh
from mingle_hooks.fabric.interfaces import interfaces, usable
from mingle_hooks.fabric.machine import hostname
from mingle_hooks.supervise.runner.picture import Picture
from mingle_hooks.supervise.runner.stopping import TERM
from mingle_hooks.supervise.runner.words import Hurry, Noticed
from mingle_hooks.supervise.worlds import registry
from mingle_hooks.supervise.worlds.words import LONGEST_COMMAND
from mingle_hooks.supervise.worlds.world import Public, World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.supervise.runner.phases import Phases
    from mingle_hooks.supervise.runner.request import Request
    from mingle_hooks.supervise.runner.words import Event


class Shown:
    """One run as others see it, until close(); `on_event(event)` is to end it, and comes out of the loop."""

    def __init__(
        self,
        loop: Loop,
        request: Request,
        run: str,
        machine: Phases,
        on_event: Callable[[Event], None],
        note: Callable[[str], None],
    ) -> None:
        self._picture = Picture(machine)
        public = Public(
            id=request.id or run,
            run=run,
            host=hostname(),
            addresses=_addresses(request) if request.keys else (),
            wanted=machine.plan.most,
            command=printable(sh.join(request.command), LONGEST_COMMAND),
            keys=request.keys,
            directory=registry.directory(os.environ),
        )

        def kill(is_now: bool) -> None:  # noqa: FBT001 - a callback
            note("`mingle kill` was called")
            on_event(Hurry() if is_now else Noticed(None, TERM))

        self._world = World(
            loop, public, lambda entry, is_whole: self._picture.state(entry, is_whole=is_whole), kill, note
        )

    def took(self, event: Event) -> None:
        """Take note of what has happened."""
        self._picture.took(event)

    def told(self, name: str, fields: Mapping[str, object]) -> None:
        """Take note of what is told of it."""
        self._picture.told(name, fields)

    def close(self, status: int | None) -> None:
        """Be seen no more; the status is told to those who asked for the end."""
        self._world.close(status)


def _addresses(request: Request) -> tuple[str, ...]:
    """Return where other hosts can ask."""
    try:
        return tuple(its.host for its in usable(interfaces(), prefer=request.iface))  # type: ignore[arg-type]
    except NetworkError:  # a machine without a network, which can ask itself
        return ()
