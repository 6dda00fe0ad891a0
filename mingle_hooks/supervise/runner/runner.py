"""The runner of `mingle run`: it hands what happens to the state machine, and does what that asks for."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from mingle_hooks.errors import PlaceError
from mingle_hooks.program import argv_of
from mingle_hooks.rendezvous.poller import READ
from mingle_hooks.supervise.node.descriptor import Descriptor
from mingle_hooks.supervise.protocol import messages, stacks
from mingle_hooks.supervise.protocol.messages import DRAINED, DUMP, END, SIGNAL, START
from mingle_hooks.supervise.runner import member, progress, report
from mingle_hooks.supervise.runner.attempts import Machine
from mingle_hooks.supervise.runner.finishing import Finish
from mingle_hooks.supervise.runner.hub import Hub
from mingle_hooks.supervise.runner.logs import Logs
from mingle_hooks.supervise.runner.output import Output
from mingle_hooks.supervise.runner.words import (
    Begin,
    CommandEnded,
    Deliver,
    Drop,
    Dump,
    Exit,
    Launch,
    Lost,
    Noticed,
    ReaderGone,
    Show,
    StarterEnded,
    Stop,
    Sweep,
    Swept,
    Tell,
    Time,
)
from mingle_hooks.supervise.starters import local

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mingle_hooks.rendezvous.loop import Loop, Timer
    from mingle_hooks.supervise.runner.launching import Launching
    from mingle_hooks.supervise.runner.request import Request
    from mingle_hooks.supervise.runner.shown import Shown
    from mingle_hooks.supervise.runner.starting import Process
    from mingle_hooks.supervise.runner.words import Event
    from mingle_hooks.supervise.starters.launch import Launch as Started

# Told to all members' files, too.
_NOTED = ("failed", "stopped", "again")


class Runner:
    """One run; `status` is its exit status once it `is_over`."""

    def __init__(self, loop: Loop, request: Request, launching: Launching) -> None:
        self._loop, self._request, self._launching = loop, request, launching
        self.is_over, self.status = False, 0
        self._id, self._processes = launching.run, launching.processes
        self._output = Output(loop, lambda: self._soon(ReaderGone()), self._hold)
        self._logs = Logs(request.log_dir, self._warn) if request.log_dir else None
        places, sockets = request.plan.places, launching.sockets
        self._hub = Hub(loop, sockets, launching.secret, places, request.silence_s, self._take, self._wrote)
        launching.on_said, launching.on_end = self._said, self._starter_ended
        self._machine = Machine(request.plan)
        self._finish = Finish(loop, self._hub, self._output, self._processes, self._is_drained, self._end)
        self._shown: Shown | None = None
        self._timer: Timer | None = None
        self._sweepers: list[Process] = []
        self._begun = [0] * len(places)
        self._drained = [0] * len(places)
        self._does: dict[type, Callable[[Any], None]] = {
            Launch: self._launch,
            Begin: self._begin,
            Stop: self._stop,
            Deliver: self._deliver,
            Dump: self._dump,
            Show: self._show,
            Drop: self._drop,
            Sweep: self._sweep,
            Tell: self._tell,
            Exit: self._exit,
        }

    def begin(self, signals: int) -> None:
        """Hear the signals that come by a pipe, and start the supervisors."""
        self._loop.watch(Descriptor(signals), READ, lambda _events: self._signalled(signals))
        self._act(self._machine.begin(self._loop.clock()))
        from mingle_hooks.supervise.runner.shown import Shown  # while the starters are at work

        self._shown = Shown(self._loop, self._request, self._id, self._machine, self._soon, self._warn)

    @property
    def was_warned(self) -> bool:
        """Whether COMMAND was told that its time is nearly over."""
        return self._machine.was_warned

    @property
    def had_world(self) -> bool:
        """Whether a world has formed, in any attempt."""
        return self._machine.had_world

    def close(self) -> None:
        """Show no more of it."""
        if self._shown is not None:
            self._shown.close(self.status if self.is_over else None)

    # --- What happens.

    def _take(self, event: Event) -> None:
        if isinstance(event, CommandEnded | Lost):
            self._machine.blame.progress = progress.seen(self._request.progress)
        actions = self._machine.take(event, self._loop.clock())
        if self._shown is not None:
            self._shown.took(event)
        self._act(actions)

    def _soon(self, event: Event) -> None:
        """Hand over what comes while something is being done."""
        self._loop.after(0.0, lambda: self._take(event))

    def _act(self, actions: list[Any]) -> None:
        if self._sweepers and self._machine.phase != "sweeping":  # one that is late would meet the next attempt
            for process in self._sweepers:
                process.kill(signal.SIGTERM)
            self._sweepers.clear()
        for action in actions:
            self._does[type(action)](action)
        if not self._machine.roster.awaited():
            self._launching.forget_file()
        if self._timer is not None:
            self._timer.cancel()
        due = self._machine.due
        if due is not None:
            self._timer = self._loop.after(max(due - self._loop.clock(), 0.0), lambda: self._take(Time()))

    def _signalled(self, reading: int) -> None:
        for number in os.read(reading, 4096):
            if number == signal.SIGCHLD:
                self._processes.poll()
            else:
                self._take(Noticed(None, number))

    def _wrote(self, place: int, kind: int, data: bytes) -> None:
        if kind == DRAINED:
            self._drained[place] += 1
            self._output.end(place)
            return
        self._machine.stall.wrote(self._loop.clock())
        self._output.take(place, kind, data)
        if self._logs is not None:
            self._logs.take(place, data)

    def _hold(self, wanted: bool) -> None:  # noqa: FBT001 - a callback
        """Stop reading output, or go on."""
        self._hub.hold(wanted=wanted)
        self._machine.stall.hold(self._loop.clock(), is_held=wanted)
        self._soon(Time())

    def _said(self, data: bytes) -> None:
        """Show what a starter says, as long as it is not about our own end."""
        if not self._machine.is_ending:
            self._output.say(data.decode(errors="replace"))

    # --- What is to be done.

    def _launch(self, action: Launch) -> None:
        try:
            self._launching.start(action.hosts)
        except PlaceError as wrong:
            self._launching.cannot(action.hosts, str(wrong))

    def _starter_ended(self, hosts: tuple[str, ...], status: int, said: str) -> None:
        self._take(StarterEnded(hosts, status, said))

    def _begin(self, action: Begin) -> None:
        request, place = self._request, action.place
        start = member.start(request, action, self._id)
        rank = member.rank(request, action)
        self._begun[place] += 1
        self._output.begin(place, member.label(request, action, rank), rank)
        if self._logs is not None:
            self._logs.begin(place, f"rank{rank}-{request.plan.places[place].host}.log")
        self._hub.send(place, START, start.body())

    def _stop(self, action: Stop) -> None:
        self._hub.send(action.place, END, messages.End(action.attempt, int(action.grace_s * 1000)).body())

    def _deliver(self, action: Deliver) -> None:
        self._hub.send(action.place, SIGNAL, messages.Signal(action.id, action.number).body())

    def _dump(self, action: Dump) -> None:
        self._hub.send(action.place, DUMP, stacks.Dump(action.attempt, int(action.within_s * 1000)).body())

    def _show(self, action: Show) -> None:
        text = report.stacks(self._request.plan.places[action.place].host, action.rank, action.text)
        self._output.say(text)
        if self._logs is not None:
            self._logs.take(action.place, text.encode(errors="backslashreplace"))

    def _drop(self, action: Drop) -> None:
        self._hub.drop(action.place)
        self._drained[action.place] = self._begun[action.place]

    def _sweep(self, action: Sweep) -> None:
        for host in action.hosts:
            launches = self._sweeping(host)
            if not launches:  # nothing can be started there
                self._soon(Swept(host, is_clean=False))
            for launch in launches:
                try:  # with our own environment: no sweep is to find this one
                    self._sweepers.append(self._processes.start(launch, self._swept, os.environ))
                except OSError as wrong:
                    self._warn(f"{launch.argv[0]}: {wrong.strerror}")
                    self._soon(Swept(host, is_clean=False))

    def _sweeping(self, host: str) -> tuple[Started, ...]:
        """Return what sweeps a host; on this one it spares what starts the others."""
        request, program = self._request, (*argv_of("supervise/node/sweep.py"), self._id)
        if host != request.job.own:
            return request.starter.launches(request.job, (host,), program)
        others = [its.pid for its in self._processes.running if its.hosts != (host,)]
        spared = [word for pid in others for word in ("--except", str(pid))]
        return local.launches(request.job, (host,), (*program, *spared))

    def _swept(self, process: Process, status: int) -> None:
        for host in process.hosts:
            self._take(Swept(host, is_clean=status == 0))

    def _tell(self, action: Tell) -> None:
        if self._shown is not None:
            self._shown.told(action.name, action.fields)
        text = report.text(action.name, action.fields)
        if text is not None and not (self._request.is_quiet and action.name not in _NOTED):
            self._output.say(text)
        if self._logs is not None:
            if text is not None and action.name in _NOTED:
                self._logs.note(text)
            self._logs.event(action.name, action.fields)

    def _warn(self, text: str) -> None:
        self._output.say(f"mingle run: {text}\n")

    def _exit(self, action: Exit) -> None:
        self.status = action.status
        if action.at_once:
            self._hub.dismiss(action.status)
            self._end()
        else:
            self._finish.begin(action.status, self._request.silence_s)

    def _is_drained(self) -> bool:
        return all(self._drained[place] >= self._begun[place] for place in self._hub.here)

    def _end(self) -> None:
        self.is_over = True
