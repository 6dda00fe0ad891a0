"""The runner: it performs the state machine's actions, and the line of --again."""

from __future__ import annotations

import os
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from io import FileIO

from mingle_hooks import values
from mingle_hooks.errors import MissingError, NetworkError, PlaceError, printable
from mingle_hooks.files import own_program_argv
from mingle_hooks.net.addresses import hostname, interfaces, usable
from mingle_hooks.rendezvous.connection import READ, Loop, Timer
from mingle_hooks.run import attempt, machine, messages, processes, starters, status as runs
from mingle_hooks.run.attempt import INFRASTRUCTURE
from mingle_hooks.run.hub import Hub
from mingle_hooks.run.launching import EVENT_S, IGNORED_BY_PYTHON, EventCommand, Launching, Process
from mingle_hooks.run.machine import Begin, Event, Machine
from mingle_hooks.run.messages import DRAINED, Start
from mingle_hooks.run.output import Logs, Output
from mingle_hooks.run.request import Request
from mingle_hooks.run.status import KillListener, RunnerProcess, RunState, RunStatus, StatusWriter, registry_directory

# One member of an attempt: its place in the world, and how to start COMMAND.


def member_facts(request: Request, begin: Begin, run_id: str) -> dict[str, object]:
    """Return the value of MINGLE_RUN: each attempt is a step of its own, so its world never meets an earlier one."""
    place = request.plan.places[begin.place]
    found: dict[str, object] = {
        "step": f"run.{run_id}.{begin.attempt}",
        "nodes": len(begin.hosts),
        "node_rank": begin.rank,
        "hosts": [*begin.hosts],
        "task_rank": member_rank(request, begin),
        "task_count": sum(begin.slots),
        "local_rank": place.local,
        "local_count": begin.slots[begin.rank],
    }
    if request.agreed is not None:  # other hosts may not know these names: members use the scheduler's, if any
        del found["hosts"]
        return found
    return found if request.job.job_id else {**found, "job_id": run_id}


def member_rank(request: Request, begin: Begin) -> int:
    """Return a member's rank among all members."""
    return sum(begin.slots[: begin.rank]) + request.plan.places[begin.place].local


def member_start(request: Request, begin: Begin, run_id: str) -> Start:
    """Return the message that starts COMMAND."""
    umask = os.umask(0o077)
    os.umask(umask)
    return Start(
        attempt=begin.attempt,
        facts={} if request.is_of_job else member_facts(request, begin, run_id),
        options=request.exec_options,
        command=request.command,
        environ={} if request.key is None else {"MINGLE_KEY": request.key},
        directory=member_directory(),
        umask=umask,
    )


def member_directory() -> str:
    """Return COMMAND's working directory by the caller's path: on another host a link may lead elsewhere."""
    path = os.environ.get("PWD", "")
    try:
        if path.startswith("/") and os.path.samefile(path, "."):
            return path
        return os.getcwd()
    except OSError:  # it has been removed
        return "/"


def member_label(request: Request, begin: Begin, member: int) -> str:
    """Return the prefix of each line of a member's output; none if it is the only member."""
    if request.options.no_label or sum(begin.slots) == 1:
        return ""
    host = request.plan.places[begin.place].host
    return f"{member} {host}: " if request.job.is_per_task else f"{host}: "


def progress_mark(path: str) -> object:
    """Return a value that differs each time that the file of --progress has changed; None without a file."""
    with suppress(OSError):
        found = os.stat(path)
        return found.st_mtime_ns, found.st_size, found.st_ino
    return None


class ProgressFile:
    """The file of --progress, looked at by a thread, which hangs where the file system does."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._mark: object = None
        self._thread: threading.Thread | None = None

    def mark(self) -> object:
        """Return its mark; while the file system does not answer, the last one."""
        if self._path is not None and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._look, args=(self._path,), daemon=True)
            with suppress(RuntimeError):  # no thread is left
                self._thread.start()
                self._thread.join(_STAT_S)
        return self._mark

    def _look(self, path: str) -> None:
        self._mark = progress_mark(path)


# Events that are also written into all members' log files.
_NOTED = ("failed", "stopped", "again")
_LOOK_S = 0.005
# The loop waits so long for the file system of --progress.
_STAT_S = 0.5
# The scheduler is asked for the job's end so long after the start: a squeue beside an srun delays it by 40 ms.
ASK_S = 1.0
# At the end, without any progress, the runner waits so long for output; then (after EVENT_S for all events) for agents;
# then for starters, which may wait for hosts that are lost; then for starters that have got TERM.
DRAIN_S, LEAVE_S, ALONE_S, END_S = 5.0, 5.0, 2.0, 1.0


class Runner:
    """One run; `status` is its exit status once it `is_over`."""

    def __init__(self, loop: Loop, request: Request, launching: Launching) -> None:
        self._loop, self._request, self._launching = loop, request, launching
        self.is_over, self.status = False, 0
        self._id, self._processes = launching.run, launching.processes
        self._output = Output(loop, lambda: self._soon(machine.ReaderGone()), self._hold)
        self._logs = Logs(request.options.log_dir, self._output.files, self._warn) if request.options.log_dir else None
        self._progress = ProgressFile(request.options.progress)
        line = request.options.on_event
        self._events = None if line is None else EventCommand(loop, self._processes, line, self._warn)
        places, sockets = request.plan.places, launching.sockets
        own = request.job.own or hostname()
        self._hub = Hub(loop, sockets, launching.secret, places, request.silence, own)
        self._hub.on_event, self._hub.on_output = self._take, self._wrote
        launching.on_output = self._show_output
        launching.on_end = lambda hosts, _status, output: self._take(machine.StarterEnded(hosts, output))
        self.machine = Machine(request.plan)
        self._state = RunState(self.machine)
        self._writer: StatusWriter | None = None
        self._killers: KillListener | None = None
        self._timer = Timer()
        self._sweepers: list[Process] = []
        self._undrained = [0] * len(places)  # attempts that have begun at each place, and not ended their output

    def begin(self, signals: int) -> None:
        """Read signals from a pipe, and await the agents, which `run_command` has started."""
        self._loop.watch(FileIO(signals, closefd=False), READ, lambda _events: self._signalled(signals))
        first = self.machine.begin(self._loop.clock())
        self._act([action for action in first if not isinstance(action, machine.Launch)])
        # Schedulers give a job's shell its script on stdin.
        if self._request.job.job_id is None and processes.has_input():
            self._warn("COMMAND does not get stdin; to read FILE on each host, run `sh -c 'COMMAND < FILE'`")
        self._announce()
        self._loop.after(ASK_S, self._ask_end)

    def _ask_end(self) -> None:
        """Learn when the scheduler ends the job."""
        job = self._request.job
        if (end := job.end or self._request.starter.asked_end(job)) is not None:
            self.machine.stopping.end_at = self._loop.clock() + end - time.time()

    def _announce(self) -> None:
        """Let `mingle ls`, `show` and `kill` find the run, if there is a home."""
        request, directory = self._request, registry_directory(os.environ)
        if directory is None:
            return
        try:
            self._killers = KillListener(self._loop, self._id, request.keys, self._kill)
        except NetworkError as wrong:
            self._warn(f"`mingle kill` cannot reach this run: {wrong}")
        fixed = RunStatus(
            id=request.id or self._id,
            run=self._id,
            wanted=request.plan.most,
            restarts=request.plan.restarts,
            began=int(time.time()),
            host=hostname(),
            command=printable(shlex.join(request.command), runs.LONGEST_COMMAND),
            process=RunnerProcess.own(),
            scheduler=request.starter.name,
            job=request.job.job_id,
            addresses=_kill_addresses(request) if self._killers is not None else (),
            listeners=() if self._killers is None else self._killers.listeners,
        )
        self._writer = StatusWriter(self._loop, directory, lambda: self._state.status(fixed), self._warn)

    def close(self) -> None:
        """Stop writing, and tell waiting callers that the run has ended."""
        self._output.files.close()
        status = self.status if self.is_over else None
        if self._writer is not None:
            self._writer.close(status)
        if self._killers is not None:
            self._killers.close(status)

    # Events.

    def _take(self, event: Event) -> None:
        has_ended = isinstance(event, machine.Received) and isinstance(event.message, messages.Ended)
        if has_ended or isinstance(event, machine.Lost):
            self.machine.root_cause.progress = self._progress.mark()
        actions = self.machine.take(event, self._loop.clock())
        self._state.take(event)
        if self._writer is not None:
            self._writer.changed()
        self._act(actions)

    def _soon(self, event: Event) -> None:
        """Take an event that comes in the middle of an action."""
        self._loop.after(0.0, lambda: self._take(event))

    def _kill(self, is_now: bool) -> None:  # noqa: FBT001 - a callback
        self._warn("`mingle kill` was called")
        self._soon(machine.Hurry() if is_now else machine.Killed())

    def _signalled(self, reading: int) -> None:
        for number in os.read(reading, 4096):
            if number == signal.SIGCHLD:
                self._processes.poll()
            else:
                self._take(machine.Noticed(None, number))

    def _wrote(self, place: int, kind: int, data: bytes) -> None:
        if kind == DRAINED:
            self._undrained[place] -= 1
            self._output.end(place)
            return
        self.machine.stall.wrote(self._loop.clock())
        self._output.take(place, kind, data)
        if self._logs is not None:
            self._logs.take(place, data)

    def _hold(self, wanted: bool) -> None:  # noqa: FBT001 - a callback
        """Stop reading output, or go on."""
        self._hub.hold(wanted=wanted)
        self.machine.stall.hold(self._loop.clock(), is_held=wanted)
        self._soon(machine.Time())

    def _show_output(self, data: bytes) -> None:
        """Show a starter's output, unless it is about our own end."""
        if not self.machine.is_ending:
            self._output.show(data.decode(errors="replace"))

    # Actions.

    def _act(self, actions: list[machine.Action]) -> None:
        if self._sweepers and self.machine.phase != "sweeping":  # one that is late would meet the next attempt
            for process in self._sweepers:
                process.kill(signal.SIGTERM)
            self._sweepers.clear()
        for action in actions:
            self._do(action)
        if not self.machine.roster.awaited():
            self._launching.forget_file()
        self._timer.cancel()
        due = self.machine.due
        if due is not None:
            self._timer = self._loop.after(max(due - self._loop.clock(), 0.0), lambda: self._take(machine.Time()))

    def _do(self, action: machine.Action) -> None:  # noqa: C901 - a branch for each action
        match action:
            case machine.Launch(hosts):
                self._launch(hosts)
            case Begin():
                self._begin(action)
            case machine.Send(place, message):
                self._hub.send(place, message)
            case machine.Show(place, rank, stacks):
                text = attempt.stacks_text(self._request.plan.places[place].host, rank, stacks)
                self._output.show(text)
                if self._logs is not None:
                    self._logs.take(place, text.encode(errors="backslashreplace"))
            case machine.Drop(place):
                self._hub.drop(place)
                self._undrained[place] = 0
            case machine.Sweep(hosts):
                for host in hosts:
                    self._sweep(host)
            case machine.Report(name, fields):
                self._report(name, fields)
            case machine.Exit(status, at_once):
                self._exit(status, at_once=at_once)

    def _launch(self, hosts: tuple[str, ...]) -> None:
        try:
            self._launching.start(hosts)
        except PlaceError as wrong:
            self._launching.report_failure(hosts, str(wrong))

    def _begin(self, action: Begin) -> None:
        request, place = self._request, action.place
        start = member_start(request, action, self._id)
        rank = member_rank(request, action)
        self._undrained[place] += 1
        self._output.begin(place, member_label(request, action, rank), rank)
        if self._logs is not None:
            number = f".{action.attempt}" if action.attempt else ""
            self._logs.begin(place, f"rank{rank}-{request.plan.places[place].host}{number}.log")
        self._hub.send(place, start)

    def _sweep(self, host: str) -> None:
        launches = self._sweep_launches(host)
        if not launches:  # nothing can be started there
            self._soon(machine.Swept(host, is_clean=False))
        for launch in launches:
            try:  # with our own environment, or a sweep would find itself
                self._sweepers.append(self._processes.start(launch, self._swept, os.environ))
            except OSError as wrong:
                self._warn(f"{launch.argv[0]}: {wrong.strerror}")
                self._soon(machine.Swept(host, is_clean=False))

    def _sweep_launches(self, host: str) -> tuple[starters.Launch, ...]:
        """Return the processes that sweep a host; on this host they spare the starters of the others."""
        request, program = self._request, (*own_program_argv("sweep"), self._id)
        if host != request.job.own:
            return request.starter.launches(request.job, (host,), program)
        others = [process.pid for process in self._processes.running if process.hosts != (host,)]
        spared = [argument for pid in others for argument in ("--except", str(pid))]
        return (starters.Launch((*program, *spared), (host,)),)

    def _swept(self, process: Process, status: int) -> None:
        for host in process.hosts:
            self._take(machine.Swept(host, is_clean=status == 0))

    def _report(self, name: str, fields: Mapping[str, object]) -> None:
        self._state.report(name, fields)
        text = attempt.event_text(name, fields)
        if text is not None and not (self._request.settings.quiet and name not in _NOTED):
            self._output.show(text)
        if self._logs is not None and text is not None and name in _NOTED:
            self._logs.note(text)
        line = self._event_line(name, fields)
        if self._logs is not None:
            self._logs.event(line)
        if self._events is not None:
            self._events.take(line)

    def _event_line(self, name: str, fields: Mapping[str, object]) -> bytes:
        """Return an event as a line of JSON (`mingle schema events`)."""
        event = {
            "schema": attempt.EVENT_SCHEMA,
            "event": name,
            "time": round(time.time(), 3),
            "monotonic": round(time.monotonic(), 3),
            "job": self._request.id,
            "run": self._id,
            "runner": hostname(),
            **fields,
        }
        return f"{values.to_json(event)}\n".encode(errors="backslashreplace")

    def _warn(self, text: str) -> None:
        self._output.show(f"mingle run: {text}\n")

    # The end.

    def _exit(self, status: int, *, at_once: bool) -> None:
        self.status = status
        if at_once:
            self._hub.dismiss(status)
            self.is_over = True
        else:
            self._output.is_last = True
            self._hub.hold(wanted=False)
            self._go_on(self._finish(status))

    def _go_on(self, steps: Iterator[None]) -> None:
        try:
            next(steps)
        except StopIteration:
            self.is_over = True
        else:
            self._loop.after(_LOOK_S, lambda: self._go_on(steps))

    def _finish(self, status: int) -> Iterator[None]:
        """Take the last output, dismiss the agents, end their starters, and let the reader take the rest."""
        output, here, started = self._output, self._hub.here, self._processes

        def is_undrained() -> bool:
            return any(self._undrained[place] > 0 for place in here)

        yield from self._while(is_undrained, lambda: output.taken_bytes + output.waiting_bytes, DRAIN_S)
        self._hub.dismiss(status)
        if (events := self._events) is not None:
            yield from self._while(lambda: events.running, lambda: 0, EVENT_S)
            events.close()
        yield from self._while(lambda: started.running and here, lambda: len(here), LEAVE_S)
        yield from self._while(lambda: started.running and not here, lambda: 0, ALONE_S)
        started.kill(at_once=False)
        yield from self._while(lambda: started.running, lambda: len(started.running), END_S)
        started.kill(at_once=True)
        silence = self._request.silence
        yield from self._while(lambda: output.files.waiting_bytes, lambda: output.taken_bytes, silence.process_s)
        yield from self._while(lambda: output.waiting_bytes, lambda: output.taken_bytes, silence.host_s)
        if output.waiting_bytes:
            what = "written" if output.files.waiting_bytes else "read"
            self._warn(f"{output.give_up()} bytes of output are lost: not {what} in time")

    def _while(self, is_needed: Callable[[], object], progress: Callable[[], int], longest_s: float) -> Iterator[None]:
        """Yield as long as it is needed, and there was progress within so many seconds."""
        since, seen = self._loop.clock(), progress()
        while is_needed():
            now, latest = self._loop.clock(), progress()
            if latest != seen:
                since, seen = now, latest
            if now - since > longest_s:
                return
            yield


def _kill_addresses(request: Request) -> tuple[str, ...]:
    """Return where `mingle kill` on other hosts reaches the run."""
    try:
        return tuple(one.host for one in usable(interfaces(), prefer=request.settings.iface)[: runs.MOST_ADDRESSES])
    except NetworkError:  # a machine without a network can still reach itself
        return ()


def run_again(request: Request, runner: Runner) -> int:
    """Run the line that queues the job again, if that makes sense; its own status, unless 0, is the job's.

    Raises MissingError after too many runs in a row without a world.
    """
    requeues = Requeues(request, os.environ)
    if runner.machine.had_world:
        requeues.reset()
    if runner.status != INFRASTRUCTURE and not runner.machine.stopping.is_cut_short:
        return runner.status
    if not runner.machine.had_world and not requeues.may_go_on():
        requeues.reset()  # a person who queues it from now on has seen why it ended
        raise MissingError(
            "a world", f"none, {MOST_REQUEUES + 1} times in a row: the job is not requeued", "what mingle printed above"
        )
    argv = ["/bin/sh", "-c", str(request.options.again)]
    pid = os.posix_spawn(argv[0], argv, os.environ, setsigdef=IGNORED_BY_PYTHON)  # unlike `subprocess`, without a pipe
    return max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0) or INFRASTRUCTURE


# How often in a row a job without a world is requeued: a permanent fault, such as a firewall, would repeat forever.
MOST_REQUEUES = 3
# Schedulers whose job, queued again, is a new one with another id.
_NEW_JOBS = ("pbs", "torque")


class Requeues:
    """Counts the runs of one job that had no world: a file in the user's state directory has a byte for each.

    Hosts that do not share that directory count alone.
    """

    def __init__(self, request: Request, environ: Mapping[str, str]) -> None:
        job = "" if request.starter.name in _NEW_JOBS else request.id or ""
        what = "\0".join((job, member_directory(), *request.command))
        name = sha256(what.encode(errors="surrogateescape")).hexdigest()
        directory = registry_directory(environ)
        self._path = None if directory is None else f"{os.path.dirname(directory)}/again/{name[:32]}"

    def may_go_on(self) -> bool:
        """Count one more; tell whether the job may be queued again, as it may if nothing can be counted."""
        if self._path is None:
            return True
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            with open(self._path, "ab") as file:
                file.write(b".")
            return os.path.getsize(self._path) <= MOST_REQUEUES
        except OSError:
            return True

    def reset(self) -> None:
        """Start the count anew."""
        with suppress(OSError):  # none was counted
            os.unlink(self._path or "")
