"""Nothing of an attempt is left, whatever it does against that, and whichever of the two above it is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fake_runner import PATIENCE_S

from mingle_hooks.run import messages, processes

if TYPE_CHECKING:
    from fake_runner import Runner

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
def test_an_end_leaves_nothing(runner: Runner, script: str) -> None:
    """And tells how many had to be killed."""
    runner.supervise()
    runner.start("sh", "-c", script)
    runner.until(lambda: b"there" in runner.output)
    is_heeded = "trap ''" not in script
    if is_heeded:  # who is forked while TERM is sent to the others does not hear it
        expected = script.count("sleep 1000") - script.count("kill -STOP")
        runner.until(lambda: len(sleeping(runner.supervisor)) == expected)
    runner.end(8.0 if is_heeded else 0.3)  # who heeds it has the time that a busy machine takes
    runner.end(9.0)  # once more changes nothing
    clean = runner.wait_for(messages.CLEAN)
    assert processes.descendants(runner.supervisor) == []
    assert runner.processes().keys() == {runner.supervisor, runner.warden}
    assert (clean["killed"] == 0) == is_heeded
    assert runner.wait_for(messages.ENDED)["formed"]
    runner.until(lambda: runner.drained)
    assert ("heard" in runner.output.decode()) == ("heard" in script)


def test_a_shorter_grace_is_taken_up(runner: Runner) -> None:
    """Whoever asks a second time is in a hurry; other attempts' ends are none."""
    runner.supervise()
    runner.start("sh", "-c", "trap 'echo heard' TERM; echo there; while :; do sleep 0.01; done", attempt=3)
    runner.until(lambda: b"there" in runner.output)
    runner.end(0.0, attempt=2)
    runner.end(1000.0, attempt=3)
    runner.until(lambda: b"heard" in runner.output)
    runner.end(0.1, attempt=3)
    runner.wait_for(messages.CLEAN)
    assert runner.wait_for(messages.ENDED)["signal"] == signal.SIGKILL
    assert runner.output.count(b"heard") == 1


def test_what_saves_after_the_command_has_ended_has_all_of_the_grace(runner: Runner) -> None:
    """As workers do whose agent ends at once."""
    runner.supervise()
    save = "trap 'sleep 1.5; echo saved; exit' TERM; echo there; while :; do sleep 0.01; done"
    runner.start("sh", "-c", f'setsid sh -c "{save}" & exec sleep 1000')
    runner.until(lambda: b"there" in runner.output)
    runner.end(20.0)
    assert runner.wait_for(messages.ENDED)["signal"] == signal.SIGTERM
    assert runner.wait_for(messages.CLEAN)["killed"] == 0
    runner.until(lambda: runner.drained)
    assert runner.output.endswith(b"saved\n")


def test_what_a_command_leaves_behind_is_ended(runner: Runner) -> None:
    """With TERM, and a second later with KILL."""
    runner.supervise()
    script = "trap '' TERM; echo there; while :; do sleep 1000; done"
    runner.start("sh", "-c", f'setsid sh -c "{script}" & sleep 1000 & read line < go')
    os.mkfifo(runner.directory / "go")
    runner.until(lambda: b"there" in runner.output)
    (runner.directory / "go").write_text("\n")
    assert runner.wait_for(messages.ENDED)["status"] == 0
    assert runner.wait_for(messages.CLEAN)["killed"] == 2
    assert processes.descendants(runner.supervisor) == []


# In a process of its own, as a tree reaps all children.
KILLS = """
import contextlib
import os
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.run import processes
from mingle_hooks.run.processes import Tree
child = os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})
listed = iter([[], [], []])
processes.descendants = lambda: next(listed, [child])
ended, left = [], []
with Loop() as loop:
    tree = Tree(loop, ended.append, lambda: left.append(tree.killed))
    tree.end(0.0)
    loop.run(lambda: bool(left))
assert ended == [processes.Reaped(child, 0, 9)], ended
print(left)
"""


def test_kill_is_sent_until_nothing_is_left() -> None:
    """To what was forked while the others were listed, too."""
    with subprocess.Popen(
        [sys.executable, "-c", KILLS], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        try:
            assert run.communicate(timeout=PATIENCE_S)[0] == "[1]\n"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)


@pytest.mark.parametrize("who", ["warden", "supervisor"])
def test_a_killed_warden_or_supervisor_leaves_nothing(runner: Runner, who: str) -> None:
    """The other one sees to it."""
    runner.supervise()
    runner.start("sh", "-c", STUBBORN["in a session of its own"])
    runner.until(lambda: b"there" in runner.output)
    os.kill(getattr(runner, who), signal.SIGKILL)
    status = runner.exit_status()
    runner.until(lambda: runner.processes() == {})
    assert status == (-signal.SIGKILL if who == "warden" else 75)
    runner.until(lambda: len(runner.ends) == 2)


def test_a_session_that_is_killed_as_a_whole_leaves_nothing(runner: Runner) -> None:
    """As PBS and Torque do on all hosts when the job's script has ended: other sessions are none of theirs."""
    runner.supervise(start_new_session=True)
    runner.start("sh", "-c", STUBBORN["in a session of its own"])
    runner.until(lambda: b"there" in runner.output)
    session = [pid for pid in runner.processes() if os.getsid(pid) == runner.warden]
    for number in signal.SIGSTOP, signal.SIGKILL:  # so that none can do anything before all are killed
        for pid in session:
            os.kill(pid, number)
    assert runner.exit_status() == -signal.SIGKILL
    runner.until(lambda: runner.processes() == {})


def test_one_that_is_stopped_is_killed_too(runner: Runner) -> None:
    """A supervisor that does not run says nothing; KILL and the warden work all the same."""
    runner.supervise()
    runner.start("sleep", "1000")
    runner.wait_for(messages.FORMED)
    os.kill(runner.supervisor, signal.SIGSTOP)
    os.kill(runner.supervisor, signal.SIGKILL)
    assert runner.exit_status() == 75
    assert runner.processes() == {}


def test_both_adopt_orphans(runner: Runner) -> None:
    """What was forked twice is the supervisor's own child."""
    runner.supervise()
    runner.start("sh", "-c", "(setsid sh -c 'echo $$; exec sleep 1000' &); sleep 1000")
    runner.until(lambda: runner.output)
    orphan = int(runner.output)
    runner.until(lambda: processes.parent(orphan) == runner.supervisor)
    assert processes.parent(runner.supervisor) == runner.warden
    os.kill(runner.supervisor, signal.SIGKILL)
    assert runner.exit_status() == 75


def test_children_are_found_where_the_kernel_does_not_list_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their parents."""
    listed = processes.children(os.getppid())
    monkeypatch.setattr(processes, "LISTS_CHILDREN", False)
    assert processes.children(os.getppid()) == listed


def test_who_catches_a_signal_and_whose_child_one_is_are_read_from_proc() -> None:
    """What is gone catches nothing and has none."""
    handler = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        assert processes.catches_signal(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, handler)
    assert not processes.catches_signal(os.getpid(), signal.SIGUSR1)
    gone = int(Path("/proc/sys/kernel/pid_max").read_text()) + 1
    assert not processes.catches_signal(gone, signal.SIGUSR1)
    assert (processes.children(gone), processes.parent(gone)) == ([], 0)
    assert processes.parent(os.getpid()) == os.getppid()
    assert os.getpid() in processes.children(os.getppid())
    processes.send_signal([gone], signal.SIGTERM)
