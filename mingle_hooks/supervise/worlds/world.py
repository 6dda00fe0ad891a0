"""What a runner owns so that `mingle ls`, `show` and `kill` find its run: an entry in the registry, and its doors."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.errors import MingleError, reason
from mingle_hooks.rendezvous.protocol.wire import WireError
from mingle_hooks.supervise.worlds import registry, words
from mingle_hooks.supervise.worlds.door import Door
from mingle_hooks.supervise.worlds.intime import in_time
from mingle_hooks.supervise.worlds.process import own
from mingle_hooks.supervise.worlds.words import ASK, ENDING, GONE, KILL, STATE, Ask, Gone, Kill

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.rendezvous.protocol.wire import Body
    from mingle_hooks.supervise.protocol.link import Link
    from mingle_hooks.supervise.worlds.registry import Entry
    from mingle_hooks.supervise.worlds.words import State

# A home that does not answer holds nothing up for longer.
_BEGIN_S, _END_S = 0.25, 1.0
# So many wait for the end, at most.
_MOST_WAITING = 64


class Public(NamedTuple):
    """What a run shows of itself. Without a key, or a home, it shows nothing."""

    id: str
    run: str
    host: str
    addresses: tuple[str, ...]
    wanted: int
    command: str
    keys: Sequence[bytes]
    directory: str | None


class World:
    """A run as others see it, until close(). `state(entry, whole)` tells how it does; `on_kill(now)` is to end it.

    `note(text)` gets in one line what keeps it from being seen, which is no reason not to run.
    """

    def __init__(
        self,
        loop: Loop,
        public: Public,
        state: Callable[[Entry, bool], State],
        on_kill: Callable[[bool], None],
        note: Callable[[str], None],
    ) -> None:
        self._state, self._on_kill = state, on_kill
        self._doors: list[Door] = []
        self.waiting: list[Link] = []
        self._path = public.directory
        self.entry: Entry | None = None
        if public.directory is None or not public.keys:
            return
        try:
            doors = [self._door(loop, key, public.run) for key in public.keys[: registry.MOST_DOORS]]
            entry = _entry(public, tuple(doors))
            if not in_time(lambda: registry.write(str(public.directory), entry), _BEGIN_S):
                note(f"`mingle ls` does not show this run yet: {public.directory} is slow")
            self.entry = entry
        except (MingleError, OSError) as error:
            note(f"`mingle ls` does not show this run: {reason(error)}")
            self._shut()

    def close(self, status: int | None) -> None:
        """Have done: nothing of the run is left but this process, and its status, where it has one."""
        if self.entry is not None:
            run, path = self.entry.run, str(self._path)
            in_time(lambda: registry.remove(path, run), _END_S)
            self.entry = None
        if status is not None:
            for link in self.waiting:  # it ends with this process: by that they see that it has
                link.send(GONE, Gone(status).body())
        self._shut()

    def _shut(self) -> None:
        for door in self._doors:
            door.close()
        self._doors = []

    def _door(self, loop: Loop, key: bytes, run: str) -> registry.Door:
        secret = words.secret(key, run)
        door = Door(loop, secret, lambda link, kind, body: self._asked(door, link, kind, body))
        self._doors.append(door)
        return registry.Door(words.tag(secret), door.port)

    def _asked(self, door: Door, link: Link, kind: int, body: Body) -> None:
        if self.entry is None:
            return
        if kind == ASK:
            link.send(STATE, self._state(self.entry, Ask.parse(body).is_whole).body())
        elif kind == KILL:
            door.keep(link)
            self.waiting = [its for its in self.waiting if not its.closed and its is not link][-_MOST_WAITING + 1 :]
            self.waiting.append(link)
            link.send(ENDING, {})
            self._on_kill(Kill.parse(body).is_now)
        else:
            raise WireError("no question")


def _entry(public: Public, doors: tuple[registry.Door, ...]) -> Entry:
    return registry.Entry(
        id=public.id,
        run=public.run,
        host=public.host,
        addresses=public.addresses[: registry.MOST_ADDRESSES],
        doors=doors,
        process=own(),
        began=int(time.time()),
        wanted=public.wanted,
        command=public.command,
    )
