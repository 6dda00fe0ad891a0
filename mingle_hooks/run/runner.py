"""The runner: its hub of connected agents, the state machine's actions, and the line of --again."""

from __future__ import annotations

import itertools
import os
import shlex
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from io import FileIO
from typing import TYPE_CHECKING

from mingle_hooks import values
from mingle_hooks.errors import MissingError, NetworkError, PlaceError, UsageError, printable
from mingle_hooks.files import open_to_append, own_program_argv
from mingle_hooks.net.addresses import hostname, interfaces, usable
from mingle_hooks.rendezvous.connection import READ, Loop, Timer
from mingle_hooks.rendezvous.wire import Body, Secret, WireError, parse
from mingle_hooks.run import attempt, machine, messages, processes, starters, status as runs
from mingle_hooks.run.attempt import INFRASTRUCTURE
from mingle_hooks.run.launching import (
    EVENT_S,
    IP_PKTINFO,
    EventCommand,
    Launching,
    Process,
    Sockets,
)
from mingle_hooks.run.machine import Alive, Begin, Event, Isolated, Joined, Lost, Machine, Paused, Quiet, Received
from mingle_hooks.run.messages import DRAINED, JOIN, RUNNER, Join, Leave, Link, RunnerMessage, Silence, Start, Welcome
from mingle_hooks.run.output import Logs, Output
from mingle_hooks.run.starters import Place
from mingle_hooks.run.status import KillListener, RunnerProcess, RunState, RunStatus, StatusWriter, registry_directory

if TYPE_CHECKING:
    from mingle_hooks.run.start import Request

# One member of an attempt: its place in the world, and how to start COMMAND.


def member_facts(request: Request, begin: Begin, run_id: str) -> dict[str, object]:
    """Return the value of MINGLE_RUN: each attempt is a step of its own, so its world never meets an earlier one."""
    host, local = request.plan.places[begin.place]
    node_rank = begin.hosts.index(host)
    found: dict[str, object] = {
        "step": f"run.{run_id}.{begin.attempt}",
        "nodes": len(begin.hosts),
        "node_rank": node_rank,
        "hosts": [*begin.hosts],
        "task_rank": begin.rank,
        "task_count": sum(begin.slots),
        "local_rank": local,
        "local_count": begin.slots[node_rank],
    }
    if request.agreed is not None:  # other hosts may not know these names: members use the scheduler's, if any
        del found["hosts"]
        return found
    return found if request.job.job_id else {**found, "job_id": run_id}


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
        grace_ms=int(request.plan.grace_s * 1000),
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


def member_label(request: Request, begin: Begin) -> str:
    """Return the prefix of each line of a member's output; none if it is the only member."""
    if request.options.no_label or sum(begin.slots) == 1:
        return ""
    host = request.plan.places[begin.place].host
    return f"{begin.rank} {host}: " if request.job.is_per_task else f"{host}: "


class ProgressFile:
    """The file of --progress, looked at by a thread, which hangs where the file system does.

    Its mark differs each time that the file has changed, and is None without a file.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._mark: object = None
        self._thread: threading.Thread | None = None

    def mark(self) -> object:
        """Return its mark; while the file system does not answer, the last one."""
        if self._path is not None and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._look, daemon=True)
            with suppress(RuntimeError):  # no thread is left
                self._thread.start()
                self._thread.join(_STAT_S)
        return self._mark

    def _look(self) -> None:
        try:
            found = os.stat(self._path or "")
            self._mark = found.st_mtime_ns, found.st_size, found.st_ino
        except OSError:
            self._mark = None


# The agents that are connected and alive.

Address = tuple[object, ...]

# Of more than a few agents, each gets its heartbeat in another of so many parts of the interval: a burst of thousands
# may be longer than the kernel's queue, and would always lose the same ones.
_FEW, _PARTS = 64, 10
# struct in_pktinfo is interface, source, destination; struct in6_pktinfo is address, interface.
_V4, _V6 = struct.Struct("@I4s4s"), struct.Struct("@16sI")


class Agent:
    """An agent that has connected: its number, its two connections, its heartbeats, and when it last sent something."""

    def __init__(self, place: int, host: str, number: int, control: Link, now: float) -> None:
        self.place, self.host, self.number, self.control, self.heard_at = place, host, number, control, now
        self.output: Link | None = None
        self.is_quiet = self.is_paused = False
        self.sequence = 0  # of its last heartbeat
        self.peer: tuple[socket.socket, Address, messages.Control] | None = None  # how to answer that


class Heartbeats:
    """Sends heartbeats to all agents that have sent one; `on_heartbeat(agent)` gets each new one of these `agents`.

    The runner sends on its own and not in answer: where packets are lost, fewer answers than heartbeats come through.
    """

    def __init__(
        self,
        loop: Loop,
        sockets: Sockets,
        secret: Secret,
        interval_s: float,
        agents: Mapping[int, Agent],
        on_heartbeat: Callable[[Agent], None],
    ) -> None:
        self._loop, self._secret, self._interval_s = loop, secret, interval_s
        self._agents, self._on_heartbeat = agents, on_heartbeat  # by number
        self._sent = self._part = 0
        for sock in sockets.datagrams:
            loop.watch(sock, READ, lambda _events, sock=sock: self._take(sock))  # type: ignore[misc]
        self._beat()

    def _take(self, sock: socket.socket) -> None:
        for (number, sequence), control, address in messages.heartbeats(sock, self._secret, messages.AGENT):
            agent = self._agents.get(number)
            if agent is not None and sequence > agent.sequence:  # else an old one, or of an agent that was dropped
                agent.sequence = sequence
                agent.peer = (sock, address, _from_same_address(control))
                self._on_heartbeat(agent)

    def _beat(self) -> None:
        parts = _PARTS if len(self._agents) > _FEW else 1
        self._part += 1
        for agent in self._agents.values():
            if agent.peer is not None and (agent.number - self._part) % parts == 0:
                sock, address, control = agent.peer
                self._sent += 1
                heartbeat = messages.pack_heartbeat(self._secret, RUNNER, messages.Heartbeat(agent.number, self._sent))
                with suppress(OSError):  # the next may get through
                    sock.sendmsg([heartbeat], control, 0, address)
        self._loop.after(self._interval_s / parts, self._beat)


def _from_same_address(control: messages.Control) -> messages.Control:
    """Return the control messages by which an answer comes from the address that a heartbeat was sent to."""
    for level, kind, data in control:
        if level == socket.IPPROTO_IP and kind == IP_PKTINFO and len(data) == _V4.size:
            _, local, _ = _V4.unpack(data)
            return [(level, kind, _V4.pack(0, local, bytes(4)))]
        if level == socket.IPPROTO_IPV6 and kind == socket.IPV6_PKTINFO and len(data) == _V6.size:
            return [(level, kind, data)]
    return []


# Silent agents are looked for so often in the longest silence, and at least each second; also at the moment when a
# silence has lasted that long, though not for each of a thousand hosts that a switch has lost.
_LOOKS, _LONGEST_LOOK_S, _SHORTEST_LOOK_S = 6, 1.0, 0.1


class Hub:
    """The connected agents; `on_event(event)` gets their messages, `on_output(place, kind, data)` their output."""

    def __init__(
        self, loop: Loop, sockets: Sockets, secret: Secret, places: Sequence[Place], silence: Silence, own: str
    ) -> None:
        self._loop, self._sockets, self._silence, self._own = loop, sockets, silence, own
        self.on_event: Callable[[Event], None] = lambda _event: None
        self.on_output: Callable[[int, int, bytes], None] = lambda _place, _kind, _data: None
        self._numbers = {place: number for number, place in enumerate(places)}
        self._next_number = itertools.count()  # a late heartbeat of a place's earlier agent has another number
        self._is_held = False
        self.here: dict[int, Agent] = {}
        self._by_number: dict[int, Agent] = {}
        interval_s = messages.heartbeat_interval_s(silence.host_s)
        Heartbeats(loop, sockets, secret, interval_s, self._by_number, self._heard)
        # Until it says who it is, an agent is a stranger: both connections of each that is not here may come at once.
        self._reception = messages.Reception(loop, self._introduced, messages.MOST_STRANGERS + 2 * len(places))
        self._reception.listen(sockets.listeners, secret)
        self._look_s = min(silence.host_s / _LOOKS, _LONGEST_LOOK_S)
        self._looked_at = loop.clock()
        self._look()

    def send(self, place: int, message: RunnerMessage) -> None:
        """Send a message to an agent, if it is here."""
        if place in self.here:
            self.here[place].control.send_record(message)

    def hold(self, *, wanted: bool) -> None:
        """Stop reading output, or go on."""
        self._is_held = wanted
        for agent in self.here.values():
            if agent.output is not None:
                agent.output.listen(wanted=not wanted)

    def drop(self, place: int) -> None:
        """Forget an agent; another may come in its place."""
        agent = self.here.pop(place, None)
        if agent is None:
            return
        del self._by_number[agent.number]
        for link in (agent.control, agent.output):
            if link is not None:
                link.close()
                self._reception.strangers.most += 1

    def dismiss(self, status: int) -> None:
        """Have all agents exit."""
        for place in self.here:
            self.send(place, Leave(status))

    def _introduced(self, link: Link, kind: int, body: Body) -> None:
        """Take in an agent, which holds the key. Raises WireError for one that has no place here."""
        self._reception.admit(link)
        join = parse(Join, body)
        place = self._numbers.get(Place(join.host, join.local))
        if kind != JOIN or place is None:
            raise WireError("no place")
        agent = self.here.get(place)
        if join.is_output and agent is not None and agent.output is None:
            agent.output = link
            link.on_output = partial(self._wrote, agent)
            link.listen(wanted=not self._is_held)
        elif not join.is_output and agent is None:
            agent = Agent(place, join.host, next(self._next_number), link, self._loop.clock())
            self.here[place] = self._by_number[agent.number] = agent
            link.on_message = partial(self._take, agent)
            link.probe_peer(self._silence.probe_s)
            silences_ms = (int(silence_s * 1000) for silence_s in self._silence)
            link.send_record(Welcome(agent.number, self._sockets.port, *silences_ms))
        else:
            raise WireError("a second one")
        self._reception.strangers.most -= 1
        link.on_end = lambda _reason: self._lost(agent, None)
        if join.is_output:
            self.on_event(Joined(place))

    def _wrote(self, agent: Agent, kind: int, data: bytes) -> None:
        self._heard(agent)
        self.on_output(agent.place, kind, data)

    def _take(self, agent: Agent, kind: int, body: Body) -> None:
        self._heard(agent)
        if agent.control.takes_ping(kind):
            return
        if kind not in messages.AGENT_MESSAGES:
            raise WireError("not an agent's message")
        self.on_event(Received(agent.place, parse(messages.AGENT_MESSAGES[kind], body)))

    def _heard(self, agent: Agent) -> None:
        agent.heard_at = self._loop.clock()
        if agent.is_quiet:
            agent.is_quiet = agent.is_paused = False
            self.on_event(Alive(agent.place))

    def _lost(self, agent: Agent, silent_s: float | None) -> None:
        self.drop(agent.place)
        if agent.output is not None:
            self.on_event(Lost(agent.place, silent_s))

    def _silent(self, agent: Agent, silent_s: float) -> None:
        """Give an agent up, or wait longer where its host answers: then it is stopped."""
        if self._silence.is_over(silent_s, agent.control.unacknowledged_s):
            if self._is_isolated():
                self.on_event(Isolated(self._own, silent_s))
            self._lost(agent, silent_s)
        elif not agent.is_paused:
            agent.is_paused = True
            self.on_event(Paused(agent.place, silent_s))

    def _is_isolated(self) -> bool:
        """Return whether this host is cut off: neither agents nor kernels of several other hosts answer."""
        others = [agent for agent in self.here.values() if agent.host != self._own]
        answered_s = self._silence.probe_s + 0.5
        return len({agent.host for agent in others}) > 1 and all(
            agent.is_quiet and agent.control.unacknowledged_s > answered_s for agent in others
        )

    def _look(self) -> None:
        """Look for silent agents; the time for which this process was stopped does not count."""
        now = self._loop.clock()
        late_s = max(now - self._looked_at - 2 * self._look_s, 0.0)
        self._looked_at = now
        if late_s:
            self.on_event(machine.Resumed(late_s))
        next_s = self._look_s
        for place, agent in [*self.here.items()]:
            if self.here.get(place) is not agent:  # dropped by what followed from another's loss
                continue
            agent.heard_at += late_s
            silent_s = now - agent.heard_at
            if silent_s >= self._silence.host_s:
                self._silent(agent, silent_s)
                continue
            next_s = min(next_s, self._silence.host_s - silent_s)
            if silent_s > self._silence.quiet_s / 2:
                agent.control.ping()
            if silent_s > self._silence.quiet_s and not agent.is_quiet:
                agent.is_quiet = True
                self.on_event(Quiet(place))
        self._loop.after(max(next_s, _SHORTEST_LOOK_S), self._look)


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
        self.machine = Machine(request.plan, loop.clock())
        self._state = RunState(self.machine)
        self._writer: StatusWriter | None = None
        self._killers: KillListener | None = None
        self._timer = Timer()
        self._sweepers: list[Process] = []
        self._undrained = [0] * len(places)  # attempts that have begun at each place, and not ended their output

    def begin(self, signals: int) -> None:
        """Read signals from a pipe, and await the agents, which `run_command` has started."""
        self._loop.watch(FileIO(signals, closefd=False), READ, lambda _events: self._signalled(signals))
        first = self.machine.begin()
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
                self._take(machine.Noticed(number))

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
        if not self.machine.roster.count["called"]:
            self._launching.forget_file()
        self._timer.cancel()
        if (due := self.machine.due) != attempt.NEVER:
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
        self._undrained[place] += 1
        self._output.begin(place, member_label(request, action), action.rank)
        if self._logs is not None:
            number = f".{action.attempt}" if action.attempt else ""
            self._logs.begin(place, f"rank{action.rank}-{request.plan.places[place].host}{number}.log")
        self._hub.send(place, member_start(request, action, self._id))

    def _sweep(self, host: str) -> None:
        try:
            for launch in self._sweep_launches(host):  # with our own environment, or a sweep would find itself
                self._sweepers.append(self._processes.start(launch, self._swept, os.environ))
                return
        except OSError as wrong:
            self._warn(f"{wrong.filename or 'a sweep'}: {wrong.strerror}")
        except UsageError as wrong:  # as for GPUs that hosts share unevenly, which agents of tasks need not ask for
            self._warn(str(wrong))
        self._soon(machine.Swept(host, is_clean=False))  # nothing can be started there

    def _sweep_launches(self, host: str) -> tuple[starters.Launch, ...]:
        """Return the processes that sweep a host; where that is this one, by any name, they spare others' starters."""
        request, runner = self._request, processes.named(os.getpid())
        starts = [str(process.pid) for process in self._processes.running if process.hosts == (host,)]
        program = (*own_program_argv("sweep"), self._id, runner, *starts)
        if host != request.job.own:
            return request.starter.launches(request.job, (host,), program)
        return (starters.Launch(program, (host,)),)

    def _swept(self, process: Process, status: int) -> None:
        for host in process.hosts:
            self._take(machine.Swept(host, is_clean=status == 0))

    def _report(self, name: str, fields: Mapping[str, object]) -> None:
        self._state.report(name, fields)
        text, is_noted = attempt.event_text(name, fields), name in _NOTED
        if text is not None and (is_noted or not self._request.settings.quiet):
            self._output.show(text)
        line = self._event_line(name, fields)
        if self._logs is not None:
            if text is not None and is_noted:
                self._logs.note(text)
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
        for place in range(len(self._undrained)):  # of a host that was lost, too
            output.end(place)
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
        if self._logs is not None:
            self._logs.close()
            self._logs = None
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
    import subprocess  # 10 ms, for which no agent waits any more

    processes.forget_signals()  # the run's, which nobody reads any more
    # With close_fds=False it needs no pipe, for which no descriptor may be left; no program inherits ours.
    line = subprocess.Popen(["/bin/sh", "-c", str(request.options.again)], close_fds=False)  # noqa: S603 - the user's
    try:
        return max(line.wait(AGAIN_S), 0) or INFRASTRUCTURE
    except subprocess.TimeoutExpired:
        processes.send_signal([line.pid, *processes.descendants(line.pid)], signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # the kernel holds it
            line.wait(END_S)
        what = f"the --again line to end within {AGAIN_S:g} s"
        raise MissingError(what, "it still running", "`timeout` in that line") from None


# The time limit of the line of --again, in seconds: sbatch waits for a busy controller for minutes.
AGAIN_S = 600.0
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
            runs.make_state_directory(os.path.dirname(self._path))
            with open(open_to_append(self._path, 0o600), "ab") as file:
                file.write(b".")
            return os.path.getsize(self._path) <= MOST_REQUEUES
        except OSError:
            return True

    def reset(self) -> None:
        """Start the count anew."""
        with suppress(OSError):  # none was counted
            os.unlink(self._path or "")
