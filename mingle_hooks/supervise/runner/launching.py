"""The way to the hosts: where supervisors reach the runner, what they are told, and what starts them.

It comes first and alone: what the runner needs besides is loaded while the starters are at work.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mingle_hooks.errors import MissingError
from mingle_hooks.program import argv_of
from mingle_hooks.rendezvous.protocol.attempt import Secret
from mingle_hooks.schedulers.hostlist import fold
from mingle_hooks.supervise import starters
from mingle_hooks.supervise.runner import environ
from mingle_hooks.supervise.runner.door import Sockets
from mingle_hooks.supervise.runner.limit import Limit
from mingle_hooks.supervise.runner.request import Agreed
from mingle_hooks.supervise.runner.starting import Processes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.supervise.runner.starting import Process
    from mingle_hooks.supervise.starters import Allocation, Starter

START = "supervise/node/start.py"
_KEY_BYTES, _ID_BYTES = 32, 8
_CANNOT_START = 127
# So much longer may those hosts take to start that do see mingle's file, where others do not, in seconds.
_BLIND_S = 1.0
_SHARE = "a copy of it there, or a directory that all hosts see"


class Launching:
    """Starts one of our programs on hosts of a job, until close(). Two callbacks tell what comes of that.

    `on_said(data)` has what the starters write, `on_end(hosts, status, said)` each starter's end. They are called out
    of the loop only, and may be put in their place once something has been started.
    """

    def __init__(
        self,
        loop: Loop,
        starter: Starter,
        job: Allocation,
        program: str,
        *,
        iface: tuple[object, ...] = (),
        port_range: range,
        agreed: Agreed | None = None,
        told: Mapping[str, str] | None = None,
    ) -> None:
        self._loop, self._starter, self._job = loop, starter, job
        self._program = argv_of(program)
        self._file_path = self._program[2]
        self._unseen = f"can't open file {self._file_path!r}".encode()  # as Python says it
        self._blind: list[Process] = []  # starters that said so
        agreed = agreed or Agreed(os.urandom(_ID_BYTES).hex(), os.urandom(_KEY_BYTES), ())
        self.run, self.secret = agreed.run, Secret(agreed.key)
        self.on_said: Callable[[bytes], None] = lambda _said: None
        self.on_end: Callable[[tuple[str, ...], int, str], None] = lambda _hosts, _status, _said: None
        self._ahead: tuple[str, ...] | None = None
        self._limit = Limit(len(job.places))
        is_local = starter.name == "local"
        self.sockets = Sockets(is_local=is_local, port_range=port_range, chosen=agreed.ports)
        try:
            self.environ = environ.of_supervisors(starter, iface, agreed.run, agreed.key, self.sockets.port)
        except BaseException:
            self.sockets.close()
            raise
        self.environ |= told or {}
        self.processes = Processes(loop, self.environ, self._said, self._limit)
        self._file = environ.File(starter, self.environ)

    def start_ahead(self, hosts: tuple[str, ...]) -> None:
        """Start the program on hosts, for which start() will be called as the first thing. Raises as that does."""
        self.start(hosts)
        self._ahead = hosts

    def start(self, hosts: tuple[str, ...]) -> None:
        """Start the program on these hosts. Raises what the starter raises, and PlaceError for its file."""
        ahead, self._ahead = self._ahead, None
        if hosts == ahead:
            return
        file = self._file.path()
        for launch in starters.supervisors(self._starter, self._job, hosts, self._program, self.environ, file):
            try:
                self.processes.start(launch, self._ended)
            except OSError as wrong:
                self.cannot(launch.hosts, f"{launch.argv[0]}: {wrong.strerror}")

    def forget_file(self) -> None:
        """Remove the file of the environment, if there is one: nobody reads it any more."""
        self._file.forget()

    def close(self) -> None:
        """Leave nothing behind."""
        self.processes.kill(at_once=True)
        self.sockets.close()
        self._file.forget()
        self._limit.give_back()

    def cannot(self, hosts: tuple[str, ...], why: str) -> None:
        """Tell, as a starter would, that nothing can be started on these hosts."""

        def tell() -> None:
            self.on_said(f"mingle run: {why}\n".encode())
            self.on_end(hosts, _CANNOT_START, why)

        self._loop.after(0.0, tell)

    def _said(self, data: bytes) -> None:
        """Hand on what starters say, but for Python's own words of a program that a host does not see."""
        lines = data.splitlines(keepends=True)
        if rest := b"".join(line for line in lines if self._unseen not in line):
            self.on_said(rest)
        for process in self.processes.running:
            if self._unseen in process.said and process not in self._blind:
                if not self._blind:
                    self.on_said(f"mingle run: {self._why(process)}\n".encode())
                self._blind.append(process)
                self._loop.after(_BLIND_S, lambda process=process: self._give_up(process))  # type: ignore[misc]

    def _give_up(self, process: Process) -> None:
        """Count a starter as ended that goes on for those of its hosts that do see the program."""
        if process in self.processes.running:
            self._ended(process, _CANNOT_START)

    def _ended(self, process: Process, status: int) -> None:
        is_blind = self._unseen in process.said
        self.on_end(process.hosts, status, self._why(process) if is_blind else process.said.decode(errors="replace"))

    def _why(self, process: Process) -> str:
        where = process.hosts[0] if len(process.hosts) == 1 else f"some of {fold(process.hosts)}"
        return str(MissingError(f"mingle's file {self._file_path} on every host", f"no such file on {where}", _SHARE))
