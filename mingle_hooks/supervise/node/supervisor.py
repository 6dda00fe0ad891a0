"""The supervisor: it obeys the runner, tells what becomes of COMMAND, and ends all where the runner is lost."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from mingle_hooks.errors import NetworkError
from mingle_hooks.fabric.machine import hostname
from mingle_hooks.rendezvous.loop import Loop
from mingle_hooks.rendezvous.poller import READ
from mingle_hooks.rendezvous.protocol.attempt import Secret
from mingle_hooks.rendezvous.protocol.wire import WireError
from mingle_hooks.supervise.node import command, processes, signals
from mingle_hooks.supervise.node.attempt import Attempt
from mingle_hooks.supervise.node.descriptor import Descriptor
from mingle_hooks.supervise.node.runner import Runner
from mingle_hooks.supervise.protocol import messages, stacks

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.protocol.wire import Body
    from mingle_hooks.supervise.node.options import Task

NO_RUNNER = 75  # EX_TEMPFAIL: trying again makes sense
_STDERR = 2
# Without a runner, COMMAND has so long after TERM, in seconds.
_LOST_GRACE_S = 2.0
# A signal that comes to the warden and to the supervisor within this time is one.
_SAME_S = 1.0


def run(task: Task, warden: int) -> int:
    """Return the exit status that the runner says, or NO_RUNNER."""
    with Loop() as loop:
        supervisor = Supervisor(loop, task, warden)
        loop.run(lambda: supervisor.status is not None)
    return NO_RUNNER if supervisor.status is None else supervisor.status


def say(text: str) -> None:
    """Write a line where the scheduler takes it, if anybody reads it."""
    try:
        os.write(_STDERR, f"mingle run: {hostname()}: {text}\n".encode())
    except OSError:
        pass


class Supervisor:
    """One host's part of a run; `status` is its exit status once all is done."""

    def __init__(self, loop: Loop, task: Task, warden: int) -> None:
        self._loop, self._own = loop, dict(os.environ)
        self.status: int | None = None
        self._leaving: int | None = None  # with which status, once nothing is left
        self._attempt: Attempt | None = None
        self._passed_on: set[int] = set()
        self._noticed: dict[int, float] = {}
        self._listen(warden)
        join = messages.Join(task.host, task.local, os.getpid(), is_output=False)
        self._runner = Runner(loop, Secret(task.key), task.places, join, self._said, self._lost, command.prepare)

    def _listen(self, warden: int) -> None:
        """Hear the signals that come here or to the warden, and the warden's end."""
        reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signals.write_to(writing)
        signals.release()
        for end in (Descriptor(reading), Descriptor(warden)):
            self._loop.watch(end, READ, lambda _events, end=end: self._hear(end))  # type: ignore[misc]

    def _hear(self, end: Descriptor) -> None:
        numbers = os.read(end.fileno(), 4096)
        if not numbers:
            self._loop.unwatch(end)
            self._runner.close()  # what COMMAND dies of from here on is not its own failure
            self._lost("the warden is gone")
        for number in dict.fromkeys(numbers):
            if number == signal.SIGCHLD:
                self._reap()
            else:
                self._notice(number)

    def _reap(self) -> None:
        if self._attempt is None:
            processes.reap()
        else:
            self._attempt.tree.reap()
        self._leave()

    def _notice(self, number: int) -> None:
        """Tell the runner, which decides what it means."""
        now = self._loop.clock()
        if now - self._noticed.get(number, -_SAME_S) < _SAME_S:
            return
        self._noticed[number] = now
        if self._runner.is_found:
            self._runner.send(messages.NOTICED, messages.Noticed(number).body())
        else:
            self._runner.close()
            self._lost("stopped before a runner was found")

    def _said(self, kind: int, body: Body) -> None:
        """Obey. Raises WireError."""
        if kind == messages.START:
            self._start(messages.Start.parse(body))
        elif kind == messages.SIGNAL:
            self._pass_on(messages.Signal.parse(body))
        elif kind == messages.DUMP:
            self._dump(stacks.Dump.parse(body))
        elif kind == messages.END:
            self._end(messages.End.parse(body))
        elif kind == messages.LEAVE:
            self._leaving = messages.Leave.parse(body).status
            if self._attempt is not None:
                self._attempt.tree.end(0.0)
            self._leave()
        else:
            raise WireError("not a runner's message")

    def _start(self, start: messages.Start) -> None:
        output = self._runner.output
        if output is None or (self._attempt is not None and not self._attempt.is_clean):
            raise WireError("START in an attempt")
        if self._attempt is not None:
            self._attempt.close()
        try:
            self._attempt = Attempt(self._loop, start, self._own, output, self._runner.send)
        except OSError as wrong:  # no descriptor, process or memory is left
            processes.kill_all()  # where it had begun
            self._attempt = None
            tail = f"mingle run: cannot start: {wrong.strerror}\n"
            status = NetworkError.exit_code
            ended = messages.Ended(start.attempt, status, None, formed=False, is_oom=False, tail=tail)
            self._runner.send(messages.ENDED, ended.body())
            self._runner.send(messages.CLEAN, messages.Clean(start.attempt, 0).body())
            output.send_output(messages.DRAINED)

    def _pass_on(self, said: messages.Signal) -> None:
        if self._attempt is not None and said.id not in self._passed_on:
            self._passed_on.add(said.id)
            self._attempt.tree.signal(said.signal)

    def _dump(self, said: stacks.Dump) -> None:
        if self._attempt is not None and self._attempt.number == said.attempt:
            self._attempt.dump(said.within_ms / 1000)

    def _end(self, said: messages.End) -> None:
        if self._attempt is not None and self._attempt.number == said.attempt:
            self._attempt.tree.end(said.grace_ms / 1000)

    def _lost(self, reason: str) -> None:
        """End all without a runner."""
        if self._leaving is None:
            self._leaving = NO_RUNNER
            say(f"the runner is lost: {reason}")
        if self._attempt is not None:
            self._attempt.tree.end(_LOST_GRACE_S)
        self._leave()

    def _leave(self) -> None:
        """Go once nothing is left."""
        if self._leaving is None:
            return
        if self._attempt is None or self._attempt.is_clean:
            self.status = self._leaving
            self._runner.close()
