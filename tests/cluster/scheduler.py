"""What the schedulers on test hosts have in common: daemons that start with a test's hosts, and are waited for."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typing_extensions import Self

from cluster.host import COMMAND_S, Host, kill_group
from cluster.hosts import Hosts

ASK_AGAIN_S = 0.05
TIDIED_S = 10.0  # a scheduler has ended by then what a job has left


class Scheduler:
    """A scheduler on hosts that already stand, as a context manager; its processes end with it."""

    # The hosts are ready within some seconds; a busy machine may need much longer.
    ready_s = 60.0
    # Each question starts a program: what takes long is asked for less often, but at least after so long.
    most_s = 15.0

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self._daemons: list[subprocess.Popen[str]] = []
        self._first_processes: set[int] = set()

    def __enter__(self) -> Self:
        try:
            self._start()
            self.wait_idle()
            self._first_processes = set(self.hosts.processes())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def controller(self) -> Host:
        """The host of the server, where users give in their jobs."""
        return self.hosts[0]

    def _start(self) -> None:
        raise NotImplementedError

    def is_idle(self) -> bool:
        """Tell whether every host is free and no job is there."""
        raise NotImplementedError

    def _logs(self, host: Host) -> list[Path]:
        raise NotImplementedError

    def _is_own(self, _line: str) -> bool:
        """Tell by its command line a process that is the scheduler's, whenever it was started."""
        return False

    def _daemon(self, host: Host, argv: list[str], log: str) -> subprocess.Popen[str]:
        with host.outside(log).open("w") as file:
            self._daemons.append(host.popen(argv, stdout=file, stderr=subprocess.STDOUT, cwd="/"))
        return self._daemons[-1]

    def until(self, is_so: Callable[[], Any], what: str | Callable[[], str], timeout: float = 0.0) -> None:
        """Wait until something is so; raise TimeoutError with the daemons' logs when it takes too long.

        `what` is called when it is too late, where it is a function.
        """
        began, limit_s = time.monotonic(), timeout or self.ready_s
        while not is_so():
            ended = [daemon.args for daemon in self._daemons if daemon.poll() is not None]
            waited_s = time.monotonic() - began
            if ended or waited_s > limit_s:
                lacks = what if isinstance(what, str) else what()
                raise TimeoutError(f"no {lacks} within {limit_s} s; ended: {ended}\n{self.logs()}")
            time.sleep(min(ASK_AGAIN_S + waited_s / 4, self.most_s))

    def wait_idle(self, timeout: float = 0.0) -> None:
        """Wait until every host is free and no job is there; raise TimeoutError with the logs otherwise."""
        self.until(self.is_idle, "idle hosts", timeout)

    def logs(self) -> str:
        """Return the end of every daemon's log, for the message of a failed test."""
        shown = []
        for host in self.hosts:
            for log in self._logs(host):
                lines = log.read_text(errors="replace").splitlines()
                shown += [f"--- {host.name} {log.parent.name}/{log.name}", *lines[-25:]]
        return "\n".join(shown)

    def strays(self) -> dict[int, str]:
        """Return what runs on the hosts beside the daemons, after some seconds for the scheduler to tidy up."""
        deadline = time.monotonic() + TIDIED_S
        while True:
            now = self.hosts.processes()
            left = {p: line for p, line in now.items() if p not in self._first_processes and not self._is_own(line)}
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(ASK_AGAIN_S)

    def close(self) -> None:
        """End the daemons at once; the jobs end with the hosts."""
        for daemon in self._daemons:
            kill_group(daemon)
            daemon.wait(COMMAND_S)
        self._daemons.clear()
        for pid, line in self.hosts.processes().items():
            if pid in self._first_processes or self._is_own(line):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
