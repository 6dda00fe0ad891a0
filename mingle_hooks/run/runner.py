"""The runner of `mingle run`: it hands what happens to the state machine, and does what that asks for."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from mingle_hooks.errors import MissingError, PlaceError
from mingle_hooks.files import own_program_argv
from mingle_hooks.job import check_runner
from mingle_hooks.rendezvous.connection import READ, Loop, Timer
from mingle_hooks.run import attempt, hub, messages, starters
from mingle_hooks.run.attempt import INFRASTRUCTURE, SIGNALLED
from mingle_hooks.run.events import (
    Begin,
    CommandEnded,
    Deliver,
    Drop,
    Dump,
    Event,
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
from mingle_hooks.run.hub import Hub, Launching, Process, Processes
from mingle_hooks.run.machine import Machine
from mingle_hooks.run.messages import DRAINED, DUMP, END, SIGNAL, START, Start
from mingle_hooks.run.output import Logs, Output
from mingle_hooks.run.planning import Request
from mingle_hooks.run.processes import Descriptor
from mingle_hooks.run.registry import registry_directory
from mingle_hooks.run.status import Shown

# The end of a run: all output is in, the supervisors leave, what started them ends, readers take the rest.

_LOOK_S = 0.005
# Without any progress, output is waited for so long; then those that are here; then what started them, which may wait
# for hosts that are lost; then that, once it was told to end.
DRAIN_S, LEAVE_S, ALONE_S, END_S = 5.0, 5.0, 2.0, 1.0


class Finish:
    """Goes from step to step, each as long as it makes progress; then `on_over()` comes."""

    def __init__(
        self,
        loop: Loop,
        hub: Hub,
        output: Output,
        processes: Processes,
        is_drained: Callable[[], bool],
        on_over: Callable[[], None],
    ) -> None:
        self._loop, self._hub, self._output, self._processes = loop, hub, output, processes
        self._is_drained, self._on_over = is_drained, on_over
        self._status, self._reader_s = 0, 0.0
        self._since, self._seen = 0.0, -1

    def begin(self, status: int, reader_s: float) -> None:
        """Begin with the output; a reader that takes nothing for `reader_s` is given up."""
        self._status, self._reader_s = status, reader_s
        self._output.is_last = True
        self._hub.hold(wanted=False)
        self._enter(self._draining)

    def _enter(self, step: Callable[[], None]) -> None:
        self._since = self._loop.clock()
        step()

    def _later(self, step: Callable[[], None]) -> None:
        self._loop.after(_LOOK_S, step)

    def _is_over(self, progress: int, longest_s: float) -> bool:
        """Tell whether nothing has changed for too long."""
        now = self._loop.clock()
        if progress != self._seen:
            self._seen, self._since = progress, now
        return now - self._since > longest_s

    def _draining(self) -> None:
        came = self._output.taken_bytes + self._output.waiting_bytes
        if self._is_drained() or self._is_over(came, DRAIN_S):
            self._hub.dismiss(self._status)
            self._enter(self._leaving)
        else:
            self._later(self._draining)

    def _leaving(self) -> None:
        here = len(self._hub.here)
        if self._processes.running and not self._is_over(here, LEAVE_S if here else ALONE_S):
            self._later(self._leaving)
            return
        self._processes.kill(at_once=False)
        self._enter(self._ending)

    def _ending(self) -> None:
        if self._processes.running and not self._is_over(len(self._processes.running), END_S):
            self._later(self._ending)
            return
        self._processes.kill(at_once=True)
        self._enter(self._reading)

    def _reading(self) -> None:
        if not self._output.waiting_bytes:
            self._on_over()
        elif self._is_over(self._output.taken_bytes, self._reader_s):
            left = self._output.give_up()
            self._output.say(f"mingle run: {left} bytes of output are lost: not read for {self._reader_s:.0f} s\n")
            self._output.give_up()
            self._on_over()
        else:
            self._later(self._reading)


# What one member of an attempt is told: its place in the world, and how to start COMMAND.


def member_facts(request: Request, begin: Begin, run_id: str) -> dict[str, object]:
    """Return what MINGLE_RUN says: each attempt is a step of its own, so that its world meets no earlier one's."""
    place = request.plan.places[begin.place]
    local_count = begin.slots[begin.rank]
    found: dict[str, object] = {
        "step": f"run.{run_id}.{begin.attempt}",
        "nodes": len(begin.hosts),
        "node_rank": begin.rank,
        "hosts": [*begin.hosts],
        "task_rank": member_rank(request, begin),
        "task_count": sum(begin.slots),
        "local_rank": place.local,
        "local_count": local_count,
    }
    if request.agreed is not None:  # their names may be no names to others: the scheduler's hosts are asked, if any
        del found["hosts"]
        return found
    return found if request.job.job_id else {**found, "job_id": run_id}


def member_rank(request: Request, begin: Begin) -> int:
    """Return a member's rank among all members."""
    return sum(begin.slots[: begin.rank]) + request.plan.places[begin.place].local


def member_start(request: Request, begin: Begin, run_id: str) -> Start:
    """Return what a supervisor is sent."""
    umask = os.umask(0o077)
    os.umask(umask)
    return Start(
        attempt=begin.attempt,
        facts={} if request.is_of_job else member_facts(request, begin, run_id),
        options=request.options,
        command=request.command,
        environ={} if request.key is None else {"MINGLE_KEY": request.key},
        directory=member_directory(),
        umask=umask,
    )


def member_directory() -> str:
    """Return where COMMAND is to run: the caller's way there, as on another host a link may lead elsewhere."""
    said = os.environ.get("PWD", "")
    try:
        if said.startswith("/") and os.path.samefile(said, "."):
            return said
        return os.getcwd()
    except OSError:  # it has been removed
        return "/"


def member_label(request: Request, begin: Begin, member: int) -> str:
    """Return what stands before each line of a member's; nothing where it is the only one."""
    if not request.is_labelled or sum(begin.slots) == 1:
        return ""
    host = request.plan.places[begin.place].host
    return f"{member} {host}: " if request.is_per_task else f"{host}: "


# --progress FILE: whether the program has got further.


def progress_mark(path: str | None) -> object:
    """Return what is another thing each time that the file has changed; None where there is none."""
    try:
        its = os.stat(path or "")
    except OSError:
        return None
    return its.st_mtime_ns, its.st_size, its.st_ino


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
            self._machine.blame.progress = progress_mark(self._request.progress)
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
        start = member_start(request, action, self._id)
        rank = member_rank(request, action)
        self._begun[place] += 1
        self._output.begin(place, member_label(request, action, rank), rank)
        if self._logs is not None:
            self._logs.begin(place, f"rank{rank}-{request.plan.places[place].host}.log")
        self._hub.send(place, START, start)

    def _stop(self, action: Stop) -> None:
        self._hub.send(action.place, END, messages.End(action.attempt, int(action.grace_s * 1000)))

    def _deliver(self, action: Deliver) -> None:
        self._hub.send(action.place, SIGNAL, messages.Signal(action.id, action.number))

    def _dump(self, action: Dump) -> None:
        self._hub.send(action.place, DUMP, messages.Dump(action.attempt, int(action.within_s * 1000)))

    def _show(self, action: Show) -> None:
        text = attempt.stacks_text(self._request.plan.places[action.place].host, action.rank, action.text)
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

    def _sweeping(self, host: str) -> tuple[starters.Launch, ...]:
        """Return what sweeps a host; on this one it spares what starts the others."""
        request, program = self._request, (*own_program_argv("sweep"), self._id)
        if host != request.job.own:
            return request.starter.launches(request.job, (host,), program)
        others = [its.pid for its in self._processes.running if its.hosts != (host,)]
        spared = [word for pid in others for word in ("--except", str(pid))]
        return (starters.Launch((*program, *spared), (host,)),)

    def _swept(self, process: Process, status: int) -> None:
        for host in process.hosts:
            self._take(Swept(host, is_clean=status == 0))

    def _tell(self, action: Tell) -> None:
        if self._shown is not None:
            self._shown.told(action.name, action.fields)
        text = attempt.event_text(action.name, action.fields)
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


# One `mingle run` from its beginning to its exit status, and what queues it again.


def run_command(request: Request) -> int:
    """Return the exit status of a run.

    Raises what opening ports, files and directories raises, PlaceError without an output or a working directory,
    UsageError, and MissingError where --again has had enough.
    """
    check_runner()
    with Loop() as loop:
        launching = Launching(
            loop,
            request.starter,
            request.job,
            "agent",
            iface=request.iface,
            port_range=request.port_range,
            agreed=request.agreed,
        )
        try:
            heard = hub.listen_for_signals()
            launching.start_ahead(request.plan.hosts)
            runner = _ran(loop, request, launching, heard)
        finally:
            launching.close()
    return _again(request, runner) if request.again else runner.status


def _ran(loop: Loop, request: Request, launching: Launching, heard: int) -> Runner:
    """Return a runner whose run is over."""
    runner = Runner(loop, request, launching)
    try:
        runner.begin(heard)
        loop.run(lambda: runner.is_over)
    finally:
        runner.close()
    return runner


def _again(request: Request, runner: Runner) -> int:
    """Run the line that queues the job again, where that makes sense; its own status, if it has one, is the job's.

    Raises MissingError where it has been queued again too often without a world.
    """
    fruitless = Fruitless(request, os.environ)
    if runner.had_world:
        fruitless.forget()
    is_cut_short = runner.was_warned and runner.status != SIGNALLED + signal.SIGINT  # and not stopped by a person
    if runner.status != INFRASTRUCTURE and not is_cut_short:
        return runner.status
    if not runner.had_world and not fruitless.may_go_on():
        fruitless.forget()  # whoever queues it now has seen why it ended
        raise MissingError(
            "a world", f"none, {MOST + 1} times in a row: the job is not requeued", "what mingle printed above"
        )
    import subprocess

    status = subprocess.run(["/bin/sh", "-c", str(request.again)], check=False).returncode  # noqa: S603 - the user's own
    return max(status, 0) or INFRASTRUCTURE


# How often in a row a job was queued again without a world: what lasts, such as a firewall, would queue it for ever.
#
# A file for each job in the user's state directory has an octet for each time. Hosts that do not share it count alone.

MOST = 3
# What queues a new job, of another id, in place of the same one.
_NEW_JOBS = ("pbs", "torque")


class Fruitless:
    """The runs of one job that had no world."""

    def __init__(self, request: Request, environ: Mapping[str, str]) -> None:
        job = "" if request.starter.name in _NEW_JOBS else request.id or ""
        name = sha256(
            "\0".join((job, member_directory(), *request.command)).encode(errors="surrogateescape")
        ).hexdigest()
        runs = registry_directory(environ)
        self._path = None if runs is None else f"{os.path.dirname(runs)}/again/{name[:32]}"

    def may_go_on(self) -> bool:
        """Count one more; tell whether the job may be queued again, which it may where nothing can be counted."""
        if self._path is None:
            return True
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            with open(self._path, "ab") as file:
                file.write(b".")
            return os.path.getsize(self._path) <= MOST
        except OSError:
            return True

    def forget(self) -> None:
        """Begin to count anew."""
        try:
            os.unlink(self._path or "")
        except OSError:  # none was counted
            pass
