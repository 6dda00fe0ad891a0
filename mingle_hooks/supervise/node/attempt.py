"""One attempt on this host: COMMAND from its start until nothing of it is left."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mingle_hooks import jsontext
from mingle_hooks.rendezvous.poller import READ
from mingle_hooks.supervise.node import command, memory
from mingle_hooks.supervise.node.descriptor import Descriptor
from mingle_hooks.supervise.node.relay import Relay
from mingle_hooks.supervise.node.stacks import Stacks
from mingle_hooks.supervise.node.tree import Tree
from mingle_hooks.supervise.protocol.messages import CLEAN, ENDED, FORMED, STACKS, Clean, Ended, Formed
from mingle_hooks.supervise.protocol.stacks import Stacks as Told

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mingle_hooks.rendezvous.loop import Loop, Timer
    from mingle_hooks.rendezvous.protocol.wire import Body
    from mingle_hooks.supervise.node.processes import Reaped
    from mingle_hooks.supervise.protocol.link import Link
    from mingle_hooks.supervise.protocol.messages import Start

# What COMMAND leaves behind has so long after TERM, in seconds.
_LEFTOVER_GRACE_S = 1.0
# Output is awaited so long after the last process is gone: somebody else may hold the pipe.
_DRAIN_S = 1.0
_MOST_FORMED_BYTES = 4096


class Attempt:
    """COMMAND, its output and its end; `report(kind, body)` tells the runner."""

    def __init__(
        self, loop: Loop, start: Start, own: Mapping[str, str], output: Link, report: Callable[[int, Body], None]
    ) -> None:
        self._loop, self._report, self.number = loop, report, start.attempt
        self._memory = memory.Counter.here()
        self._formed = False
        self.is_clean = self.is_drained = False
        self._drain: Timer | None = None
        self._own = own
        self._stacks: Stacks | None = None
        self.tree = Tree(loop, self._ended, self._empty)
        begun = command.begin(own, start)
        self._pid = begun.pid
        self._relay = Relay(loop, output, begun.stdout, begun.stderr, self._drained)
        self._telling: Descriptor | None = Descriptor(begun.formed)
        loop.watch(self._telling, READ, lambda _events: self._told())

    def close(self) -> None:
        """Wait for no more output."""
        if not self.is_drained:
            self._relay.close()

    def dump(self, within_s: float) -> None:
        """Take the stacks of all Python processes, once, and tell the runner."""
        if self._stacks is None:
            self._stacks = Stacks(self._loop, self._own, within_s, self._dumped)

    def _dumped(self, text: str) -> None:
        self._report(STACKS, Told(self.number, text).body())

    def _told(self) -> None:
        """Read what `mingle exec` says of the world, or that it has ended without a word."""
        if self._telling is None:
            return
        try:
            data = os.read(self._telling.fileno(), _MOST_FORMED_BYTES)
        except BlockingIOError:
            return
        self._hush()
        if data:
            world = jsontext.loads(data)
            self._formed = True
            where, spent = (world["addr"], world["port"]), tuple(world["spent"])
            self._report(FORMED, Formed(self.number, world["nodes"], *where, spent).body())

    def _hush(self) -> None:
        """Hear no more of the world; who still holds the pipe has left it open."""
        if self._telling is not None:
            self._loop.unwatch(self._telling)
            self._telling.close()
            self._telling = None

    def _ended(self, child: Reaped) -> None:
        if child.pid != self._pid:
            return
        self._told()
        self._hush()
        self._relay.catch_up()
        status = child.status if child.signal is None else 128 + child.signal
        is_oom = self._memory.has_grown()
        said = Ended(self.number, status, child.signal, self._formed, is_oom, self._relay.tail)
        self._report(ENDED, said.body())
        if not self.tree.is_ending:  # else what is left has the grace that the runner gave
            self.tree.end(_LEFTOVER_GRACE_S)

    def _empty(self) -> None:
        if self.is_clean:
            return
        self.is_clean = True
        self._report(CLEAN, Clean(self.number, self.tree.killed).body())
        if not self.is_drained:
            self._drain = self._loop.after(_DRAIN_S, self._overdue)

    def _overdue(self) -> None:
        if self._relay.is_paused:  # the runner is slow; nothing is lost for that
            self._drain = self._loop.after(_DRAIN_S, self._overdue)
        else:
            self.close()

    def _drained(self) -> None:
        self.is_drained = True
        if self._drain is not None:
            self._drain.cancel()
