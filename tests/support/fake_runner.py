"""A small runner in the test's own process, and an agent that a test starts for it as a scheduler would."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from running import running

import mingle_hooks
from mingle_hooks import joining
from mingle_hooks.rendezvous.connection import READ, Loop
from mingle_hooks.rendezvous.wire import Secret, body_of, parse
from mingle_hooks.run import messages
from mingle_hooks.run.messages import AGENT, RUNNER, Link, Reception

START = (sys.executable, "-I", str(Path(mingle_hooks.__file__).parent / "__main__.py"))
PATIENCE_S = 30.0
KEY = "ab" * 32
NUMBER = 5


class Runner:
    """Answers one agent; `received` has its messages, `output` what COMMAND wrote. Leaves no process of it behind."""

    def __init__(self, directory: Path, *, silence_s: float = 15.0, answers: bool = True) -> None:
        self.directory, self._silence_s, self.answers = directory, silence_s, answers
        self.loop = Loop()
        self.secret = Secret(bytes.fromhex(KEY))
        self.run_id = os.urandom(8).hex()
        self.received: list[tuple[int, dict[str, Any]]] = []
        self.frames: list[tuple[int, bytes]] = []  # of output
        self.output = bytearray()
        self.errors = bytearray()
        self.drained = 0
        self.heartbeats: list[messages.Heartbeat] = []
        self.ends: list[str] = []
        self.links: list[Link] = []
        self.control: Link | None = None
        self.stream: Link | None = None
        self.process: subprocess.Popen[bytes] | None = None
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self._reception = Reception(self.loop, self._receive, most=2)
        self._reception.listen([listener], self.secret)
        self._reception.on_end = lambda _link, reason: self.ends.append(reason)
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", 0))
        self._udp.setblocking(False)  # noqa: FBT003 - socket's own
        self.loop.watch(self._udp, READ, lambda _events: self._answer())

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        self.vanish()
        self.stop_listening()
        self._udp.close()
        try:
            if self.process is not None:
                self.process.wait(PATIENCE_S)
        finally:
            left = self.processes()
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            if self.process is not None:
                self.process.wait(PATIENCE_S)
            self.loop.__exit__(None, None, None)
        assert kind is not None or left == {}

    def environ(self) -> dict[str, str]:
        """Return what a remote start hands on."""
        return {
            **os.environ,
            "MINGLE_RUN_KEY": KEY,
            "MINGLE_RUN_AT": f"127.0.0.1 {self.port}",
            "MINGLE_RUN_ID": self.run_id,
            "MINGLE_KEY": joining.fresh_key(),
        }

    def supervise(
        self,
        *options: str,
        before: tuple[str, ...] = (),
        environ: dict[str, str] | None = None,
        bare: bool = False,
        wait: bool = True,
        **popen: Any,
    ) -> None:
        """Start the program as a scheduler does, behind other words, and wait for both of its connections.

        One that starts `bare` hands on no environment.
        """
        argv = [*before, *START, "agent", "--host", "alpha", *options]
        own = {**({} if bare else self.environ()), **(environ or {})}
        self.process = subprocess.Popen(argv, env=own, **popen)
        if wait:
            self.until(lambda: (self.control and self.stream) or (self.process and self.process.poll() is not None))
            assert self.stream is not None

    @property
    def warden(self) -> int:
        """The process that was started."""
        assert self.process is not None
        return self.process.pid

    @property
    def pid(self) -> int:
        """The agent's process, below the warden."""
        return int(self.all_of(messages.JOIN)[0]["pid"])

    def emergency(self) -> str:
        """Return what the program wrote on its own standard error, once it has ended."""
        assert self.process is not None
        assert self.process.stderr is not None
        with self.process.stderr as stderr:
            return stderr.read().decode()

    def attempt(self, *command: str, **fields: Any) -> dict[str, Any]:
        """Send START with the next number, wait until nothing of it is left, and return how it ended."""
        number = len(self.all_of(messages.ENDED))
        self.start(*command, attempt=number, **fields)
        ended = self.wait_for(messages.ENDED, number + 1)
        self.wait_for(messages.CLEAN, number + 1)
        self.until(lambda: self.drained > number)
        return ended

    def start(self, *command: str, attempt: int = 0, **fields: Any) -> None:
        """Send START, with a world of one node."""
        said = {
            "attempt": attempt,
            "facts": {"nodes": 1, "node_rank": 0, "hosts": ["alpha"], "job_id": self.run_id, "restarts": attempt},
            "options": ("--timeout", "20", "--quiet"),
            "command": command,
            "environ": {},
            "directory": str(self.directory),
            "umask": 0o022,
            **fields,
        }
        self.send(messages.START, messages.Start(**said))

    def begin(self, *command: str, shows: bytes = b"", **fields: Any) -> None:
        """Send START, and wait until COMMAND runs, or has written something."""
        self.start(*command, **fields)
        self.until(lambda: shows in self.output if shows else self.all_of(messages.FORMED))

    def send(self, kind: int, body: dict[str, Any] | tuple[Any, ...]) -> None:
        """Send a message."""
        assert self.control is not None
        self.control.send_message(kind, body if isinstance(body, dict) else body_of(body))

    def end(self, grace_s: float = 5.0, attempt: int = 0) -> None:
        """Send END."""
        self.send(messages.END, messages.End(attempt, round(grace_s * 1000)))

    def leave(self, status: int = 0) -> int:
        """Send LEAVE, and return the exit status."""
        self.send(messages.LEAVE, messages.Leave(status))
        return self.exit_status()

    def exit_status(self) -> int:
        """Serve until the program has ended; return its exit status."""
        process = self.process
        assert process is not None
        self.until(lambda: process.poll() is not None)
        return process.returncode

    def stop_listening(self) -> None:
        """Hear nobody."""
        self._reception.close()

    def vanish(self) -> None:
        """Close all connections."""
        for link in self.links:
            link.close()

    def all_of(self, kind: int) -> list[dict[str, Any]]:
        """Return the messages of a kind."""
        return [body for its, body in self.received if its == kind]

    def wait_for(self, kind: int, count: int = 1) -> dict[str, Any]:
        """Serve until a message has come; return it."""
        self.until(lambda: len(self.all_of(kind)) >= count)
        return self.all_of(kind)[count - 1]

    def until(self, happens: Callable[[], object]) -> None:
        """Serve until something happens."""
        deadline = time.monotonic() + PATIENCE_S
        while not happens():
            assert time.monotonic() < deadline, (self.received, self.ends, bytes(self.errors[-2000:]))
            self.loop.turn(min(self.loop.due_in(), 0.02))

    def processes(self) -> dict[int, str]:
        """Return what runs of this run."""
        own = f"MINGLE_RUN_ID={self.run_id}".encode()
        found = running(lambda environ: own in environ)
        found.pop(os.getpid(), None)
        return found

    def _receive(self, link: Link, kind: int, body: dict[str, Any]) -> None:
        self.received.append((kind, body))
        if kind != messages.JOIN:
            return
        self._reception.admit(link)
        self.links.append(link)
        if parse(messages.Join, body).is_output:
            self.stream, link.on_output = link, self._wrote
        else:
            self.control = link
            port = self._udp.getsockname()[1]
            link.send_record(messages.Welcome(NUMBER, port, *[round(self._silence_s * 1000)] * 2))

    def _wrote(self, kind: int, data: bytes) -> None:
        if kind == messages.DRAINED:
            self.drained += 1
        else:
            self.frames.append((kind, data))
            (self.output if kind == messages.OUT else self.errors).extend(data)

    def _answer(self) -> None:
        for heartbeat, _, where in messages.heartbeats(self._udp, self.secret, AGENT):
            assert heartbeat.number == NUMBER
            self.heartbeats.append(heartbeat)
            if self.answers:
                answer = messages.Heartbeat(NUMBER, len(self.heartbeats))
                self._udp.sendto(messages.pack_heartbeat(self.secret, RUNNER, answer), where)
