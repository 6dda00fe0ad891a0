"""An agent finds the runner, starts a command for it, and reports on it: real processes and sockets."""

import errno
import json
import math
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
from fake_runner import KEY, NUMBER, START, Runner
from support.gathering import until
from support.running import open_files

from mingle_hooks.errors import UsageError
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.wire import Secret, body_of
from mingle_hooks.run import agent as agents, messages, processes
from mingle_hooks.run.agent import Approach, Heartbeats, Options, RunnerAddress, Task
from mingle_hooks.run.messages import Link
from mingle_hooks.schedulers.facts import MOST_SLOTS

JOIN = messages.Join("node1", 0, 7, is_output=False)


class Listener:
    """A runner at one address, with a key of its own."""

    def __init__(self, loop: Loop, address: str, key: bytes = b"k" * 32, *, answers: bool = True) -> None:
        self.joins: list[dict[str, object]] = []
        self.links: list[Link] = []
        self._answers = answers
        listener = socket.create_server((address, 0))
        self.address: RunnerAddress = listener.getsockname()
        self.reception = messages.Reception(loop, self._take, most=9)
        self.reception.listen([listener], Secret(key))

    def _take(self, link: Link, _kind: int, body: dict[str, object]) -> None:
        self.reception.admit(link)
        self.links.append(link)
        self.joins.append(body)
        if self._answers:
            link.send_record(messages.Welcome(NUMBER, 1, 15000))


@pytest.fixture
def loop() -> Iterator[Loop]:
    """Give a loop with a clock that runs ten times as fast."""
    begin = time.monotonic()
    with Loop(lambda: begin + 10 * (time.monotonic() - begin)) as made:
        yield made


def test_the_address_that_answers_with_the_key_is_taken_and_no_other(loop: Loop) -> None:
    refused, wrong = Listener(loop, "127.0.0.2"), Listener(loop, "127.0.0.3", b"w" * 32)
    silent, right = Listener(loop, "127.0.0.4", answers=False), Listener(loop, "127.0.0.1")
    refused.reception.close()
    dialed = (refused.address, silent.address, wrong.address, ("127.0.0.1", 9), ("fe80::1%9999", 5), right.address)
    found: list[tuple[RunnerAddress, Link, messages.Welcome]] = []
    ends: list[str] = []
    approach = Approach(loop, Secret(b"k" * 32), dialed, JOIN, lambda *what: found.append(what))
    approach.on_end = ends.append
    until(loop, lambda: found)
    assert [(address, welcome.number) for address, _, welcome in found] == [(right.address, NUMBER)]
    assert (right.joins, wrong.joins, approach.is_over) == ([body_of(JOIN)], [], True)
    until(loop, lambda: all(link.closed for link in silent.links))
    assert ends == []
    right.links[0].close()
    until(loop, lambda: ends)
    assert ends == ["it closed the connection"]
    for listener in (wrong, silent, right):
        listener.reception.close()


def test_a_runner_that_listens_later_is_found(loop: Loop) -> None:
    early = socket.create_server(("127.0.0.1", 0))
    address = early.getsockname()
    early.close()
    approach = Approach(loop, Secret(b"k" * 32), [address], JOIN, lambda *_what: None)
    for _ in range(5):
        loop.turn(0.01)
    with socket.create_server(address) as listener:
        until(loop, lambda: select.select([listener], [], [], 0)[0])
    approach.close()


@pytest.mark.parametrize("end", ["", "it closed the connection", "Too many open files"])
def test_a_runner_that_is_left_or_lost_has_no_descriptor_any_more(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Of its two connections, the one for messages is its life."""
    before = open_files()
    if "files" in end:
        monkeypatch.setattr(agents, "Heartbeats", Mock(side_effect=OSError(errno.EMFILE, end)))
    listener, ends = Listener(loop, "127.0.0.1"), list[str]()
    runner = agents.Runner(loop, Task(b"k" * 32, (listener.address,), "node1", 2), lambda *_: None, ends.append)
    assert not runner.is_found
    until(loop, lambda: len(listener.joins) == 2 or ends)
    joins = [(join["host"], join["local"], join["pid"], join["output"]) for join in listener.joins]
    assert runner.is_found
    assert joins == [("node1", 2, os.getpid(), is_output) for is_output in (False, True)][: 1 if ends else 2]
    if end:
        listener.links[0].close()
        until(loop, lambda: ends)
    runner.close()
    listener.reception.close()
    for link in listener.links:
        link.close()
    assert (ends, open_files()) == ([end] if end else [], before)


@pytest.mark.parametrize(
    ("steps", "lost_at"),
    [
        ([(1, 0)] * 4, [104]),
        ([(1, number) for number in range(1, 9)], []),
        ([(1, 7)] * 5, [105]),  # copies of an old one
        ([(1, 1), (500, 0), (1, 2)], []),  # this process was stopped
    ],
)
def test_a_silent_runner_is_lost_after_a_while(steps: list[tuple[int, int]], lost_at: list[int]) -> None:
    """Each step takes some seconds, and may have a heartbeat of the runner, by its sequence number."""
    now, lost, secret = [100], list[int](), Secret(b"k" * 32)
    with Loop(lambda: now[0]) as loop, socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        welcome = messages.Welcome(NUMBER, sock.getsockname()[1], 4000, 4000)
        control = Mock(unacknowledged_s=math.inf)
        beats = Heartbeats(loop, secret, "127.0.0.1", welcome, control, lambda: lost.append(now[0]))
        agent = sock.recvfrom(messages.BYTES)[1]
        for after_s, sequence in steps:
            now[0] += after_s
            if sequence:
                heartbeat = messages.Heartbeat(NUMBER, sequence)
                sock.sendto(messages.pack_heartbeat(secret, messages.RUNNER, heartbeat), agent)
            loop.turn(0)
        beats.close()
    assert lost == lost_at


def test_the_addresses_are_those_of_the_environment() -> None:
    """IPv6, and a zone's number, too."""
    assert agents.parse_addresses("10.77.0.1 4711,fd77::1 4712") == (("10.77.0.1", 4711), ("fd77::1", 4712))
    for wrong in ("", "10.77.0.1", "10.77.0.1 x", " 5", "10.77.0.1 4711,"):
        with pytest.raises(UsageError, match="addresses and ports"):
            agents.parse_addresses(wrong)


def test_the_callers_environment_comes_from_standard_input(runner: Runner) -> None:
    file = runner.directory / "environ"
    given = {
        "GIVEN": "line\nand = ü",
        "EMPTY": "",
        "RAW": "\udcff=\n",
        "PBS_A": "given",
        "PBS_B": "given",
        "TMPDIR": "/",
    }
    pairs = [f"{name}={value}" for name, value in {**runner.environ(), **given}.items()]
    file.write_bytes(b"\0".join(map(os.fsencode, ["=none", "none", *pairs, ""])))
    own = {"PBS_A": "own", "TMPDIR": "/here"}
    with file.open("rb") as stdin:
        keep = ("--keep", "PBS_,TMPDIR", "--local", "2")
        runner.supervise("--stdin", *keep, environ={**own, "HERE": "dropped"}, bare=True, stdin=stdin)
    assert runner.all_of(messages.JOIN)[0]["local"] == 2
    seen = {**given, **own, "HERE": None, "none": None, "PATH": os.environ["PATH"]}
    runner.attempt(sys.executable, "-c", f"import os; print({{name: os.environ.get(name) for name in {[*seen]}}})")
    assert runner.output.decode() == f"{seen}\n"
    assert {runner.warden, runner.pid} <= runner.processes().keys()


def test_a_file_that_others_may_read_is_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "environ"
    file.write_text("A=b\0")
    file.chmod(0o640)
    done = subprocess.run([*START, "agent", "--environ", str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1)
    assert "mode 0640" in done.stderr
    for path, seen in ((tmp_path / "none", "No such file"), (tmp_path, "not one")):
        with pytest.raises(UsageError, match=seen):
            agents.take_environ("agent", Options(environ=str(path)))


@pytest.mark.parametrize(
    ("library_path", "said"), [("", "{'A': 'given', 'TMPDIR': '/here'}\n"), ("LD_LIBRARY_PATH=/lib\0", "")]
)
def test_a_probe_starts_anew_only_for_libraries_that_are_elsewhere(
    tmp_path: Path, library_path: str, said: str
) -> None:
    """Else it goes on with the caller's environment, and has begun in half the time."""
    file = tmp_path / "environ"
    file.write_text(f"A=given\0TMPDIR=/there\0{library_path}")
    file.chmod(0o600)
    code = f"""if True:
        import os
        from mingle_hooks.run import agent
        agent.take_environ("probe", agent.Options(environ={str(file)!r}, keep="TMPDIR"))
        print({{**os.environ}})"""
    here = {"TMPDIR": "/here", "B": "dropped"}
    done = subprocess.run([sys.executable, "-c", code], env=here, capture_output=True, text=True, check=False)
    assert (done.stdout, "MINGLE_RUN_KEY" in done.stderr) == (said, not said)


def test_the_options_are_those_that_starters_write_and_slurm_names_the_place_where_none_does() -> None:
    words = ("--host", "a", "--local", "1", "--environ", "/f", "--keep", "X,Y", "--stdin")
    assert Options.parse(words) == Options("a", "1", "/f", "X,Y", is_stdin=True)
    assert (Options.parse(words).argv(), Options.parse(()).argv()) == (("--host", "a", "--local", "1"), ())
    run = {"MINGLE_RUN_KEY": KEY, "MINGLE_RUN_AT": "127.0.0.1 1"}
    slurm = {"SLURMD_NODENAME": "n", "SLURM_LOCALID": "1"}
    for options, environ, place in (
        (("--host", "node7", "--local", "3"), slurm, ("node7", 3)),
        ((), slurm, ("n", 1)),
        (("--host", ""), dict.fromkeys(slurm, ""), (os.uname().nodename, 0)),
    ):
        assert Task.find(Options.parse(options), run | environ)[2:] == place
    for arguments, given, seen in (
        (("--nonsense",), {}, "--nonsense"),
        ((), {}, "MINGLE_RUN_KEY"),
        ((), run | {"MINGLE_RUN_AT": "127.0.0.1"}, "MINGLE_RUN_AT"),
        ((), run | {"MINGLE_RUN_KEY": "xy" * 32}, "MINGLE_RUN_KEY"),
        (("--local", "x"), run, "--local"),
        (("--local", str(MOST_SLOTS)), run, "--local"),
    ):
        with pytest.raises(UsageError, match=seen):
            Task.find(Options.parse(arguments), given)


def test_the_end_of_each_attempt_is_reported(agent: Runner) -> None:
    rows = [
        ("sh -c", "exit 0", {}, (0, None, True)),
        ("sh -c", "exit 255", {}, (255, None, True)),
        ("sh -c", "kill -9 $$", {}, (137, 9, True)),
        ("sh -c", "kill -TERM $$", {}, (143, 15, True)),
        ("sh -c", "kill -USR1 $$", {}, (138, 10, True)),
        ("no-such-command", "", {}, (127, None, False)),
        ("/dev/null", "", {}, (126, None, False)),
        ("true", "", {"options": ("--nodes", "none")}, (64, None, False)),
        ("true", "", {"options": ("--timeout", "20", "--quiet", "--id", "-x")}, (0, None, True)),  # as click reads it
        ("true", "", {"directory": "/no/such/directory"}, (73, None, False)),
    ]
    for words, script, fields, expected in rows:
        ended = agent.attempt(*words.split(), script, **fields)
        assert (ended["status"], ended["signal"], ended["formed"]) == expected
    assert [clean["attempt"] for clean in agent.all_of(messages.CLEAN)] == list(range(10))
    assert "cannot start: /no/such/directory: No such file" in agent.all_of(messages.ENDED)[-1]["tail"]


def test_a_host_without_descriptors_reports_that(agent: Runner) -> None:
    assert agent.attempt("true")["status"] == 0  # by now it has loaded all that it ever loads
    usual = resource.prlimit(agent.pid, resource.RLIMIT_NOFILE)
    opened = len(os.listdir(f"/proc/{agent.pid}/fd"))
    resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (opened + 4, usual[1]))
    ended = agent.attempt("true")
    assert (ended["status"], ended["signal"], ended["formed"]) == (71, None, False)
    assert ended["tail"] == "mingle run: cannot start: Too many open files\n"
    resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, usual)
    assert agent.attempt("true")["status"] == 0
    assert len(os.listdir(f"/proc/{agent.pid}/fd")) == opened


def test_a_command_gets_the_environment_directory_and_umask_that_the_runner_says(
    runner: Runner, tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    runner.supervise(environ={"MINE": "kept", "CHANGED": "before"})
    script = """import json, os, sys
print(json.dumps({"environ": dict(os.environ), "cwd": os.getcwd(), "umask": os.umask(0), "stdin": sys.stdin.read(),
    "leads": os.getsid(0) == os.getpid() == os.getpgid(0), "fds": sorted(map(int, os.listdir("/proc/self/fd")))}))"""
    given = {"CHANGED": "after", "NEW": "line\nand = ü"}
    runner.attempt("python3", "-c", script, directory=str(tmp_path / "there"), umask=0o027, environ=given)
    seen = json.loads(runner.output)
    environ = seen.pop("environ")
    descriptors = seen.pop("fds")
    assert seen == {"cwd": str(tmp_path / "there"), "umask": 0o027, "stdin": "", "leads": True}
    assert len(descriptors) == 4  # the directory's, which it reads, is the fourth
    assert {name: environ[name] for name in ("MINE", "CHANGED", "NEW")} == {"MINE": "kept", **given}
    assert (environ["MINGLE_ATTEMPT"], environ["MINGLE_RUN_ID"]) == ("0", runner.run_id)
    assert not environ.keys() & {"MINGLE_RUN_KEY", "MINGLE_RUN_AT", "MINGLE_RUN_FORMED"}
    assert KEY not in str(environ)


def test_modules_in_the_users_directory_are_not_mingles(agent: Runner, tmp_path: Path) -> None:
    (tmp_path / "mingle_hooks").mkdir()
    for name in ("random.py", "socket.py", "_signal.py", "mingle_hooks/__init__.py"):
        (tmp_path / name).write_text("raise SystemExit(9)\n")
    assert agent.attempt("true", environ={"PYTHONPATH": ""})["status"] == 0
    (tmp_path / "random.py").unlink()
    (tmp_path / "socket.py").unlink()
    assert agent.attempt("true", environ={"PYTHONPATH": str(tmp_path)})["status"] == 0


def test_a_command_whose_world_forms_has_none_of_the_agents_connections(agent: Runner) -> None:
    facts = {"nodes": 2, "node_rank": 0, "hosts": ["localhost", "missing"], "job_id": agent.run_id}
    agent.start("true", facts=facts, options=("--timeout", "600", "--quiet", "--via", "hosts"))
    agent.until(lambda: processes.children(agent.pid))
    (child,) = processes.children(agent.pid)
    agent.until(lambda: not sockets(child) & sockets(agent.pid))
    assert agent.all_of(messages.ENDED) == []
    agent.end(0.0)
    agent.wait_for(messages.CLEAN)


def sockets(pid: int) -> set[str]:
    """Return a process's sockets, as the kernel names them."""
    found = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found.add(os.readlink(path))
    return {name for name in found if name.startswith("socket:")}


def test_a_signal_is_passed_on_only_to_those_that_catch_it(agent: Runner) -> None:
    # Not print(), which refuses to be called by a handler that interrupts it.
    catches = "import os, signal\nfor n in (10, 12): signal.signal(n, lambda n, _: os.write(1, b'caught %d\\n' % n))\n"
    catches += "os.write(1, b'ready\\n')\nwhile True: signal.pause()"
    agent.begin("sh", "-c", 'sleep 1000 & python3 -c "$0" & wait', catches, shows=b"ready")
    for number, which in ((1, signal.SIGUSR1), (2, signal.SIGUSR2)):
        agent.send(messages.SIGNAL, messages.Signal(number, which))
        agent.until(lambda which=which: b"caught %d\n" % which in agent.output)  # type: ignore[misc]
    assert agent.all_of(messages.ENDED) == []
    agent.send(messages.SIGNAL, messages.Signal(3, signal.SIGTERM))
    ended = agent.wait_for(messages.ENDED)
    assert agent.wait_for(messages.CLEAN)["killed"] == 0
    assert ended["signal"] == signal.SIGTERM
    agent.until(lambda: agent.drained)
    assert bytes(agent.output) == b"ready\ncaught 10\ncaught 12\n"


# It saves until it may end.
SAVES = """import os, signal
def save(number, _):
    os.write(1, b'caught %d\\n' % number)
    os.read(os.open('go', os.O_RDONLY), 1)
    os.write(1, b'saved\\n')
    os._exit(0)
for number in (2, 15):
    signal.signal(number, save)
os.write(1, b'ready\\n')
while True:
    signal.pause()"""
WRAPPER = ("sh", "-c", "trap 'exit 3' INT TERM; sleep 1000 & python3 -c \"$0\" & wait", SAVES)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("by", ["runner", "scheduler"])
def test_what_a_wrapper_started_has_the_grace_to_save_though_the_wrapper_ends_at_once(
    agent: Runner, number: signal.Signals, by: str
) -> None:
    """It gets no second signal; only what cannot have got the first gets TERM."""
    os.mkfifo(agent.directory / "go")
    go = os.open(agent.directory / "go", os.O_RDWR)
    agent.begin(*WRAPPER, shows=b"ready", grace_ms=60_000)
    if by == "runner":
        agent.send(messages.SIGNAL, messages.Signal(1, number))
    else:
        os.kill(agent.pid, number)
        agent.wait_for(messages.NOTICED)
        for pid in processes.descendants(agent.pid):
            os.kill(pid, number)
    assert agent.wait_for(messages.ENDED)["status"] == 3
    before = len(agent.all_of(messages.NOTICED))
    os.kill(agent.pid, signal.SIGUSR2)
    agent.wait_for(messages.NOTICED, before + 1)  # by now it would have sent another signal
    os.write(go, b"\n")
    assert agent.wait_for(messages.CLEAN)["killed"] == 0
    agent.until(lambda: agent.drained)
    os.close(go)
    assert agent.output == b"ready\ncaught %d\nsaved\n" % number


@pytest.mark.parametrize("is_first", [True, False])
def test_a_schedulers_signal_that_ends_a_wrapper_may_come_to_the_agent_after_its_end(
    agent: Runner, *, is_first: bool
) -> None:
    """What it started saves; of two signals at once that to all is told first, as the reason of the end."""
    os.mkfifo(agent.directory / "go")
    go = os.open(agent.directory / "go", os.O_RDWR)
    agent.begin("sh", "-c", 'python3 -c "$0"; true', SAVES, shows=b"ready", grace_ms=60_000)
    (command,) = processes.children(agent.pid)
    for pid in (agent.warden, agent.pid):  # the first would tell that the second has stopped
        os.kill(pid, signal.SIGSTOP)
    for pid in (*processes.descendants(agent.pid), *([agent.pid] if is_first else [])):
        os.kill(pid, signal.SIGTERM)
    agent.until(lambda: not processes.is_running(command))
    os.kill(agent.pid, signal.SIGCONT)
    agent.wait_for(messages.ENDED)
    os.kill(agent.warden, signal.SIGCONT)
    os.kill(agent.pid, signal.SIGTERM)
    os.kill(agent.pid, signal.SIGUSR2)
    agent.wait_for(messages.NOTICED, 2)
    os.write(go, b"\n")
    assert agent.wait_for(messages.CLEAN)["killed"] == 0
    agent.until(lambda: agent.drained)
    os.close(go)
    assert agent.output == b"ready\ncaught 15\nsaved\n"
    kinds = [kind for kind, _ in agent.received]
    assert (kinds.index(messages.NOTICED) < kinds.index(messages.ENDED)) == is_first


def test_what_a_wrapper_started_is_killed_after_the_grace(agent: Runner) -> None:
    os.mkfifo(agent.directory / "go")
    agent.begin(*WRAPPER, shows=b"ready", grace_ms=100)
    agent.send(messages.SIGNAL, messages.Signal(1, signal.SIGTERM))
    assert agent.wait_for(messages.CLEAN)["killed"] == 1


def test_signals_to_the_agent_or_its_warden_reach_the_runner_and_end_nothing(agent: Runner) -> None:
    agent.begin("sleep", "1000")
    signals = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGALRM, signal.SIGINT, signal.SIGRTMAX)
    for number in signals:
        for pid in (agent.pid, agent.warden):
            os.kill(pid, number)
    agent.wait_for(messages.NOTICED, 2 * len(signals))
    agent.end()
    agent.wait_for(messages.CLEAN)
    told = sorted(said["signal"] for said in agent.all_of(messages.NOTICED))
    assert told == sorted([*signals] * 2)
    assert agent.leave(143) == 143


def test_a_signal_that_nohup_ignores_stays_ignored(runner: Runner) -> None:
    runner.supervise(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    runner.attempt("python3", "-c", "import signal; print(signal.getsignal(signal.SIGHUP).name)")
    os.kill(runner.pid, signal.SIGHUP)
    os.kill(runner.pid, signal.SIGUSR1)
    runner.wait_for(messages.NOTICED)
    assert bytes(runner.output) == b"SIG_IGN\n"
    assert [said["signal"] for said in runner.all_of(messages.NOTICED)] == [signal.SIGUSR1]


@pytest.mark.parametrize("redirection", ["<&- >&- 2>&-", ">/dev/full 2>/dev/full"])
def test_standard_streams_may_be_closed(runner: Runner, redirection: str) -> None:
    runner.supervise(before=("sh", "-c", f'exec "$@" {redirection}', "sh"))
    ended = runner.attempt("sh", "-c", "cat; echo out; echo err >&2")
    assert (ended["status"], bytes(runner.output), bytes(runner.errors)) == (0, b"out\n", b"err\n")
    runner.vanish()
    assert runner.exit_status() == 75


def test_a_runner_that_vanishes_ends_all(runner: Runner) -> None:
    runner.supervise(stderr=subprocess.PIPE)
    saves = "trap 'sleep 0.2; touch saved' TERM; sleep 1000 & echo there; while :; do wait; done"
    runner.begin("sh", "-c", saves, shows=b"there")
    runner.vanish()
    assert (runner.exit_status(), runner.processes()) == (75, {})
    assert (runner.directory / "saved").exists()  # TERM comes first, and KILL after a grace
    assert "the runner is lost: it closed the connection" in runner.emergency()


def test_a_connection_for_output_that_ends_first_leaves_time_for_the_runners_last_word(agent: Runner) -> None:
    """A cable that was out brings the ends of two connections in any order; the status is the run's."""
    agent.attempt("true")
    assert agent.stream is not None
    agent.stream.close()
    known = len(agent.heartbeats)
    agent.until(lambda: len(agent.heartbeats) > known)
    assert agent.leave(9) == 9


def test_a_connection_for_output_that_ends_alone_ends_all(tmp_path: Path) -> None:
    with Runner(tmp_path, silence_s=1.0) as runner:
        runner.supervise(stderr=subprocess.PIPE)
        runner.begin("sleep", "1000")
        assert runner.stream is not None
        runner.stream.close()
        assert (runner.exit_status(), runner.processes()) == (75, {})
        assert "the runner is lost: it closed the connection" in runner.emergency()


def test_a_runner_is_lost_once_neither_its_heartbeats_nor_its_messages_come(tmp_path: Path) -> None:
    with Runner(tmp_path, silence_s=1.0, answers=False) as runner:
        runner.supervise(stderr=subprocess.PIPE)
        runner.start("sleep", "1000")
        runner.wait_for(messages.FORMED)
        harmless = messages.Signal(0, signal.SIGWINCH)
        runner.until(lambda: runner.send(messages.SIGNAL, harmless) or len(runner.heartbeats) >= 7)  # four a second
        assert runner.all_of(messages.ENDED) == []
        assert (runner.exit_status(), runner.processes()) == (75, {})
        assert "it is silent" in runner.emergency()


def test_a_signal_without_a_runner_ends_it(tmp_path: Path) -> None:
    with Runner(tmp_path) as runner:
        runner.stop_listening()
        runner.supervise(wait=False, stderr=subprocess.PIPE)
        runner.until(lambda: processes.catches_signal(runner.warden, signal.SIGTERM))
        os.kill(runner.warden, signal.SIGTERM)
        assert runner.exit_status() == 75
        assert "before a runner was found" in runner.emergency()


@pytest.mark.parametrize("kind", ["START in an attempt", "an agent's message"])
def test_a_message_that_no_runner_sends_ends_the_connection(agent: Runner, kind: str) -> None:
    agent.start("sleep", "1000")
    if kind == "START in an attempt":
        agent.start("sleep", "1000", attempt=1)
    else:
        agent.send(messages.FORMED, {})
    assert agent.exit_status() == 75


def test_leave_ends_all_that_runs(agent: Runner) -> None:
    agent.start("sh", "-c", "trap '' TERM; echo there; while :; do sleep 1000; done")
    agent.until(lambda: agent.output)
    assert agent.leave(9) == 9
    assert agent.processes() == {}
