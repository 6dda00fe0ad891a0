"""The runner: what a member of an attempt gets, which agents are alive, and how often a job is queued again."""

import math
import os
import resource
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cluster.waiting import until
from support.running import open_files

from mingle_hooks.errors import MissingError, UsageError
from mingle_hooks.files import own_program_argv
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.wire import Secret
from mingle_hooks.run import agent as agents, messages, output, processes, runner, starters
from mingle_hooks.run.attempt import Plan
from mingle_hooks.run.launching import IP_PKTINFO, Launching, Sockets
from mingle_hooks.run.machine import Alive, Begin, Event, Isolated, Joined, Lost, Paused, Quiet, Received, Resumed
from mingle_hooks.run.messages import AGENT, WELCOME, Dump, End, Join, Leave, Link, Signal, Silence, Stacks, Start
from mingle_hooks.run.runner import Hub, Requeues, Runner
from mingle_hooks.run.start import Options, Request
from mingle_hooks.run.starters import Place, Starter
from mingle_hooks.schedulers.detect import placed_by_run as placed
from mingle_hooks.schedulers.facts import JobFacts
from mingle_hooks.settings import load
from mingle_hooks.values import to_json as dumps

KEY = b"0123456789abcdef" * 4


def request(*, slots: int = 1, job_id: str | None = None) -> Request:
    """Return a run on hosts a, b and c."""
    hosts, each = ("a", "b", "c"), (slots,) * 3
    job = starters.Allocation(hosts, each, job_id=job_id, is_per_task=slots > 1)
    starter = next(row for row in starters.TABLE if row.name == "ssh")
    plan = Plan(hosts, each, least=2, most=3)
    return Request(plan, starter, job, ("true",), (), load({}, {}))


class Agents:
    """Stands in for the hub: `sent` has what the agents that are here have got, by host."""

    def __init__(self) -> None:
        self.here: set[int] = set()
        self.sent: list[tuple[str, object]] = []
        self.hold = dict
        self.drop = self.here.discard

    def send(self, place: int, message: object) -> None:
        if place in self.here:
            self.sent.append(("ab"[place], message))

    def dismiss(self, status: int) -> None:
        for place in self.here:
            self.send(place, Leave(status))


class Scene:
    """A runner with agents on hosts a and b and a clock, all of the test's own, which starts no programs on hosts."""

    def __init__(self, run: Request, reading: int, sweep: str | UsageError) -> None:
        self.now, self._read, self._sweep = 100.0, reading, sweep
        self.launched: list[tuple[str, tuple[str, ...]]] = []
        self.loop = Loop(clock=lambda: self.now)
        starter = Starter("local", "", self._launches, 30.0, environment="own")
        self.launching = Launching(self.loop, starter, run.job, "agent", run.settings, None)
        self.launching.start(run.plan.hosts)  # as run_command does
        self.runner = Runner(self.loop, run._replace(starter=starter), self.launching)
        self.agents = Agents()
        self.runner._hub = cast("Any", self.agents)
        self._signals = os.pipe()
        self.runner.begin(self._signals[0])

    def _launches(self, _job: object, hosts: tuple[str, ...], program: tuple[str, ...]) -> tuple[starters.Launch, ...]:
        self.launched.append((hosts[0], program))
        if "sweep" not in program or not self._sweep:
            return ()
        if isinstance(self._sweep, UsageError):
            raise self._sweep
        return (starters.Launch((*self._sweep.split(),), hosts),)

    def join(self) -> None:
        """Have both agents connect."""
        for place in (0, 1):
            self.agents.here.add(place)
            self.runner._take(Joined(place))

    def send(self, host: str, *sent: messages.AgentMessage | bytes) -> None:
        """Have an agent send messages and output, of which b"" is the end."""
        place = "ab".index(host)
        for message in sent:
            if isinstance(message, bytes):
                self.runner._wrote(place, messages.OUT if message else messages.DRAINED, message)
            else:
                self.runner._take(Received(place, message))

    def began(self, attempt: int = 0) -> None:
        """Have the world form."""
        for host in "ab":
            self.send(host, messages.Formed(attempt, 2, "192.0.2.1", 4711))

    def ended(self, hosts: str, status: int = 0, attempt: int = 0, tail: str = "", *, drains: bool = True) -> None:
        """Have COMMAND end on hosts, and leave nothing; its output ends then."""
        for host in hosts:
            end = messages.Ended(attempt, status, None, formed=True, is_oom=False, tail=tail)
            self.send(host, end, messages.Clean(attempt, 0), *([b""] if drains else []))

    def signal(self, number: int) -> None:
        """Send the runner a signal."""
        os.write(self._signals[1], bytes([number]))
        self.loop.turn(0)

    def passes(self, seconds: float) -> None:
        """Let time go by, in tenths of a second."""
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.loop.turn(0)

    def until(self, holds: Callable[[], object]) -> None:
        """Serve processes until something holds; the clock stands."""
        until(lambda: self.loop.turn(0.01) or self.signal(signal.SIGCHLD) or holds(), self.agents.sent, 20)

    def of(self, kind: type) -> list[tuple[str, Any]]:
        """Return the messages of a kind that the agents have got, by host."""
        return [(host, message) for host, message in self.agents.sent if isinstance(message, kind)]

    def end(self, seconds: float = 1.0) -> tuple[int, list[int]] | None:
        """Let so much time go by; return the run's status and those that the agents have got, if the run is over."""
        self.passes(seconds)
        return (self.runner.status, [leave.status for _, leave in self.of(Leave)]) if self.runner.is_over else None

    def written(self) -> list[str]:
        """Return the lines that the runner has written on both of its streams since the last call."""
        with suppress(BlockingIOError):
            return os.read(self._read, 1 << 20).decode().splitlines()
        return []

    def close(self) -> None:
        """End all."""
        self.runner.close()
        self.launching.close()
        for process in self.launching.processes.running:
            process.wait()
        self.launching.processes.poll()
        self.loop.poller.close()
        for end in self._signals:
            os.close(end)


@pytest.fixture
def scenes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    """Make one run whose agents are here and whose world has formed: `scenes(restarts=1)`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    for name in ("STDOUT", "STDERR"):
        monkeypatch.setattr(output, name, writing)
    with ExitStack() as stack:
        for end in (reading, writing):
            stack.callback(os.close, end)

        def make(options: Options | None = None, sweep: str | UsageError = "", **plan: Any) -> Scene:
            job = starters.Allocation(("a", "b"), (1, 1))
            its = Plan(**{"hosts": job.hosts, "slots": job.slots, "least": 2, "most": 2, "grace_s": 28.0, **plan})
            run = Request(its, starters.TABLE[0], job, ("true",), ("--quiet",), load({}, {}))
            run = run._replace(options=options or Options(), key="ab" * 32, id="4711", keys=(KEY,))
            scene = Scene(run, reading, sweep)
            stack.callback(scene.close)
            scene.join()
            scene.began()
            return scene

        yield make


def test_a_member_gets_the_facts_of_a_job() -> None:
    of_host = runner.member_facts(request(), Begin(2, 0, 1, ("a", "c"), (1, 1)), "5ec4e7")
    facts = placed(JobFacts(scheduler="none"), {"MINGLE_RUN": dumps(of_host)})
    assert (facts.job_id, facts.node_rank, facts.hosts, facts.nodes) == ("5ec4e7", 1, ("a", "c"), 2)
    of_task = runner.member_facts(request(slots=2, job_id="7"), Begin(5, 1, 3, ("a", "c"), (2, 2)), "5ec4e7")
    assert ("job_id" in of_task, of_host["step"], of_task["step"]) == (False, "run.5ec4e7.0", "run.5ec4e7.1")
    assert [of_task[name] for name in ("task_rank", "task_count", "local_rank", "local_count")] == [3, 4, 1, 2]


def test_a_label_has_host_and_task_and_one_member_has_none() -> None:
    assert runner.member_label(request(), Begin(2, 0, 1, ("a", "c"), (1, 1))) == "c: "
    assert runner.member_label(request(slots=2), Begin(5, 0, 3, ("a", "c"), (2, 2))) == "3 c: "
    assert runner.member_label(request(), Begin(0, 0, 0, ("a",), (1,))) == ""
    unlabelled = request()._replace(options=Options(no_label=True))
    assert runner.member_label(unlabelled, Begin(2, 0, 1, ("a", "c"), (1, 1))) == ""


def test_the_directory_is_the_callers_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is a link, which may lead elsewhere on another host."""
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    for path, expected in ((f"{tmp_path}/link",) * 2, ("/", str(tmp_path)), ("here", str(tmp_path))):
        monkeypatch.setenv("PWD", path)
        assert runner.member_directory() == expected


@pytest.mark.parametrize(("scheduler", "may"), [("pbs", False), ("torque", False), ("slurm", True)])
def test_a_new_job_in_place_of_the_same_one_counts_as_that(tmp_path: Path, scheduler: str, *, may: bool) -> None:
    """PBS lets no user queue a job again: the script submits itself."""
    starter = next(row for row in starters.TABLE if row.name == scheduler)
    jobs = (request()._replace(starter=starter, id=str(number)) for number in range(4))
    assert [Requeues(job, {"XDG_STATE_HOME": str(tmp_path)}).may_go_on() for job in jobs] == [True] * 3 + [may]


@pytest.mark.parametrize("plant", ["link", "fifo"])
def test_what_another_put_in_place_of_the_count_is_neither_waited_for_nor_changed(tmp_path: Path, plant: str) -> None:
    """The job may be queued again, as nothing can be counted; the directories are private in any case."""
    counts, before = Requeues(request(), {"XDG_STATE_HOME": str(tmp_path)}), os.umask(0o002)
    try:
        assert counts.may_go_on()
    finally:
        os.umask(before)
    (place,) = (tmp_path / "mingle" / "again").iterdir()
    assert [path.stat().st_mode & 0o777 for path in (*place.parents[:2], place)] == [0o700, 0o700, 0o600]
    place.unlink()
    (tmp_path / "other").touch()
    place.symlink_to(tmp_path / "other") if plant == "link" else os.mkfifo(place)
    assert counts.may_go_on()
    assert (tmp_path / "other").read_bytes() == b""


OF_JOB = request()


def run_again(line: str, status: int = 75, *, had_world: bool = True, is_cut_short: bool = False) -> int:
    """Run the line of --again behind a run that has ended so; return the status."""
    machine = SimpleNamespace(had_world=had_world, stopping=SimpleNamespace(is_cut_short=is_cut_short))
    ended: Any = SimpleNamespace(status=status, machine=machine)
    return runner.run_again(OF_JOB._replace(options=Options(again=line)), ended)


def test_the_line_of_again_runs_where_trying_again_makes_sense(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its status is the run's, unless it ends well; two runs without a world in a row are enough."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for status, had_world, is_cut_short, counted, line, expected in (
        (0, True, False, 0, "echo again", (0, "")),
        (7, True, False, 0, "echo again", (7, "")),
        (75, True, False, 0, "echo again", (75, "again\n")),
        (75, True, False, 0, "exit 99", (99, "")),  # Grid Engine queues again what exits with 99
        (0, True, True, 0, "echo again", (75, "again\n")),
        (75, False, False, 2, "echo again", (75, "again\n")),
        (75, True, False, 3, "echo again", (75, "again\n")),
        (75, False, False, 3, "echo again", None),
    ):
        requeues = Requeues(request(), os.environ)
        requeues.reset()
        assert [requeues.may_go_on() for _ in range(counted)] == [True] * counted
        with pytest.raises(MissingError, match="4 times in a row") if expected is None else nullcontext():
            ended = run_again(line, status, had_world=had_world, is_cut_short=is_cut_short)
            assert (ended, capfd.readouterr().out) == expected
        assert requeues.may_go_on() is (counted != 2)  # else it counts anew


def test_the_line_of_again_runs_with_more_open_files_than_the_user_may_have() -> None:
    """Files of --log-dir may still be open."""
    own = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, own)
        for _ in range(80):
            stack.enter_context(open(os.devnull, "rb"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, own[1]))
        assert run_again("exit 99") == 99


def test_a_line_of_again_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a time limit, and meanwhile signals have their usual effect again."""
    monkeypatch.setattr(runner, "AGAIN_S", 0.3)
    before = signal.getsignal(signal.SIGTERM)
    os.close(processes.signal_pipe([signal.SIGTERM]))
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)  # noqa: FBT003 - it is positional
    try:
        with pytest.raises(MissingError, match=r"the --again line to end within 0\.3 s; saw it still running"):
            run_again("sleep 300 & wait")
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
        os.close(writing)
    with open(reading, "rb") as held:
        assert held.read() == b""  # the shell and its child have ended


def test_agents_get_the_attempt_and_all_ends_well(scenes: Callable[..., Scene]) -> None:
    scene = scenes()
    assert [(host, program[-1]) for host, program in scene.launched] == [("a", "0"), ("b", "0")]
    (_, first), (host, start) = scene.of(Start)
    assert (host, first.facts["node_rank"], start.facts["node_rank"]) == ("b", 0, 1)
    assert (start.attempt, start.facts["hosts"], start.options) == (0, ["a", "b"], ("--quiet",))
    assert start.command == ("true",)
    assert (start.environ, start.directory) == ({"MINGLE_KEY": "ab" * 32}, runner.member_directory())
    assert start.grace_ms == 28_000
    assert scene.written() == ["mingle run: a,b are one world, rank 0 at 192.0.2.1 port 4711"]
    scene.send("b", b"one\ntw")
    scene.send("a", b"other\n")
    assert scene.written() == ["b: one", "a: other"]
    scene.ended("a")
    assert scene.end() is None
    scene.ended("b")
    assert scene.end() == (0, [0, 0])
    assert scene.written() == ["b: tw"]


def test_a_new_attempt_has_all_hosts_again(scenes: Callable[..., Scene]) -> None:
    """The end of its output is awaited as that of the first was."""
    scene = scenes(restarts=1)
    scene.ended("a", 7)
    scene.ended("b")
    assert scene.written()[-1] == "mingle run: restarts: attempt 1"
    assert [(host, start.attempt) for host, start in scene.of(Start)[2:]] == [("a", 1), ("b", 1)]
    scene.began(attempt=1)
    scene.ended("ab", attempt=1, drains=False)
    assert scene.end() is None
    scene.send("a", b"")
    scene.send("b", b"")
    assert scene.end() == (0, [0, 0])


UNREACHED = "mingle run: b cannot be reached: processes there end by themselves"
UNEVEN = UsageError("as many GPUs on each host", "--gpus=7", "--gpus-per-node")


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ("true", []),
        ("false", [UNREACHED]),
        ("", [UNREACHED]),
        ("no-such-program", ["mingle run: no-such-program: No such file or directory", UNREACHED]),
        (UNEVEN, [f"mingle run: {UNEVEN}", UNREACHED]),
    ],
)
def test_a_host_that_is_lost_is_swept(scenes: Callable[..., Scene], sweep: str | UsageError, said: list[str]) -> None:
    """Also where the starter refuses: Slurm's agents of tasks start where GPUs are uneven, and a sweep does not."""
    scene = scenes(sweep=sweep)
    scene.send("b", b"last words")
    scene.runner._take(Lost(1, None))
    scene.written()
    scene.ended("a")
    sweep_argv = (*own_program_argv("sweep"), scene.launching.run, processes.named(os.getpid()))
    assert scene.launched[2:] == [("b", sweep_argv)]
    scene.until(lambda: scene.runner.machine.phase == "over")
    assert scene.written() == [*said, "b: last words"]
    assert scene.end() == (75, [75])


def test_a_sweep_that_hangs_is_ended_before_the_next_attempt(scenes: Callable[..., Scene]) -> None:
    scene = scenes(sweep="sleep 1000", restarts=1)
    scene.runner._take(Lost(1, None))
    scene.ended("a")
    (sweep,) = scene.launching.processes.running
    scene.passes(15.0)
    scene.until(lambda: not scene.launching.processes.running)
    assert (sweep.wait(), scene.runner.machine.phase) == (143, "gathering")
    assert UNREACHED in scene.written()


@pytest.mark.parametrize("own", ["b", None])
def test_a_sweep_knows_the_runner_and_which_of_its_starters_are_the_hosts(
    scenes: Callable[..., Scene], own: str | None
) -> None:
    """Also where this host has another name in --hosts, or nobody knows it, as in Flux."""
    scene = scenes()
    job, asked = scene.runner._request.job._replace(own=own), list[object]()
    starter = Starter("local", "", lambda *call: (asked.append(call), ())[1], 30.0)
    scene.runner._request = scene.runner._request._replace(job=job, starter=starter)
    started = [scene.launching.processes.start(starters.Launch(("sleep", "60"), (host,)), print) for host in "ab"]
    known = (scene.launching.run, processes.named(os.getpid()), str(started[1].pid))
    program = (*own_program_argv("sweep"), *known)
    launches = scene.runner._sweep_launches("b")
    assert (launches, asked) == (((starters.Launch(program, ("b",)),), []) if own else ((), [(job, ("b",), program)]))


@pytest.mark.parametrize(
    ("ends", "sent", "status"),
    [
        ((signal.SIGTERM,), [Signal(1, signal.SIGTERM)], 143),
        ((signal.SIGINT,), [Signal(1, signal.SIGINT)], 130),
        ((signal.SIGINT,) * 2, [Signal(1, signal.SIGINT), End(0, 0)], 130),
        ((signal.SIGINT,) * 3, [Signal(1, signal.SIGINT), End(0, 0), Leave(130)], 130),
        ((signal.SIGUSR1,), [Signal(1, signal.SIGUSR1)], 0),
        (("kill",), [Signal(1, signal.SIGTERM)], 143),
        (("kill --now",), [End(0, 0)], 130),
    ],
)
def test_what_stops_a_run_reaches_all_agents_once(
    scenes: Callable[..., Scene], ends: tuple[int | str, ...], sent: list[object], status: int
) -> None:
    scene = scenes()
    for end in ends:
        if isinstance(end, int):
            scene.signal(end)
        else:
            scene.runner._kill(end == "kill --now")
        scene.passes(0.5)
    assert [message for host, message in scene.agents.sent if host == "b"][1:] == sent
    assert ("mingle run: `mingle kill` was called" in scene.written()) == ("kill" in str(ends))
    scene.ended("ab")
    assert scene.end() == (status, [status, status])


@pytest.mark.parametrize(("after_s", "status"), [(0.5, 143), (1.5, 75)])
def test_the_scheduler_tells_the_jobs_end_a_second_after_the_start(
    scenes: Callable[..., Scene], after_s: float, status: int
) -> None:
    scene = scenes()
    request = scene.runner._request
    over = request.starter._replace(asked_end=lambda _: int(time.time()))
    scene.runner._request = request._replace(starter=over)
    scene.passes(after_s)
    scene.signal(signal.SIGTERM)
    scene.ended("ab")
    assert ("ending: its time limit has come" in scene.written()[-1]) == (status == 75)
    assert scene.end() == (status, [status, status])


def test_output_is_awaited_while_some_comes(scenes: Callable[..., Scene]) -> None:
    """Its end is not: the host may be lost."""
    scene = scenes()
    scene.ended("ab", drains=False)
    scene.passes(4.5)
    scene.send("a", b"late\n", b"")
    scene.passes(4.5)
    assert not scene.of(Leave)
    assert scene.end() == (0, [0, 0])
    assert "a: late" in scene.written()


def test_a_progress_file_whose_file_system_hangs_holds_up_no_end(
    scenes: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The last mark counts then."""
    scene, goes_on, answers = scenes(Options(progress=str(tmp_path / "saved")), restarts=2), threading.Event(), []
    (tmp_path / "saved").touch()
    scene.ended("ab", 7)
    mark = scene.runner.machine.root_cause.progress
    assert mark is not None
    scene.began(attempt=1)
    monkeypatch.setattr(scene.runner._progress, "_look", lambda: answers.append(goes_on.wait(10)))
    scene.send("a", messages.Ended(1, 7, None, formed=True, is_oom=False, tail=""))
    assert ([host for host, _ in scene.of(End)][-2:], answers) == (["a", "b"], [])
    assert scene.runner.machine.root_cause.progress == mark
    goes_on.set()
    until(lambda: answers, answers, 20)


def test_events_that_wait_for_a_line_that_hangs_delay_the_end_once(
    scenes: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agents do not wait for them."""
    monkeypatch.setattr(runner, "EVENT_S", 1.0)
    scene = scenes(Options(on_event="sleep 60"))
    scene.ended("ab")
    assert (scene.end(0.5), len(scene.of(Leave))) == (None, 2)
    scene.passes(1.0)
    kinds = ("forming", "started", "started", "formed", "ended", "ended", "over")
    assert scene.written()[1:] == [f"mingle run: --on-event: {len(kinds)} events are left out at the end"]
    scene.until(lambda: not scene.launching.processes.running)
    assert scene.end() == (0, [0, 0])
    assert scene.written() == []


def test_a_rank_that_writes_or_waits_for_a_reader_is_no_stall(scenes: Callable[..., Scene]) -> None:
    scene = scenes(stall_s=5.0)
    for _ in range(3):
        scene.send("b", b".")
        scene.passes(4.0)
    scene.send("a", *[b"x" * 99_999 + b"\n"] * 60)
    scene.passes(10.0)
    assert not scene.of(Dump)
    while scene.written():
        scene.passes(0.1)
    scene.passes(4.0)
    assert not scene.of(Dump)
    scene.passes(1.0)
    assert [host for host, _ in scene.of(Dump)] == ["a", "b"]


def test_the_stacks_of_all_ranks_are_shown_and_kept_and_all_end(scenes: Callable[..., Scene], tmp_path: Path) -> None:
    scene = scenes(Options(log_dir=str(tmp_path / "logs")), stall_s=2.0)
    scene.passes(2.1)
    for host in "ab":
        scene.send(host, Stacks(0, f"in {host}"))
    said = "mingle run: no rank has written anything for 2 s"
    of_a, of_b = ([f"mingle run: {host}: its stacks:", f"  in {host[0]}"] for host in ("a (rank 0)", "b (rank 1)"))
    assert scene.written()[1:] == [said, *of_a, *of_b]
    assert [host for host, _ in scene.of(End)] == ["a", "b"]
    scene.ended("ab", 143)
    scene.passes(0.5)
    scene.until(lambda: not scene.runner._output.files.waiting_bytes)
    assert scene.end() == (75, [75, 75])
    logs = [(tmp_path / "logs" / name).read_text().splitlines() for name in ("rank0-a.log", "rank1-b.log")]
    assert logs == [[said, *of_a], [said, *of_b]]


@pytest.mark.parametrize(("is_here", "least_s"), [(True, 6.0), (False, 3.0)])
def test_starters_that_do_not_end_are_ended(scenes: Callable[..., Scene], least_s: float, *, is_here: bool) -> None:
    """Those of agents that are here get more time."""
    scene = scenes()
    stubborn = starters.Launch(("sh", "-c", "trap '' TERM; echo ready; sleep 60 & wait; wait"), ("a",))
    process = scene.launching.processes.start(stubborn, lambda _process, _status: None)
    scene.until(lambda: process.output)
    scene.ended("ab")
    scene.agents.here.intersection_update({0, 1} if is_here else ())
    assert scene.end(least_s - 0.3) is None
    assert scene.end() is not None
    assert process.wait() == 137


def test_output_that_nobody_reads_is_counted(scenes: Callable[..., Scene]) -> None:
    """It is awaited as long as a host may be silent."""
    scene = scenes()
    scene.written()
    scene.send("a", *[b"x" * 99_999 + b"\n"] * 20)
    scene.ended("ab")
    assert scene.end(14.0) is None
    assert scene.end(2.0) is not None
    kept_bytes = len("\n".join(scene.written()))
    scene.loop.turn(0)
    words = scene.written()[-1].partition("mingle run: ")[2].split(maxsplit=1)
    assert words[1] == "bytes of output are lost: not read in time"
    assert kept_bytes + int(words[0]) == 20 * (100_000 + len("a: "))


SECRET = Secret(b"s" * 32)
# The second is as short as the first: kernels here acknowledge by the real clock, and not by the test's.
SILENCE = Silence(15.0, 15.0)


class Hubbed:
    """A hub with one place, and a clock that the test turns."""

    def __init__(self, silence: Silence = SILENCE, hosts: str = "a") -> None:
        self.now = 100.0
        self.drops_all = False  # at the first agent that is lost
        self.loop = Loop(clock=lambda: self.now)
        self.sockets = Sockets(is_local=True)
        self.events: list[Event] = []
        self.welcomes: list[dict[str, Any]] = []
        self.links: list[Link] = []
        places = [Place(host, 0) for host in hosts]
        self.its = Hub(self.loop, self.sockets, SECRET, places, silence, "a")
        self.its.on_event = self.take

    def take(self, event: Event) -> None:
        """Take an event, as the runner does, which may drop agents at once."""
        self.events.append(event)
        if self.drops_all and isinstance(event, Lost):
            for place in [*self.its.here]:
                self.its.drop(place)

    def link(self, secret: Secret = SECRET) -> Link:
        """Connect as an agent does."""
        sock = socket.create_connection(("127.0.0.1", self.sockets.port))
        sock.settimeout(0)
        self.ended = False

        def end(_reason: str) -> None:
            self.ended = True

        self.links.append(Link(self.loop, sock, secret, is_runner=False, on_end=end))
        return self.links[-1]

    def kinds(self) -> list[type]:
        """Return the kinds of all events."""
        return [type(event) for event in self.events]

    def turn(self, count: int = 20) -> None:
        """Serve what is ready."""
        for _ in range(count):
            self.loop.turn(0.002)

    def join(self, host: str = "a", *, output: bool = False) -> Link:
        """Connect, and say who this is."""
        link = self.link()
        link.on_message = lambda kind, body: self.welcomes.append(body) if kind == WELCOME else None
        self.turn()
        link.send_record(Join(host, 0, 1, is_output=output))
        self.turn()
        return link

    def agent(self, host: str = "a") -> tuple[Link, Link]:
        """Connect as a whole agent, for messages and for output."""
        return self.join(host), self.join(host, output=True)

    def passes(self, seconds: float, step_s: float = 1.0) -> None:
        """Let time go by, second by second."""
        for _ in range(int(seconds / step_s)):
            self.now += step_s
            self.turn(3)


@pytest.fixture
def hubs() -> Iterator[Callable[..., Hubbed]]:
    """Make hubs, and close them."""
    made: list[Hubbed] = []

    def make(*how: Any) -> Hubbed:
        made.append(Hubbed(*how))
        return made[-1]

    yield make
    for hub in made:
        for place in [*hub.its.here]:
            hub.its.drop(place)
        hub.its._reception.close()
        hub.sockets.close()
        for link in hub.links:
            link.close()
        hub.loop.poller.close()


@pytest.fixture
def hub(hubs: Callable[..., Hubbed]) -> Hubbed:
    """Give a hub with one place."""
    return hubs()


def test_an_agent_is_here_with_both_connections(hub: Hubbed) -> None:
    hub.join()
    assert hub.welcomes == [{"number": 0, "port": hub.sockets.port, "silence": 15000, "pause": 15000}]
    assert hub.events == []
    hub.join(output=True)
    assert hub.kinds() == [Joined]


def test_an_agent_whose_host_answers_is_paused_and_lost_only_after_minutes(hubs: Callable[..., Hubbed]) -> None:
    hub = hubs(Silence(15.0, 60.0))
    _, output = hub.agent()
    hub.passes(58)
    assert hub.kinds() == [Joined, Quiet, Paused]
    output.send_output(32, b"line\n")
    hub.turn()
    assert hub.kinds() == [Joined, Quiet, Paused, Alive]
    hub.passes(61)
    assert hub.kinds()[4:] == [Quiet, Paused, Lost]


@pytest.mark.parametrize("hole", ["both ways", "to the runner", "to the agent"])
def test_a_firewall_that_drops_udp_makes_nobody_silent(
    hubs: Callable[..., Hubbed], monkeypatch: pytest.MonkeyPatch, hole: str
) -> None:
    """The second and the third begin in the middle of a run, and drop one way only."""
    hub = hubs(Silence(15.0, 60.0))
    if hole == "to the agent":
        monkeypatch.setattr(runner.Heartbeats, "_beat", lambda _self: None)
    task = agents.Task(b"s" * 32, (("127.0.0.1", hub.sockets.port),), "a", 0)
    lost: list[str] = []
    agent = agents.Runner(hub.loop, task, lambda *_message: None, lost.append)
    hub.turn()
    hub.passes(3 if hole == "to the runner" else 0)
    for sock in hub.sockets.datagrams if hole != "to the agent" else ():
        hub.loop.unwatch(sock)
    hub.passes(130)
    agent.close()
    assert (hub.kinds(), lost) == ([Joined], [])


@pytest.mark.parametrize(("unacknowledged_s", "count"), [(math.inf, 1), (1.0, 0)], ids=["cut off", "stopped"])
def test_the_runners_host_is_cut_off_if_no_other_host_answers(
    hubs: Callable[..., Hubbed], monkeypatch: pytest.MonkeyPatch, unacknowledged_s: float, count: int
) -> None:
    """Where hosts answer, a file system that all of them use may have stopped their agents."""
    monkeypatch.setattr(Link, "unacknowledged_s", unacknowledged_s)
    hub = hubs(SILENCE, "abc")
    (_, own), *_ = [hub.agent(host) for host in "abc"]
    for _ in range(40):
        hub.passes(1)
        own.send_output(32, b"line\n")
        hub.turn(3)
    assert hub.kinds().count(Isolated) == count
    assert [event.place for event in hub.events if isinstance(event, Lost)] == [1, 2]


def test_what_is_dropped_when_another_is_lost_is_no_more_looked_at(hubs: Callable[..., Hubbed]) -> None:
    hub = hubs(SILENCE, "ab")
    hub.drops_all = True
    for host in "ab":
        hub.agent(host)
    hub.passes(40)
    assert hub.kinds().count(Lost) == 1


def test_a_silence_is_over_in_its_time_and_not_at_the_next_look(hub: Hubbed) -> None:
    _, output = hub.agent()
    hub.now += 0.5
    output.send_output(32, b"line\n")
    hub.turn()
    hub.passes(14.75, step_s=0.25)
    assert Lost not in hub.kinds()
    hub.passes(0.25, step_s=0.25)
    assert (hub.kinds(), hub.events[-1], hub.its.here) == ([Joined, Quiet, Lost], Lost(0, 15.0), {})


def test_a_stop_of_the_runner_is_nobodys_silence(hub: Hubbed) -> None:
    hub.agent()
    hub.now += 600
    hub.turn()
    assert hub.events == [Joined(0), Resumed(598.0)]


def test_the_next_agent_of_a_place_counts_its_heartbeats_anew_and_no_earlier_one_counts(hub: Hubbed) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", hub.sockets.port))

        def beat(agent: int, sequence: int) -> None:
            heartbeat = messages.Heartbeat(hub.welcomes[agent]["number"], sequence)
            sock.send(messages.pack_heartbeat(SECRET, AGENT, heartbeat))
            hub.turn()

        control, _ = hub.agent()
        beat(0, 9)
        control.close()
        hub.turn()
        beat(0, 10)  # the earlier agent was stopped, and goes on
        hub.agent()
        beat(0, 11)
        hub.passes(5)
        beat(0, 12)
        assert hub.kinds() == [Joined, Lost, Joined, Quiet]
        assert hub.events[1] == Lost(0, None)
        beat(1, 1)
        assert hub.kinds()[4:] == [Alive]
        hub.passes(5)
        beat(1, 1)  # an old one, which somebody has kept
        assert hub.kinds()[5:] == [Quiet]


@pytest.mark.parametrize(("count", "parts"), [(64, 1), (65, 10)])
def test_agents_that_have_sent_a_heartbeat_get_one_in_each_interval(count: int, parts: int) -> None:
    """To many of them the heartbeats are spread over the interval."""
    now, heard = [100.0], list[int]()
    with Loop(lambda: now[0]) as loop, ExitStack() as stack:
        ours, theirs = (stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2))
        for sock in (ours, theirs):
            sock.bind(("127.0.0.1", 0))
            sock.settimeout(0)
        found = {number: runner.Agent(0, "a", number, cast("Any", None), 0.0) for number in range(count)}
        sockets = cast("Any", SimpleNamespace(datagrams=[ours]))
        runner.Heartbeats(loop, sockets, SECRET, 1.0, found, lambda agent: heard.append(agent.number))

        def answers(*beats: tuple[int, int], after_s: float = 0.0) -> list[tuple[int, int]]:
            for beat in beats:
                theirs.sendto(messages.pack_heartbeat(SECRET, AGENT, messages.Heartbeat(*beat)), ours.getsockname())
            loop.turn(0)
            now[0] += after_s
            loop.turn(0)
            return [tuple(heartbeat) for heartbeat, *_ in messages.heartbeats(theirs, SECRET, messages.RUNNER)]

        assert answers(*((number, 7) for number in found)) == []
        assert answers((0, 7), (0, 6), (0, 8), (count, 1)) == []
        assert heard == [*found, 0]
        rounds = [answers(after_s=1.01 / parts) for _ in range(parts)]
        assert sorted(number for beats in rounds for number, _ in beats) == [*found]
        assert sorted(sequence for beats in rounds for _, sequence in beats) == [*range(1, count + 1)]
        assert max(map(len, rounds)) == -(-count // parts)
        del found[0]
        assert 0 not in {number for _ in range(parts) for number, _ in answers((0, 9), after_s=1.01 / parts)}


def test_an_answer_comes_from_the_address_that_was_asked() -> None:
    """The kernel chooses the interface itself for IPv4; IPv6's may be of one link."""
    local, there = bytes((192, 0, 2, 1)), bytes((192, 0, 2, 9))
    four = (socket.IPPROTO_IP, IP_PKTINFO, struct.pack("@I", 7) + local + there)
    six = (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, bytes(15) + b"\1" + struct.pack("@I", 7))
    other = (socket.IPPROTO_IP, IP_PKTINFO + 1, four[2])
    for control, expected in (
        ([other, four, six], [(*four[:2], bytes(4) + local + bytes(4))]),
        ([(socket.SOL_SOCKET, *four[1:]), six, four], [six]),
        ([(*four[:2], four[2] + b"x"), (*six[:2], six[2][1:]), (six[0], six[1] + 1, six[2]), other], []),
    ):
        assert runner._from_same_address(control) == expected


def test_a_caller_without_place_or_key_or_that_comes_twice_is_dropped(hub: Hubbed) -> None:
    hub.join("b")
    assert hub.ended
    other = hub.link(Secret(b"t" * 32))
    hub.turn()
    other.send_record(Join("a", 0, 1, is_output=False))
    hub.turn()
    assert hub.ended
    hub.join()
    hub.join()
    assert hub.ended
    assert 0 in hub.its.here


def test_idle_callers_leave_descriptors_to_agents_starters_and_logs(hubs: Callable[..., Hubbed]) -> None:
    """Beside a few they get those of agents that are not here, whose calls would else push each other out."""
    count = 300

    def held() -> int:
        return open_files() - before - count

    hub = hubs(SILENCE, "ab")
    hub.agent("a")
    before = open_files()
    with ExitStack() as callers:
        for _ in range(count):
            callers.enter_context(socket.create_connection(("127.0.0.1", hub.sockets.port)))
            hub.turn(1)
        assert messages.MOST_STRANGERS // 2 < held() <= messages.MOST_STRANGERS + 2  # some may be too old already
        hub.agent("b")
        assert held() <= messages.MOST_STRANGERS + 4  # both sides of two connections
    hub.turn()
    assert held() == 4 - count


def test_agents_that_come_together_do_not_push_each_others_second_connection_out(
    hubs: Callable[..., Hubbed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stall of the runner, or a fast srun, has the second connections of all agents arrive at once."""
    monkeypatch.setattr(messages, "MOST_STRANGERS", 0)
    hub = hubs(SILENCE, "abcd")
    for host in "abcd":
        hub.join(host)
    outputs = {host: hub.link() for host in "abcd"}
    hub.turn()
    for host, link in outputs.items():
        link.send_record(Join(host, 0, 1, is_output=True))
    hub.turn()
    assert hub.kinds() == [Joined] * 4
    hub.link()
    hub.turn()
    assert hub.ended  # all are here: nobody else is expected
    hub.its.drop(0)
    calls = [hub.link() for _ in range(3)]
    hub.turn()
    assert [call.closed for call in calls] == [True, False, False]  # the oldest goes


def test_output_is_taken_on_the_connection_for_it_alone(hub: Hubbed) -> None:
    """It has no HMAC, so a stranger on the path could add some to any connection."""
    lines: list[bytes] = []
    hub.its.on_output = lambda _place, _kind, data: lines.append(data)
    control, output = hub.agent()
    output.send_output(messages.OUT, b"its own\n")
    hub.turn()
    control.send_output(messages.OUT, b"a stranger's\n")
    hub.turn()
    assert (lines, hub.kinds()) == ([b"its own\n"], [Joined, Lost])


def test_output_is_read_once_it_is_wanted_also_of_an_agent_that_joins_meanwhile(hub: Hubbed) -> None:
    """A reader that has stopped reading holds up all output, and nothing else."""
    lines: list[bytes] = []
    hub.its.on_output = lambda _place, _kind, data: lines.append(data)
    hub.its.hold(wanted=True)
    _, output = hub.agent()
    output.send_output(messages.OUT, b"early\n")
    hub.turn()
    assert lines == []
    hub.its.hold(wanted=False)
    hub.turn()
    assert lines == [b"early\n"]
