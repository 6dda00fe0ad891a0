"""Runs in the test's own process: a real loop in a thread, with states that a test makes up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.run.status import Entry, Failure, Node, RunnerProcess, RunPhase, State, StatusServer

KEY, OTHER_KEY = b"0123456789abcdef" * 4, b"fedcba9876543210" * 4
CAUSE = {
    "kind": "ended",
    "host": "node2",
    "rank": 1,
    "after_s": 12.0,
    "status": 7,
    "signal": None,
    "is_oom": False,
    "silent_s": None,
    "tail": "a line\nred \x1b[31m and a bell \x07\n",
    "exception": "",
}


def state(entry: Entry, is_whole: bool = True, now: RunPhase = "running") -> State:  # noqa: FBT001, FBT002 - as StatusServer calls it
    """Return what a run of two nodes could answer."""
    nodes = (Node("node1", 0, "running", 0, 1_700_000_000), Node("node2", 0, "missing", None, None))
    return State(
        id=entry.id,
        run=entry.run,
        state=now,
        here=1,
        wanted=2,
        attempt=1,
        restarts=3,
        began=entry.began,
        since=entry.began,
        host=entry.host,
        pid=entry.process.pid,
        command=entry.command,
        nodes=nodes if is_whole else (),
        failure=Failure(0, 1_700_000_000, CAUSE) if is_whole else None,
    )


class Served:
    """A loop that turns in a thread, and the worlds on it; make them before `with`."""

    def __init__(self, path: Path) -> None:
        self.path, self.loop = path, Loop()
        self.worlds: list[StatusServer] = []
        self.kills: list[tuple[str, bool]] = []
        self.notes: list[str] = []
        self._calls: list[Callable[[], None]] = []
        self._is_over = False
        self._thread = threading.Thread(target=self._turn)

    def world(self, name: str = "4711", run: str = "00112233aabbccdd", **its: object) -> StatusServer:
        """Make a run."""
        began = int(time.time())
        entry = Entry(name, run, "node1", ("127.0.0.1",), (), RunnerProcess.own(), began, 2, "torchrun train.py")
        where = {"keys": (KEY,), "directory": str(self.path), **its}
        made = StatusServer(self.loop, entry, where["keys"], where["directory"], self.notes.append)
        made.state, made.on_kill = state, lambda now: self._killed(made, now)
        self.worlds.append(made)
        return made

    def _killed(self, world: StatusServer, now: bool) -> None:  # noqa: FBT001 - as StatusServer calls it
        self.kills.append((world.entry.run if world.entry else "", now))
        if now:  # its process ends
            world.close(130)
            for link in world.waiting:
                link.close()

    def __enter__(self) -> Served:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._is_over = True
        self._thread.join()

    def call(self, what: Callable[[], None]) -> None:
        """Do something in the loop's thread, and wait until it has been done."""
        done = threading.Event()
        self._calls.append(lambda: (what(), done.set()))  # type: ignore[func-returns-value]
        done.wait()

    def close(self) -> None:
        """Close what is left."""
        for world in self.worlds:
            world.close(None)
            for link in world.waiting:
                link.close()
        self.loop.poller.close()

    def _turn(self) -> None:
        while not self._is_over:
            self.loop.turn(0.005)
            while self._calls:
                self._calls.pop(0)()
