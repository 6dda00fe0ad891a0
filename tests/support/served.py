"""Runs in the test's own process: files and listeners as real runs have, in states that a test makes up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.run.attempt import Cause
from mingle_hooks.run.status import Failure, KillListener, Node, RunnerProcess, RunStatus, write_status

KEY, OTHER_KEY = b"0123456789abcdef" * 4, b"fedcba9876543210" * 4
CAUSE = Cause("ended", "node2", 1, 12.0, status=7, tail="a line\nred \x1b[31m and a bell \x07\n")._asdict()


# One time for all runs of a test, however long it takes to make them.
BEGAN = int(time.time())


def status_of(name: str = "4711", run: str = "00112233aabbccdd") -> RunStatus:
    """Return the status of a run of two nodes, by this process."""
    return RunStatus(
        id=name,
        run=run,
        state="running",
        here=1,
        wanted=2,
        attempt=1,
        restarts=3,
        began=BEGAN,
        since=BEGAN,
        host="node1",
        command="torchrun train.py",
        process=RunnerProcess.own(),
        scheduler="local",
        job=None,
        addresses=("127.0.0.1",),
        nodes=(Node("node1", 0, "running", 0, 1_700_000_000), Node("node2", 0, "missing", None, None)),
        failure=Failure(0, 1_700_000_000, CAUSE),
    )


class Served:
    """A loop that turns in a thread, and runs that take `mingle kill` on it; make them before `with`."""

    def __init__(self, path: Path) -> None:
        self.path, self.loop = path, Loop()
        self.runs: list[RunStatus] = []
        self.killers: dict[str, KillListener] = {}
        self.kills: list[tuple[str, bool]] = []
        self._calls: list[Callable[[], None]] = []
        self._is_over = False
        self._thread = threading.Thread(target=self._turn)

    def run(
        self, name: str = "4711", run: str = "00112233aabbccdd", keys: Sequence[bytes] = (KEY,), **its: object
    ) -> RunStatus:
        """Make a run."""
        killer = self.killers[run] = KillListener(self.loop, run, keys, lambda now: self._killed(made, now))
        made = status_of(name, run)._replace(listeners=killer.listeners, **its)
        self.runs.append(made)
        write_status(str(self.path), made)
        return made

    def end(self, run: RunStatus, status: int) -> None:
        """End a run, and its process."""
        write_status(str(self.path), run._replace(state="ended", status=status))
        self.killers[run.run].close(status)
        for link in self.killers[run.run].waiting:
            link.close()

    def _killed(self, run: RunStatus, now: bool) -> None:  # noqa: FBT001 - as KillListener calls it
        self.kills.append((run.run, now))
        if now:
            self.end(run, 130)

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
        for killer in self.killers.values():
            killer.close(None)
            for link in killer.waiting:
                link.close()
        self.loop.poller.close()

    def _turn(self) -> None:
        while not self._is_over:
            self.loop.turn(0.005)
            while self._calls:
                self._calls.pop(0)()
