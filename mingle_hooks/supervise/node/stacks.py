"""What COMMAND's Python processes are doing: by py-spy, or by the faulthandler of those that have it enabled.

A program has faulthandler's handlers with PYTHONFAULTHANDLER=1 or faulthandler.enable(). SIGABRT then makes it write
the stacks of all its threads, and end, which is what comes next anyway. Other signals mean other things to programs:
torchrun's agent ends its workers at SIGQUIT, and USR1 and USR2 warn of limits and preemption.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from mingle_hooks.rendezvous.poller import READ
from mingle_hooks.supervise.node import processes
from mingle_hooks.supervise.node.descriptor import Descriptor
from mingle_hooks.supervise.node.options import AT, KEY
from mingle_hooks.supervise.protocol.stacks import MOST_STACKS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mingle_hooks.rendezvous.loop import Loop

# So many py-spy at once; what is signalled has this last part of the time.
MOST_AT_ONCE, WRITE_S = 8, 3.0
_LOOK_S = 0.02
_READ_BYTES = 64 * 1024


def py_spy(path: str) -> str | None:
    """Return where py-spy is."""
    places = (os.path.join(folder, "py-spy") for folder in path.split(os.pathsep) if folder)
    return next((place for place in places if os.path.isfile(place) and os.access(place, os.X_OK)), None)


def spawn(argv: list[str], environ: Mapping[str, str]) -> tuple[int, int]:
    """Start a program; return its process and the end of a pipe with all that it says. Raises OSError."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, writing, 1),
        (os.POSIX_SPAWN_DUP2, writing, 2),
    ]
    try:
        os.set_blocking(reading, False)
        return os.posix_spawn(argv[0], argv, environ, file_actions=actions), reading
    except OSError:
        os.close(reading)
        raise
    finally:
        os.close(writing)


def forbid_core(pid: int) -> None:
    """Have the kernel write no memory of a process to a disk as it aborts; 1 also forbids a core to a program."""
    import resource

    try:
        hard = resource.prlimit(pid, resource.RLIMIT_CORE)[1]
        resource.prlimit(pid, resource.RLIMIT_CORE, (min(1, hard) if hard >= 0 else 1, hard))
    except (OSError, ValueError):  # it ended meanwhile, or is another user's
        pass


class Stacks:
    """Takes them, of all Python processes below this one; `on_done(text)` comes once, within the time given."""

    def __init__(self, loop: Loop, own: Mapping[str, str], within_s: float, on_done: Callable[[str], None]) -> None:
        self._loop, self._on_done = loop, on_done
        self._environ = {name: value for name, value in own.items() if name not in (KEY, AT)}
        self._program = py_spy(own.get("PATH", ""))
        self._pids = [pid for pid in processes.descendants() if processes.is_python(pid)]
        self._waiting = [*self._pids] if self._program else []
        self._spies: dict[int, tuple[int, Descriptor]] = {}  # whose stacks -> py-spy's process and its output
        self._said: dict[int, bytes] = {}
        self._signalled: list[int] = []
        self._is_over = False
        self._until = loop.clock() + within_s
        loop.after(max(within_s - WRITE_S, 0.0), self._no_more_spies)
        self._spy()

    def _spy(self) -> None:
        """Go on to the next; behind the last, to those that py-spy had nothing of."""
        while self._waiting and len(self._spies) < MOST_AT_ONCE:
            self._begin(self._waiting.pop(0))
        if not self._spies and not self._is_over:
            self._is_over = True
            self._signal()

    def _begin(self, pid: int) -> None:
        try:
            spy, reading = spawn([str(self._program), "dump", "--pid", str(pid)], self._environ)
        except OSError as wrong:  # no descriptor or process is left, or it is no program
            self._said[pid] = f"py-spy: {wrong.strerror}".encode()
            return
        end = Descriptor(reading)
        self._spies[pid], self._said[pid] = (spy, end), b""
        self._loop.watch(end, READ, lambda _events: self._read(pid))

    def _read(self, pid: int) -> None:
        try:
            data = os.read(self._spies[pid][1].fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        self._said[pid] = (self._said[pid] + data)[:MOST_STACKS]
        if not data:
            self._close(pid)
            self._spy()

    def _close(self, pid: int) -> int:
        spy, end = self._spies.pop(pid)
        self._loop.unwatch(end)
        end.close()
        return spy

    def _no_more_spies(self) -> None:
        """Leave those that take too long."""
        self._waiting.clear()
        processes.send([self._close(pid) for pid in [*self._spies]], signal.SIGKILL)
        self._spy()

    def _signal(self) -> None:
        """Have those write that py-spy had nothing of, as far as they can, and wait until they have."""
        here = {*processes.descendants()}
        left = [pid for pid in self._pids if pid in here and b"Thread " not in self._said.get(pid, b"")]
        self._signalled = [pid for pid in left if processes.catches(pid, signal.SIGABRT)]
        for pid in self._signalled:
            forbid_core(pid)
        processes.send(self._signalled, signal.SIGABRT)
        processes.send(self._signalled, signal.SIGCONT)  # one that is stopped hears nothing
        self._until = min(self._until, self._loop.clock() + WRITE_S)
        self._look()

    def _look(self) -> None:
        """Wait for the end of those that were signalled: by then they have written."""
        if self._loop.clock() < self._until and any(processes.is_running(pid) for pid in self._signalled):
            self._loop.after(_LOOK_S, self._look)
        else:
            self._on_done(self._text()[:MOST_STACKS])

    def _text(self) -> str:
        return "\n".join(map(self._of, self._pids)) or "no Python process is here"

    def _of(self, pid: int) -> str:
        said = self._said.get(pid, b"").decode(errors="replace").strip()
        if b"Thread " in self._said.get(pid, b""):
            return said
        if pid in self._signalled:
            return f"process {pid}: what faulthandler wrote at SIGABRT is in its output"
        why = said or ("py-spy took too long" if self._program else "py-spy is not on PATH")
        return f"process {pid}: no stack ({why}, and PYTHONFAULTHANDLER=1 is not set)"
