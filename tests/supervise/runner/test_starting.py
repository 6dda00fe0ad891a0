"""What starts supervisors: real programs on this host, each as the user's own shell would have started it."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from supervise.runner.places import MINGLE

from mingle_hooks.errors import NotExecutableError, PlaceError
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.run import starters
from mingle_hooks.run.hub import MOST_OUTPUT, Launching, Limit, Process, Processes
from mingle_hooks.run.starters import TABLE, Allocation, Launch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ENVIRON = {"PATH": "/usr/bin:/bin", "LANG": "C"}
# A bound on what hangs, not a measure.
PATIENCE_S = 30.0


class Started:
    """Processes of one loop, and what came of them."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.said = loop, b""
        self.ended: list[tuple[Process, int]] = []
        self.processes = Processes(loop, ENVIRON, self._say, Limit(1))

    def start(self, *argv: str, stdin: bytes | None = None) -> Process:
        return self.processes.start(Launch(argv, ("node1",), stdin), lambda *how: self.ended.append(how))

    def until(self, holds: Callable[[], object]) -> None:
        def look() -> None:
            self.processes.poll()
            self.loop.after(0.01, look)

        look()
        end = self.loop.clock() + PATIENCE_S
        self.loop.run(lambda: bool(holds()) or self.loop.clock() > end)
        assert holds()

    def done(self, *argv: str, stdin: bytes | None = None) -> tuple[int, str]:
        """Return the status and the output of one."""
        process = self.start(*argv, stdin=stdin)
        self.until(lambda: self.ended)
        assert self.ended[0][0] is process
        return self.ended[0][1], self.said.decode()

    def _say(self, data: bytes) -> None:
        self.said += data


@pytest.fixture
def started() -> Iterator[Started]:
    with Loop() as loop:
        made = Started(loop)
        yield made
        for process in made.processes.running:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        made.processes.poll()


@pytest.mark.parametrize(
    ("line", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("exit 255", 255)]
)
def test_its_status_is_as_a_shell_has_it(started: Started, line: str, status: int) -> None:
    assert started.done("sh", "-c", f"echo out; echo err >&2; {line}") == (status, "out\nerr\n")


def test_it_reads_what_it_is_given_or_nothing(started: Started) -> None:
    """Also more than a pipe holds."""
    data = os.urandom(300_000).hex().encode()
    assert started.done("sh", "-c", "wc -c; cat", stdin=data)[1].startswith(str(len(data)))


def test_what_is_given_nothing_finds_an_end(started: Started) -> None:
    assert started.done("cat") == (0, "")


def test_only_the_end_of_what_it_wrote_is_kept(started: Started) -> None:
    started.done("sh", "-c", f"head -c {MOST_OUTPUT * 3} /dev/zero; echo end")
    assert len(started.ended[0][0].output) == MOST_OUTPUT
    assert started.ended[0][0].output.endswith(b"end\n")
    assert len(started.said) == MOST_OUTPUT * 3 + 4


def test_it_has_nothing_open_but_its_three_streams(tmp_path: Path) -> None:
    """Whatever the shell that typed the line left open; nor the runner's sockets."""
    code = """
from supervise.runner.test_starting import Started, Loop
with Loop() as loop:
    print(*Started(loop).done("sh", "-c", "ls /proc/$$/fd"))
"""
    environ = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    left, _ = ends = os.pipe()
    try:
        argv = [sys.executable, "-c", code]
        done = subprocess.run(
            argv, env=environ, cwd=tmp_path, pass_fds=[left], capture_output=True, text=True, check=True
        )
    finally:
        for end in ends:
            os.close(end)
    assert done.stdout.split() == ["0", "0", "1", "2"]


def test_it_has_a_session_of_its_own(started: Started) -> None:
    process = started.start("sh", "-c", "echo here; read nothing; sleep 1000")
    started.until(lambda: started.said)
    assert os.getsid(process.pid) == process.pid != os.getsid(0)
    started.processes.kill(at_once=False)
    started.until(lambda: started.ended)


def test_no_signal_is_ignored_that_was_not(started: Started) -> None:
    """Python ignores two for itself; what the user's shell ignores stays ignored."""
    assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN
    _, text = started.done("sh", "-c", "grep SigIgn /proc/$$/status")
    ignored = int(text.split()[1], 16)
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


def test_it_has_the_users_limit_of_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = Limit((soft + 1) // 4)
    try:
        raised = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if raised == soft:
            assert soft == hard  # nothing more may be had here
        with limit:
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == raised
    finally:
        limit.give_back()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)


def test_a_program_that_is_not_there_is_the_callers_to_tell(started: Started) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        started.start("no-such-program")
    assert started.processes.running == ()
    assert len(os.listdir("/proc/self/fd")) == before


def launching(loop: Loop) -> Launching:
    job = Allocation("local", ("node1",), (1,), own="node1")
    return Launching(loop, TABLE[0], job, "/nowhere.py", port_range=range(20000, 30000))


def test_without_a_place_for_its_file_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """And whoever asks is told, as for any other place that cannot be written to."""

    def no_place(*_words: object) -> None:
        raise PlaceError("a directory for the environment", "none", "a home")

    monkeypatch.setattr(starters, "environ_file", no_place)
    with Loop() as loop:
        made = launching(loop)
        try:
            with pytest.raises(PlaceError):
                made.start(("node1",))
            assert made.processes.running == ()
        finally:
            made.close()


# A run to whose process something happens once its supervisors have been started.
EARLY = """
import os, signal, sys
from mingle_hooks.run import hub as launching
start = launching.Launching.start
def start_and(self, hosts):
    start(self, hosts)
    (process,) = self.processes.running
    {happens}
launching.Launching.start = start_and
sys.argv = ["mingle", "run", "--timeout", "600", *{words}]
from mingle_hooks.cli.main import main
main()
"""


def early(place: Path, happens: str, *words: str) -> subprocess.CompletedProcess[str]:
    ssh = place / "ssh"
    ssh.write_text("#!/bin/sh\necho no route >&2\nexit 255\n")
    ssh.chmod(0o755)
    environ = {"PATH": f"{place}:{MINGLE.parent}:/usr/bin:/bin", "HOME": str(place)}
    argv = [sys.executable, "-c", EARLY.format(happens=happens, words=words)]
    return subprocess.run(argv, env=environ, cwd=place, capture_output=True, text=True, check=False, timeout=30)


def test_one_that_has_ended_before_the_runner_was_loaded_is_heard_of(tmp_path: Path) -> None:
    done = early(tmp_path, "os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)", "--hosts", "node77", "true")
    assert done.returncode == 75, done.stderr
    assert "node77" in done.stderr
    assert "no route" in done.stderr


def test_who_is_asked_to_end_before_the_runner_was_loaded_ends_all(tmp_path: Path) -> None:
    """As one who is asked later does: the supervisors are told, and what they start ends too."""
    done = early(tmp_path, "os.kill(os.getpid(), signal.SIGTERM)", "--alone", "sleep", "1000")
    assert done.returncode == 143, done.stderr
    assert done.stderr.startswith("mingle run: ending: SIGTERM received")
    assert "Traceback" not in done.stderr


def test_where_a_python_cannot_start_programs_the_command_is_refused(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyPy has no posix_spawnp."""
    monkeypatch.delattr(os, "posix_spawnp")
    with pytest.raises(NotExecutableError, match="expected CPython for this command; saw cpython; try mingle exec"):
        started.start("true")
