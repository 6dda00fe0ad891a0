"""Nothing of an attempt is left, whichever process is killed; sweeps; and the kernel's count of OOM kills."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_runner import PATIENCE_S, START, Runner

from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.run import messages, processes
from mingle_hooks.run.processes import OomCounter as Counter

# Each starts what is hard to find or to end, and says so.
STUBBORN = {
    "ignores TERM": "trap '' TERM; echo there; while :; do sleep 1000; done",
    "in a session of its own": "setsid sh -c \"trap '' TERM; echo there; while :; do sleep 1000; done\" & wait",
    "forks twice": "(setsid sh -c '(sleep 1000; :) & sleep 1000 & echo there' &) ; sleep 1000",
    "without the environment": "env -i setsid sleep 1000 & echo there; sleep 1000",
    "forks on and on": "f() { while :; do (trap '' TERM; sleep 0.01) & done; }; trap '' TERM; f & echo there; f",
    "is stopped": "sh -c 'trap \"echo heard; exit\" TERM; echo there; kill -STOP $$; sleep 1000' & sleep 1000",
}


def sleeping(root: int) -> list[int]:
    """Return the descendants that are `sleep` by now, rather than the shell that forked them."""
    found = []
    for pid in processes.descendants(root):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == "sleep\n":
                found.append(pid)
    return found


@pytest.mark.parametrize("script", STUBBORN.values(), ids=STUBBORN)
def test_an_end_leaves_nothing(agent: Runner, script: str) -> None:
    agent.begin("sh", "-c", script, shows=b"there")
    is_heeded = "trap ''" not in script
    if is_heeded:  # who is forked while TERM is sent to the others does not hear it
        expected = script.count("sleep 1000") - script.count("kill -STOP")
        agent.until(lambda: len(sleeping(agent.pid)) == expected)
    agent.end(0.0, attempt=7)  # of another attempt, as when the two cross
    agent.end(8.0 if is_heeded else 0.3)  # who heeds it has the time that a busy machine takes
    agent.end(9.0)  # once more changes nothing
    clean = agent.wait_for(messages.CLEAN)
    assert processes.descendants(agent.pid) == []
    assert agent.processes().keys() == {agent.pid, agent.warden}
    assert (clean["killed"] == 0) == is_heeded
    assert agent.wait_for(messages.ENDED)["formed"]
    agent.until(lambda: agent.drained)
    assert ("heard" in agent.output.decode()) == ("heard" in script)


def test_what_saves_after_the_command_has_ended_has_all_of_the_grace(agent: Runner) -> None:
    save = "trap 'sleep 1.5; echo saved; exit' TERM; echo there; while :; do sleep 0.01; done"
    agent.begin("sh", "-c", f'setsid sh -c "{save}" & exec sleep 1000', shows=b"there")
    agent.end(20.0)
    assert agent.wait_for(messages.ENDED)["signal"] == signal.SIGTERM
    assert agent.wait_for(messages.CLEAN)["killed"] == 0
    agent.until(lambda: agent.drained)
    assert agent.output.endswith(b"saved\n")


def test_what_a_command_leaves_behind_is_ended(agent: Runner) -> None:
    script = "trap '' TERM; echo there; while :; do sleep 1000; done"
    agent.start("sh", "-c", f'setsid sh -c "{script}" & sleep 1000 & read line < go')
    os.mkfifo(agent.directory / "go")
    agent.until(lambda: b"there" in agent.output)
    (agent.directory / "go").write_text("\n")
    assert agent.wait_for(messages.ENDED)["status"] == 0
    assert agent.wait_for(messages.CLEAN)["killed"] == 2
    assert processes.descendants(agent.pid) == []


@pytest.mark.parametrize("who", ["warden", "pid"], ids=["warden", "agent"])
def test_a_killed_warden_or_agent_leaves_nothing(agent: Runner, who: str) -> None:
    agent.begin("sh", "-c", STUBBORN["in a session of its own"], shows=b"there")
    os.kill(getattr(agent, who), signal.SIGKILL)
    status = agent.exit_status()
    agent.until(lambda: agent.processes() == {})
    assert status == (-signal.SIGKILL if who == "warden" else 75)
    agent.until(lambda: len(agent.ends) == 2)


def test_a_session_that_is_killed_as_a_whole_leaves_nothing(runner: Runner) -> None:
    runner.supervise(start_new_session=True)
    runner.begin("sh", "-c", STUBBORN["in a session of its own"], shows=b"there")
    session = [pid for pid in runner.processes() if os.getsid(pid) == runner.warden]
    for number in signal.SIGSTOP, signal.SIGKILL:  # so that none can do anything before all are killed
        for pid in session:
            os.kill(pid, number)
    assert runner.exit_status() == -signal.SIGKILL
    runner.until(lambda: runner.processes() == {})


def test_children_are_found_where_the_kernel_does_not_list_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a thread hide any that ends meanwhile."""
    listed, names = processes.children(os.getppid()), os.listdir
    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", lambda path: ["0", *names(path)])
        assert processes.children(os.getppid()) == listed != []
    monkeypatch.setattr(processes, "LISTS_CHILDREN", False)
    assert processes.children(os.getppid()) == listed


def test_who_catches_a_signal_and_whose_child_one_is_are_read_from_proc() -> None:
    handler = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        assert processes.catches_signal(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, handler)
    assert not processes.catches_signal(os.getpid(), signal.SIGUSR1)
    gone = int(Path("/proc/sys/kernel/pid_max").read_text()) + 1
    assert not processes.catches_signal(gone, signal.SIGUSR1)
    assert (processes.children(gone), processes.parent(gone), processes.is_running(gone)) == ([], 0, False)
    assert processes.is_running(os.getpid())
    assert processes.parent(os.getpid()) == os.getppid()
    assert os.getpid() in processes.children(os.getppid())
    processes.send_signal([gone], signal.SIGTERM)


def test_an_end_goes_from_term_to_kill_and_on_until_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now, sent, ends = [100.0], list[object](), list[object]()
    reaped = iter([([], False)] * 3 + [([child := processes.Reaped(7, 137, 9)], False)] + [([], True)])  # type: ignore[list-item]
    monkeypatch.setattr(processes, "descendants", lambda: [7, 8])
    monkeypatch.setattr(processes, "send_signal", lambda pids, number: sent.append((now[0], *pids, int(number))))
    monkeypatch.setattr(processes, "catches_signal", lambda pid, _number: pid == 8)
    monkeypatch.setattr(processes, "reap", lambda: next(reaped))
    with Loop(lambda: now[0]) as loop:

        def passes(seconds: float) -> None:
            now[0] += seconds
            loop.turn(0)

        tree = processes.Tree(loop, ends.append, lambda: ends.append(tree.killed))
        tree.signal(10)
        tree.signal(15)
        assert (sent, tree.is_ending) == ([(100.0, 8, 10), (100.0, 7, 8, 15)], False)
        tree.end(8.0)
        tree.end(8.0)
        passes(1)
        tree.end(3.0)  # from now
        assert (sent[2:], tree.is_ending, tree.killed) == ([(100.0, 7, 8, 15), (100.0, 7, 8, 18)], True, 0)
        passes(2.75)
        assert sent[4:] == []
        for wait_s in (0.25, 0.0078125, 0.015625):
            passes(wait_s)
        assert sent[4:] == [(at, 7, 8, 9) for at in (104.0, 104.0078125, 104.0234375)]
        assert (ends, tree.is_ending, tree.killed) == ([child, 2], False, 0)
        passes(10)
        assert len(sent) == 7


# Of this process: a sweep would find those of a test beside it, too.
OUTER, INNER = os.urandom(8).hex(), os.urandom(8).hex()
SAYS = f"mingle run: {os.uname().nodename}: "


@pytest.fixture
def begin() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a process with a run's id, that says when it is there."""
    made = []

    def make(run_id: str, script: str = "echo there; exec sleep 1000") -> subprocess.Popen[bytes]:
        environ = {**os.environ, "MINGLE_RUN_ID": run_id, "NOT_MINGLE_RUN_ID": OUTER}
        process = subprocess.Popen(("sh", "-c", script), env=environ, stdout=subprocess.PIPE, start_new_session=True)
        made.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        return process

    yield make
    for process in made:
        if process.poll() is None:  # else its number may be another's
            processes.send_signal([process.pid, *processes.descendants(process.pid)], signal.SIGKILL)
        process.communicate()


def sweep(run_id: str, runner: str = "1.0", *starts: str, **environ: str) -> tuple[int, str]:
    """Return what the program says, and its status; the runner is on another machine, by default."""
    argv = [*START, "sweep", run_id, runner, *starts]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False, env={**os.environ, **environ})
    return done.returncode, done.stdout


def test_all_processes_of_a_run_are_killed_and_no_others(begin: Callable[..., subprocess.Popen[bytes]]) -> None:
    trap = "trap '' TERM; setsid sh -c 'echo there; while :; do sleep 1000; done'"
    own, inner, stubborn = begin(OUTER), begin(f"{OUTER},{INNER}"), begin(OUTER, trap)
    # Its child may be killed first.
    without_environment = begin(OUTER, "env -i sleep 1000 & echo there; wait; exec sleep 1000")
    other = begin(INNER)
    status, said = sweep(OUTER, MINGLE_RUN_ID=OUTER)
    assert status == 0
    assert said.endswith(f" processes of run {OUTER} ended, 0 left\n")
    assert said.startswith(SAYS)
    assert int(said.removeprefix(SAYS).split()[0]) >= 6  # and those that were just begun
    assert [process.wait(PATIENCE_S) for process in (own, inner, without_environment)] == [-signal.SIGKILL] * 3
    assert stubborn.wait(PATIENCE_S) in (-signal.SIGKILL, 128 + signal.SIGKILL)  # its child was killed before it was
    assert other.poll() is None
    assert sweep(OUTER[:-1])[0] == 0
    assert other.poll() is None


def test_a_sweep_of_the_runners_machine_spares_the_runner_and_the_starters_of_other_hosts(
    begin: Callable[..., subprocess.Popen[bytes]],
) -> None:
    """Elsewhere their numbers may be those of any process."""
    runner = begin(OUTER, "sleep 1000 & sh -c 'sleep 1000 & echo there; wait' & wait; exec sleep 1000")
    first, second = processes.children(runner.pid)
    assert sweep(OUTER, processes.named(runner.pid)) == (0, f"{SAYS}0 processes of run {OUTER} ended, 0 left\n")
    said = sweep(OUTER, processes.named(runner.pid), str(second), str(os.getpid() + 10**7))
    assert said == (0, f"{SAYS}2 processes of run {OUTER} ended, 0 left\n")
    assert (runner.poll(), processes.is_running(first), processes.is_running(second)) == (None, True, False)
    assert sweep(OUTER, f"{runner.pid}.1")[0] == 0
    assert runner.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_stopped_agent_is_swept_with_all_that_it_started(agent: Runner) -> None:
    agent.begin("setsid", "sleep", "1000")
    for pid in (agent.warden, agent.pid):
        os.kill(pid, signal.SIGSTOP)
    status, said = sweep(agent.run_id)
    assert (status, agent.processes()) == (0, {})
    assert said.endswith("0 left\n")
    assert agent.exit_status() == -signal.SIGKILL


def test_a_program_is_of_the_mingle_that_it_lies_in(tmp_path: Path) -> None:
    """Another one may be installed."""
    own = tmp_path / "mingle_hooks"
    (own / "run").mkdir(parents=True)
    (own / "__init__.py").touch()
    (own / "run/processes.py").write_text("def run_sweep(_arguments):\n    return 3\n")
    program = shutil.copy(START[-1], own)
    assert subprocess.run([*START[:-1], program, "sweep"], check=False).returncode == 3


V1 = "9:name=systemd:/\n4:cpuset,memory:/slurm/uid_0/job_7/step_0\n0::/\n"
V2 = "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n"


@pytest.mark.parametrize(
    ("groups", "place", "before", "after"),
    [
        (V1, "memory/slurm/uid_0/job_7/step_0/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", 3),
        (V1, "memory/memory.oom_control", "oom_kill 0\n", 1),
        (V2, "system.slice/slurmstepd.scope/job_7/step_0/user/task_0/memory.events", "oom 1\noom_kill 0\n", 1),
        (V2, "memory.events", "max 4\noom_kill 5\noom_group_kill 0\n", 7),
        (V2, "unified/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/memory.events", "oom_kill 5\n", 6),
    ],
)
def test_a_count_that_grows_tells_of_it(tmp_path: Path, groups: str, place: str, before: str, after: int) -> None:
    """The own group's goes before that of the one above."""
    (tmp_path / "cgroup").write_text(groups)
    for its, text in (("memory/memory.oom_control", "oom_kill 100\n"), (place, before)):
        (tmp_path / its).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / its).write_text(text)
    counter = Counter.here(str(tmp_path / "cgroup"), str(tmp_path))
    assert counter.path == str(tmp_path / place)
    assert not counter.has_grown()
    (tmp_path / place).write_text(f"oom {after + 3}\noom_kill {after}\n")
    assert counter.has_grown()


def test_what_cannot_be_read_never_grows(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("4:memory:/a\nodd\n")
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/memory.oom_control").write_text("oom_kill_disable 0\noom_kill x\n")
    assert Counter.here(str(tmp_path / "cgroup"), str(tmp_path)) == Counter("", 0)
    assert not Counter.here(str(tmp_path / "none"), str(tmp_path)).has_grown()
