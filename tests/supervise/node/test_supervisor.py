"""A supervisor starts a command for a runner, and tells what becomes of it: real processes and sockets."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fake_runner import KEY, NUMBER, Runner

from mingle_hooks.run import messages

if TYPE_CHECKING:
    from collections.abc import Callable


def test_it_starts_a_command_and_reports_its_end(runner: Runner) -> None:
    """With its status, output, and the world."""
    runner.supervise()
    ended = runner.attempt("sh", "-c", "echo out; echo err >&2; exit 7")
    formed = runner.all_of(messages.FORMED)
    assert [said["nodes"] for said in formed] == [1]
    assert (ended["status"], ended["signal"], ended["formed"], ended["is_oom"]) == (7, None, True, False)
    assert sorted(ended["tail"].splitlines()) == ["err", "out"]
    assert (bytes(runner.output), bytes(runner.errors)) == (b"out\n", b"err\n")
    assert runner.leave(3) == 3


def test_attempts_follow_each_other_and_each_end_is_told_as_it_was(runner: Runner) -> None:
    """By a status, a signal, before there was a command, for want of one or of a directory."""
    runner.supervise()
    seen = {}
    for script in ("exit 0", "exit 255", "kill -9 $$", "kill -TERM $$", "kill -USR1 $$"):
        ended = runner.attempt("sh", "-c", script)
        seen[script] = (ended["status"], ended["signal"], ended["formed"])
    seen["not found"] = ended_of(runner.attempt("no-such-command"))
    seen["not executable"] = ended_of(runner.attempt("/dev/null"))
    seen["no world"] = ended_of(runner.attempt("true", options=("--nodes", "none")))
    seen["no directory"] = ended_of(runner.attempt("true", directory="/no/such/directory"))
    assert seen == {
        "exit 0": (0, None, True),
        "exit 255": (255, None, True),
        "kill -9 $$": (137, 9, True),
        "kill -TERM $$": (143, 15, True),
        "kill -USR1 $$": (138, 10, True),
        "not found": (127, None, False),
        "not executable": (126, None, False),
        "no world": (64, None, False),
        "no directory": (73, None, False),
    }
    assert [said["attempt"] for said in runner.all_of(messages.CLEAN)] == list(range(9))
    assert "cannot start: /no/such/directory: No such file" in runner.all_of(messages.ENDED)[-1]["tail"]


def ended_of(said: dict[str, object]) -> tuple[object, ...]:
    """Return the status, the signal, and whether there was a world."""
    return said["status"], said["signal"], said["formed"]


def test_a_host_without_a_process_or_descriptor_left_tells_so(runner: Runner) -> None:
    """And is there for the next attempt."""
    runner.supervise()
    assert runner.attempt("true")["status"] == 0  # by now it has loaded all that it ever loads
    usual = resource.prlimit(runner.supervisor, resource.RLIMIT_NOFILE)
    opened = len(os.listdir(f"/proc/{runner.supervisor}/fd"))
    resource.prlimit(runner.supervisor, resource.RLIMIT_NOFILE, (opened + 4, usual[1]))
    ended = runner.attempt("true")
    assert (ended["status"], ended["signal"], ended["formed"]) == (71, None, False)
    assert ended["tail"] == "mingle run: cannot start: Too many open files\n"
    resource.prlimit(runner.supervisor, resource.RLIMIT_NOFILE, usual)
    assert runner.attempt("true")["status"] == 0
    assert len(os.listdir(f"/proc/{runner.supervisor}/fd")) == opened


def test_it_costs_little(runner: Runner) -> None:
    """Memory, and no more than a wake-up for each sign of life."""
    runner.supervise()
    runner.start("sleep", "1000")
    runner.wait_for(messages.FORMED)
    switches = []
    for count in (2, 4):
        runner.until(lambda count=count: len(runner.signs) >= count)  # type: ignore[misc]
        status = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{runner.supervisor}/status").read_text().splitlines()
        )
        switches.append(int(status["voluntary_ctxt_switches"]))
        # What it alone has: files, of which each Python maps others, are shared.
        assert int(status["RssAnon"].split()[0]) < 10_000
    assert switches[1] - switches[0] <= 6  # two, and what a loaded machine adds


def test_a_command_gets_the_environment_directory_and_umask_that_the_runner_says(
    runner: Runner, tmp_path: Path
) -> None:
    """Nothing of the runner's door, standard input at its end, and a session of its own."""
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


def test_modules_in_the_users_directory_are_not_mingles(runner: Runner, tmp_path: Path) -> None:
    """A random.py beside the training is nobody else's, nor is another mingle that PYTHONPATH names."""
    (tmp_path / "mingle_hooks").mkdir()
    for name in ("random.py", "socket.py", "_signal.py", "mingle_hooks/__init__.py"):
        (tmp_path / name).write_text("raise SystemExit(9)\n")
    runner.supervise()
    assert runner.attempt("true", environ={"PYTHONPATH": ""})["status"] == 0
    (tmp_path / "random.py").unlink()
    (tmp_path / "socket.py").unlink()
    assert runner.attempt("true", environ={"PYTHONPATH": str(tmp_path)})["status"] == 0


def test_a_command_whose_world_forms_has_none_of_the_supervisors_connections(runner: Runner) -> None:
    """With a copy there, the runner would not hear of the supervisor's end."""
    runner.supervise()
    facts = {"nodes": 2, "node_rank": 0, "hosts": ["localhost", "missing"], "job_id": runner.run_id}
    runner.start("true", facts=facts, options=("--timeout", "600", "--quiet", "--via", "hosts"))
    runner.until(lambda: children(runner.supervisor))
    (child,) = children(runner.supervisor)
    runner.until(lambda: not sockets(child) & sockets(runner.supervisor))
    assert runner.all_of(messages.ENDED) == []
    runner.end(0.0)
    runner.wait_for(messages.CLEAN)


def children(pid: int) -> list[int]:
    """Return a process's children."""
    return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def sockets(pid: int) -> set[str]:
    """Return a process's sockets, as the kernel names them."""
    found = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.add(os.readlink(path))
    return {name for name in found if name.startswith("socket:")}


def test_options_that_need_other_packages_are_taken(runner: Runner) -> None:
    """What only click reads; a supervisor's own interpreter looks into mingle's directory alone."""
    runner.supervise()
    ended = runner.attempt("true", options=("--timeout", "20", "--quiet", "--id", "-x"))
    assert (ended["status"], ended["formed"], bytes(runner.errors)) == (0, True, b"")


def test_a_signal_is_passed_on_once_an_id_and_only_to_those_that_catch_it(runner: Runner) -> None:
    """Who does not is not killed; TERM goes to all."""
    runner.supervise()
    # Not print(), which refuses to be called by a handler that interrupts it.
    catches = "import os, signal\nfor n in (10, 12): signal.signal(n, lambda n, _: os.write(1, b'caught %d\\n' % n))\n"
    catches += "os.write(1, b'ready\\n')\nwhile True: signal.pause()"
    runner.start("sh", "-c", 'sleep 1000 & python3 -c "$0" & wait', catches)
    runner.until(lambda: b"ready" in runner.output)
    for number, which in ((1, signal.SIGUSR1), (1, signal.SIGUSR1), (2, signal.SIGUSR2)):
        runner.say(messages.SIGNAL, messages.Signal(number, which))
        runner.until(lambda which=which: b"caught %d\n" % which in runner.output)  # type: ignore[misc]
    assert runner.all_of(messages.ENDED) == []
    runner.say(messages.SIGNAL, messages.Signal(3, signal.SIGTERM))
    ended = runner.wait_for(messages.ENDED)
    assert runner.wait_for(messages.CLEAN)["killed"] == 0
    assert ended["signal"] == signal.SIGTERM
    runner.until(lambda: runner.drained)
    assert bytes(runner.output) == b"ready\ncaught 10\ncaught 12\n"


def test_what_reaches_the_supervisor_or_its_warden_is_told_and_ends_nothing(runner: Runner) -> None:
    """A scheduler signals both at once, or one of them: that is one word for each signal."""
    runner.supervise()
    runner.start("sleep", "1000")
    runner.wait_for(messages.FORMED)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGALRM, signal.SIGRTMAX):
        for pid in (runner.supervisor, runner.warden):
            os.kill(pid, number)
    os.kill(runner.warden, signal.SIGINT)
    os.kill(runner.supervisor, signal.SIGUSR2)
    runner.wait_for(messages.NOTICED, 7)
    runner.end()
    runner.wait_for(messages.CLEAN)
    told = sorted(said["signal"] for said in runner.all_of(messages.NOTICED))
    assert told == sorted([1, 2, 10, 12, 14, 15, 64])
    assert runner.leave(143) == 143


def test_a_signal_that_nohup_ignores_stays_ignored(runner: Runner) -> None:
    """By the command, too."""
    runner.supervise(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    runner.attempt("python3", "-c", "import signal; print(signal.getsignal(signal.SIGHUP).name)")
    os.kill(runner.supervisor, signal.SIGHUP)
    os.kill(runner.supervisor, signal.SIGUSR1)
    runner.wait_for(messages.NOTICED)
    assert bytes(runner.output) == b"SIG_IGN\n"
    assert [said["signal"] for said in runner.all_of(messages.NOTICED)] == [signal.SIGUSR1]


@pytest.mark.parametrize("redirection", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full 2>/dev/full"])
def test_standard_streams_may_be_closed(runner: Runner, redirection: str) -> None:
    """Nothing of the supervisor's gets their numbers."""
    runner.supervise(before=("sh", "-c", f'exec "$@" {redirection}', "sh"))
    ended = runner.attempt("sh", "-c", "cat; echo out; echo err >&2")
    assert (ended["status"], bytes(runner.output), bytes(runner.errors)) == (0, b"out\n", b"err\n")
    runner.vanish()
    assert runner.exit_status() == 75


def test_signs_of_life_carry_the_number_that_the_runner_gave(runner: Runner) -> None:
    """And count on."""
    runner.supervise()
    runner.until(lambda: len(runner.signs) >= 2)
    assert [(sign.number, sign.sequence) for sign in runner.signs[:2]] == [(NUMBER, 1), (NUMBER, 2)]


def test_a_runner_that_vanishes_ends_all_at_once(runner: Runner) -> None:
    """Also what ignores TERM, after the grace; the exit status says that trying again makes sense."""
    runner.supervise(stderr=subprocess.PIPE)
    runner.start("sh", "-c", "trap '' TERM; sleep 1000 & while :; do wait; done")
    runner.wait_for(messages.FORMED)
    runner.vanish()
    assert runner.exit_status() == 75
    assert runner.processes() == {}
    assert "the runner is lost: it closed the connection" in runner.emergency()


@pytest.mark.parametrize("frozen", [False, True])
def test_a_silent_runner_is_lost(tmp_path: Path, *, frozen: bool) -> None:
    """Its connections stay as they are; a word on one of them is a sign as good as a datagram."""
    with Runner(tmp_path, silence_s=2.0, answers=False) as runner:
        runner.supervise(stderr=subprocess.PIPE)
        runner.start("sleep", "1000")
        runner.wait_for(messages.FORMED)
        if not frozen:
            runner.until(lambda: is_told(runner) and len(runner.signs) >= 7)  # two a second
            assert runner.all_of(messages.ENDED) == []
        assert runner.exit_status() == 75
        assert runner.processes() == {}
        assert "it is silent" in runner.emergency()


def is_told(runner: Runner) -> bool:
    """Say something that changes nothing."""
    runner.say(messages.SIGNAL, messages.Signal(0, signal.SIGWINCH))
    return True


def test_a_stop_of_its_own_is_not_the_runners_silence(tmp_path: Path) -> None:
    """A scheduler suspends all of a job for longer than that, and lets it go on."""
    with Runner(tmp_path, silence_s=1.0) as runner:
        runner.supervise()
        runner.start("sleep", "1000")
        runner.wait_for(messages.FORMED)
        runner.answers, signs = False, len(runner.signs)  # it was stopped first
        runner.until(lambda: len(runner.signs) > signs)
        suspended = [*runner.processes()]
        for pid in suspended:
            os.kill(pid, signal.SIGSTOP)
        until = time.monotonic() + 2.5
        runner.until(lambda: time.monotonic() > until)
        runner.answers, signs = True, len(runner.signs)
        for pid in suspended:
            os.kill(pid, signal.SIGCONT)
        runner.until(lambda: len(runner.signs) >= signs + 5 or runner.ends)
        assert runner.ends == []
        assert runner.leave() == 0


def test_old_signs_of_the_runner_do_not_count(tmp_path: Path) -> None:
    """Who has heard one sends it again and again."""
    with Runner(tmp_path, silence_s=1.0) as runner:
        runner.sequence = lambda: 1
        runner.supervise()
        assert runner.exit_status() == 75


def test_a_signal_without_a_runner_ends_it(tmp_path: Path) -> None:
    """Nobody would decide what it means."""
    with Runner(tmp_path) as runner:
        runner.close_doors()
        runner.supervise(wait=False, stderr=subprocess.PIPE)
        runner.until(lambda: is_caught(runner.warden, signal.SIGTERM))
        os.kill(runner.warden, signal.SIGTERM)
        assert runner.exit_status() == 75
        assert "before a runner was found" in runner.emergency()


def is_caught(pid: int, number: int) -> bool:
    """Tell whether a process has a handler by now."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> (number - 1) & 1)


def broken(runner: Runner) -> None:
    """Say START while an attempt runs."""
    runner.start("sleep", "1000")
    runner.start("sleep", "1000", attempt=1)


def unknown(runner: Runner) -> None:
    """Say what only a supervisor says."""
    runner.start("sleep", "1000")
    runner.say(messages.FORMED, {})


@pytest.mark.parametrize("wrong", [broken, unknown])
def test_what_no_runner_says_ends_the_connection(runner: Runner, wrong: Callable[[Runner], None]) -> None:
    """And with it all that runs."""
    runner.supervise()
    wrong(runner)
    assert runner.exit_status() == 75


def test_it_leaves_when_told_with_nothing_left_behind(runner: Runner) -> None:
    """Also before the command has ended."""
    runner.supervise()
    runner.start("sh", "-c", "trap '' TERM; echo there; while :; do sleep 1000; done")
    runner.until(lambda: runner.output)
    assert runner.leave(9) == 9
    assert runner.processes() == {}
