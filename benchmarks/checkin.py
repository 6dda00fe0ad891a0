"""Check-in of many simulated members on this machine: `mingle`'s, a barrier of torch's TCPStore, python-zeroconf.

All others are in and wait when the last one arrives; the clock runs from then until the last of all has its answer.
The leader, or the store, is a process of its own.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from cluster.hosts import Hosts

from benchmarks import scale
from benchmarks.crowd import ADDRESS, TIMEOUT_S, World, be_crowd
from benchmarks.peers import ENV, PROGRAMS, PYTHON, Cell, PeerError, by_turns, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from multiprocessing.connection import Connection

SIZES = (64, 256, 1024, 4096, 16_384)
# Each finds each other: what one process and these processors can do ends early.
FOUND_BY_ZEROCONF, ZEROCONF_LIMIT_S = (64, 256), 45.0
# A thread of a member that waits for the store: it calls nothing deep.
STACK = 256 << 10
MINGLE, STORE, ZEROCONF = "mingle", "TCPStore", "python-zeroconf"

numbers = count(1)


def figures(here: Iterable[str], sizes: Iterable[int] = SIZES) -> dict[str, dict[str, Cell]]:
    """Return the seconds by number of members and tool."""
    tools: dict[str, Callable[[int], float]] = {MINGLE: lambda size: _once(size, scale.endpoint, be_crowd)}
    tools |= {STORE: lambda size: _once(size, be_store, be_clients)} if "torch" in here else {}
    tools |= {ZEROCONF: _of_zeroconf} if "zeroconf" in here else {}
    found = {}
    for size in scale.allowed(list(sizes)):
        names = [name for name in tools if name != ZEROCONF or size in FOUND_BY_ZEROCONF]
        cells = found[str(size)] = by_turns(names, lambda name: {name: tools[name](size)})  # noqa: B023 - called within
        for name, cell in cells.items():
            print(f"  check-in of {size:6} members  {name:17} {shown(cell)}", flush=True)
    return found


def _once(
    size: int, leader: Callable[[World, Connection], None], members: Callable[[World, range, Connection], None]
) -> float:
    try:
        return scale.once(size, next(numbers), scale.LAST, leader, members).seconds
    except TimeoutError as why:
        raise PeerError(str(why)) from why


def _of_zeroconf(size: int) -> float:
    words = [PYTHON, str(PROGRAMS / "services_crowd.py"), str(size), str(ZEROCONF_LIMIT_S)]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with Hosts(1) as hosts:
        done = hosts[0].run(words, env=ENV, timeout=3 * ZEROCONF_LIMIT_S)
    if done.returncode:
        raise PeerError((done.stderr.strip().splitlines() or ["no message"])[-1][-200:])
    return float(done.stdout)


def be_store(world: World, pipe: Connection) -> None:
    """Be the store, until all clients have left the barrier."""
    from datetime import timedelta

    _quietly()
    from torch.distributed import TCPStore

    store = TCPStore(ADDRESS, world.port, is_master=True, wait_for_workers=False)
    store.wait(["all"], timedelta(seconds=TIMEOUT_S))
    pipe.send((time.process_time(), 0))
    time.sleep(TIMEOUT_S)  # until it is ended


class Clients:
    """The clients of some ranks, each a thread that waits in the store."""

    def __init__(self, world: World, pipe: Connection) -> None:
        self._world, self._pipe, self._lock = world, pipe, threading.Lock()
        self.inside, self.formed, self._stores = 0, 0, list[object]()

    def be(self, of: int) -> None:
        """Come, pass the barrier, and say so for the last of them."""
        from torch.distributed import TCPStore

        store = TCPStore(ADDRESS, self._world.port, is_master=False, wait_for_workers=False)
        if store.add("in", 1) == self._world.nodes - 1:  # rank 0 is the store's own
            store.set("all", "in")
        with self._lock:
            self._stores.append(store)
            self.inside += 1
            if self.inside >= of - 1:
                self._pipe.send(("in", self.inside, time.monotonic()))
        store.wait(["all"])
        now_s = time.monotonic()
        with self._lock:
            self.formed += 1
            if self.formed == of:
                self._pipe.send(("formed", of, now_s))


def _quietly() -> None:
    """Have torch print no line for each client whose name it does not find."""
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"


def be_clients(world: World, ranks: range, pipe: Connection) -> None:
    """Be the clients of some ranks until told to end, as crowd.be_crowd does."""
    _quietly()
    import torch.distributed as _loaded  # noqa: F401 - before any comes

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    threading.stack_size(STACK)
    clients = Clients(world, pipe)
    pipe.send(("ready", len(ranks), time.monotonic()))
    while (order := pipe.recv()) is not None:
        first, last, at_s, step_s = order
        for number in range(len(ranks))[first:last]:
            time.sleep(max(0.0, at_s + (number - first) * step_s - time.monotonic()))
            threading.Thread(target=clients.be, args=(len(ranks),), daemon=True).start()


if __name__ == "__main__":
    figures(("torch", "zeroconf"))
