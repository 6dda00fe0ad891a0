"""A sweep ends a run's processes on a host, and nobody else's."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from fake_runner import PATIENCE_S, START

from mingle_hooks.run import messages, processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fake_runner import Runner

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


def sweep(run_id: str, *arguments: str, **environ: str) -> tuple[int, str]:
    """Return what the program says, and its status."""
    argv = [*START, "sweep", run_id, *arguments]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False, env={**os.environ, **environ})
    return done.returncode, done.stdout


def test_all_processes_of_a_run_are_killed_and_no_others(begin: Callable[..., subprocess.Popen[bytes]]) -> None:
    """Also of a run inside it; not the sweep itself, though it has the id, too."""
    trap = "trap '' TERM; setsid sh -c 'echo there; while :; do sleep 1000; done'"
    own, inner, stubborn = begin(OUTER), begin(f"{OUTER},{INNER}"), begin(OUTER, trap)
    other = begin(INNER)
    status, said = sweep(OUTER, MINGLE_RUN_ID=OUTER)
    assert status == 0
    assert said.endswith(f" processes of run {OUTER} ended, 0 left\n")
    assert said.startswith(SAYS)
    assert int(said.removeprefix(SAYS).split()[0]) >= 4  # and those that were just begun
    assert [process.wait(PATIENCE_S) for process in (own, inner)] == [-signal.SIGKILL] * 2
    assert stubborn.wait(PATIENCE_S) in (-signal.SIGKILL, 128 + signal.SIGKILL)  # its child was killed before it was
    assert other.poll() is None
    assert sweep(OUTER) == (0, f"{SAYS}0 processes of run {OUTER} ended, 0 left\n")
    assert sweep(OUTER[:-1])[0] == 0
    assert other.poll() is None


def test_what_is_excepted_is_left_with_all_below_it(begin: Callable[..., subprocess.Popen[bytes]]) -> None:
    """The runner's own starter."""
    own, spared = begin(OUTER), begin(OUTER, "sleep 1000 & echo there; wait")
    done = sweep(OUTER, "--except", str(spared.pid), "--except", str(os.getpid() + 10**7))
    assert done == (0, f"{SAYS}1 processes of run {OUTER} ended, 0 left\n")
    assert own.wait(PATIENCE_S) == -signal.SIGKILL
    assert spared.poll() is None
    (below,) = processes.children(spared.pid)
    os.kill(below, signal.SIGKILL)


def test_those_without_an_environment_are_found_by_their_parents(begin: Callable[..., subprocess.Popen[bytes]]) -> None:
    """As what `env -i` starts."""
    begin(OUTER, "env -i sleep 1000 & echo there; wait")
    assert sweep(OUTER) == (0, f"{SAYS}2 processes of run {OUTER} ended, 0 left\n")


def test_a_stopped_supervisor_is_swept_with_all_that_is_its(runner: Runner) -> None:
    """The warden, too."""
    runner.supervise()
    runner.start("setsid", "sleep", "1000")
    runner.wait_for(messages.FORMED)
    for pid in (runner.warden, runner.supervisor):
        os.kill(pid, signal.SIGSTOP)
    status, said = sweep(runner.run_id)
    assert (status, runner.processes()) == (0, {})
    assert said.endswith("0 left\n")
    assert runner.exit_status() == -signal.SIGKILL
