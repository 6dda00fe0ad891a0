"""What stand-ins for schedulers have in common: their programs ask over a socket, and processes are ended in groups."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from typing_extensions import Self

from cluster.waiting import until


class StandIn:
    """A stand-in on test hosts, as a context manager; each question is answered in a thread of its own."""

    def __init__(self, place: Path) -> None:
        self.place, self.address = place, str(place / "server")
        self._server = socket.socket(socket.AF_UNIX)
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()  # between the start of a task and the end of its job
        self._is_closed = False

    def __enter__(self) -> Self:
        (self.place / "bin").mkdir(exist_ok=True)
        for name, text in self._programs().items():
            file = self.place / "bin" / name
            file.write_text(text.format(python=os.path.realpath(sys.executable), address=self.address))
            file.chmod(0o755)
        self._server.bind(self.address)
        Path(self.address).chmod(0o777)
        self._server.listen()
        self._start_thread(self._serve)
        return self

    def __exit__(self, *_error: object) -> None:
        with self._lock:
            self._is_closed = True
        self._end_all()
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(10)

    def _programs(self) -> dict[str, str]:
        """Return name -> text of each program, in which {python} and {address} are replaced."""
        raise NotImplementedError

    def _answer(self, connection: socket.socket) -> None:
        raise NotImplementedError

    def _end_all(self) -> None:
        raise NotImplementedError

    def _start_thread(self, target: Any, *words: Any) -> threading.Thread:
        self._threads.append(threading.Thread(target=target, args=words))
        self._threads[-1].start()
        return self._threads[-1]

    def _serve(self) -> None:
        while True:
            try:
                connection = self._server.accept()[0]
            except OSError:
                return  # closed
            self._start_thread(self._answer, connection)


def signal_groups(leaders: Sequence[subprocess.Popen[str]], number: int) -> None:
    """Signal the process group of each."""
    for leader in leaders:
        with suppress(ProcessLookupError):
            os.killpg(leader.pid, number)


def await_end(leaders: Sequence[subprocess.Popen[str]], seconds: float) -> None:
    """Wait until nothing is left of these process groups, and fail otherwise."""
    until(lambda: not any(map(_is_there, leaders)), f"{leaders} do not end", seconds)


def kill_groups(leaders: Sequence[subprocess.Popen[str]], seconds: float) -> None:
    """Kill these process groups, and wait until nothing is left: what is killed takes a moment to go."""
    signal_groups(leaders, signal.SIGKILL)
    for leader in leaders:
        leader.wait(seconds)
    await_end(leaders, seconds)


def _is_there(leader: subprocess.Popen[str]) -> bool:
    leader.poll()  # collects it
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, 0)
        return True
    return False
