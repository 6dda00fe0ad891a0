"""`mingle ls`, `show` and `kill` as a person calls them, for runs of a test and real ones."""

import json
import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from places import MINGLE, Places
from served import KEY, OTHER_KEY, Served, status_of
from support.executables import executable

from mingle_hooks.run.status import Listener, RunnerProcess, RunStatus, kill_secret, kill_tag, write_status

# Says that it is there; then waits, whoever tells it to end.
STUBBORN = "trap '' TERM INT; echo here; while :; do sleep 60 & wait; done"
PATIENT = "echo here; exec sleep 600"


class User(Places):
    """A user with a home of its own."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.home = home
        self.runs = home / ".local" / "state" / "mingle" / "runs"
        self.environ |= {"MINGLE_KEY": KEY.decode()}
        self.environ.pop("XDG_STATE_HOME", None)

    def mingle(self, *words: str, key: bytes | None = b"") -> subprocess.CompletedProcess[str]:
        """Return what a command says with another key than the user's, or (None) with none in its environment."""
        environ = self.environ | ({"MINGLE_KEY": key.decode()} if key else {})
        if key is None:
            environ.pop("MINGLE_KEY", None)
        return subprocess.run([MINGLE, *words], capture_output=True, text=True, check=False, env=environ)

    def run(self, script: str, *options: str) -> subprocess.Popen[str]:
        """Begin a run on this host, and wait until COMMAND is there."""
        child = self.start(*options, "sh", "-c", script, hosts="")
        assert child.stdout is not None
        assert child.stdout.readline() == "here\n"
        return child

    def watch(self, stdout: int) -> subprocess.Popen[Any]:
        """Watch the runs."""
        self._runs.append(subprocess.Popen([MINGLE, "ls", "--watch"], env=self.environ, stdout=stdout))
        return self._runs[-1]

    def listed(self, *options: str) -> list[dict[str, Any]]:
        """Return the runs that there are."""
        found: list[dict[str, Any]] = json.loads(self.mingle("ls", "--json", *options).stdout)
        return found

    def silent(self, **its: object) -> RunStatus:
        """Write down a run that nothing was heard of for a minute, on another host."""
        run = status_of("4712", "44556677")._replace(process=RunnerProcess("elsewhere", 1, 1), **its)
        write_status(str(self.runs), run)
        os.utime(self.runs / f"{run.run}.json", (time.time() - 60,) * 2)
        return run

    def write_key(self) -> None:
        """Put the key into the home, in place of the environment."""
        del self.environ["MINGLE_KEY"]
        file = self.home / ".config" / "mingle" / "key"
        file.parent.mkdir(parents=True)
        file.write_bytes(KEY)
        file.chmod(0o600)


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    """Return a user who has begun nothing yet."""
    made = User(tmp_path)
    yield made
    made.close()


@pytest.fixture
def two(user: User) -> Iterator[Served]:
    """Serve a run of the user's, beside another that is silent."""
    serving = Served(user.runs)
    serving.run()
    user.silent()
    with serving:
        yield serving
    serving.close()


def moment(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def test_ls_shows_each_run_on_a_line(user: User, two: Served) -> None:
    """--all also those that have ended."""
    (run,) = two.runs
    write_status(str(user.runs), run._replace(id="4700", run="99", state="ended", status=7))
    done = user.mingle("ls", key=None)
    began = moment(run.began)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "ID    STATE    NODES  ATTEMPT  SINCE                HOST   COMMAND",
        f"4711  running  1/2    1        {began}  node1  torchrun train.py",
        f"4712  silent   1/2    1        {began}  node1  torchrun train.py",
    ]
    assert "\n4700  ended (7)  " in user.mingle("ls", "--all").stdout
    assert user.listed()[0] == {
        "id": "4711",
        "run": "00112233aabbccdd",
        "state": "running",
        "here": 1,
        "wanted": 2,
        "attempt": 1,
        "restarts": 3,
        "began": run.began,
        "since": run.began,
        "host": "node1",
        "pid": os.getpid(),
        "command": "torchrun train.py",
        "scheduler": "local",
        "job": None,
        "status": None,
    }


def test_show_tells_who_is_in_who_is_missing_and_the_last_failure(user: User, two: Served) -> None:
    done = user.mingle("show", "0011", key=None)
    at, began = moment(1_700_000_000), moment(two.runs[0].began)
    assert (done.returncode, done.stderr) == (0, "mingle: 0011: run 4711 (00112233aabbccdd)\n")
    assert done.stdout.splitlines() == [
        "id       4711",
        "run      00112233aabbccdd",
        f"state    running since {began}",
        "nodes    1 of 2",
        "attempt  1, of at most 3",
        f"began    {began}",
        f"runner   node1, process {os.getpid()}",
        "command  torchrun train.py",
        "",
        "NODE   STATE    RANK  SINCE",
        f"node1  running  0     {at}",
        "node2  missing  -     -",
        "",
        f"last failure, {at} of attempt 0:",
        "node2 (rank 1): exited with status 7 after 12 s; its last lines:",
        "  a line",
        r"  red \x1b[31m and a bell \x07",
    ]
    whole = json.loads(user.mingle("show", "--json", "4711").stdout)
    assert whole["missing"] == ["node2"]
    assert whole["nodes"][0] == {"host": "node1", "local": 0, "state": "running", "rank": 0, "since": 1_700_000_000}
    assert whole["failure"]["cause"]["tail"].endswith("bell \x07\n")


def test_show_follows_a_run_until_its_end_and_shows_it_afterwards(user: User, two: Served) -> None:
    following = subprocess.Popen([MINGLE, "show", "--watch", "4711"], env=user.environ, stdout=subprocess.PIPE)
    assert following.stdout is not None
    until(following.stdout.fileno(), b"state    running")
    two.end(two.runs[0], 7)
    assert b"state    ended (7) since" in following.communicate()[0]
    assert "state    ended (7) since" in user.mingle("show", "4711").stdout


def test_kill_waits_for_the_end_and_says_with_which_status(user: User, two: Served) -> None:
    """Again, it says the same."""
    for _ in range(2):
        done = user.mingle("kill", "--now", "4711")
        assert (done.returncode, done.stdout, done.stderr) == (0, "run 4711 has ended with status 130\n", "")
    assert two.kills == [("00112233aabbccdd", True)]


def test_kill_cancels_the_job_of_a_run_that_does_not_answer(user: User, two: Served) -> None:
    """Without a job it says which host to try."""
    alone = user.mingle("kill", "4712")
    assert (alone.returncode, alone.stdout) == (69, "")
    assert "expected an answer from run 4712 (process 1 on node1)" in alone.stderr
    nobody = Listener(kill_tag(kill_secret(KEY, "44556677")), 1)
    run = user.silent(scheduler="slurm", job="31", listeners=(nobody,))
    write_status(str(user.home), run._replace(state="ended", status=143))
    ends = f"mv {user.home}/{run.run}.json {user.runs}"
    executable(user.home / "bin" / "scancel", f'#!/bin/sh\necho "cancel $*" >&2\n{ends}\n')
    done = user.mingle("kill", run.run)
    assert done.stderr == "mingle: run 4712 does not answer; running scancel 31\ncancel 31\n"
    assert (done.returncode, done.stdout) == (0, "run 4712 has ended with status 143\n")
    assert two.kills == []


@pytest.mark.parametrize(("option", "status", "sent"), [((), 143, "SIGTERM"), (("--now",), 130, "SIGINT twice")])
def test_a_run_of_this_host_ends_without_a_key(user: User, option: tuple[str, ...], status: int, sent: str) -> None:
    del user.environ["MINGLE_KEY"]
    child = user.run(PATIENT, "--id", "mine")
    done = user.mingle("kill", *option, "mine", key=None)
    assert done.stderr == f"mingle: run mine does not answer; sending {sent} to process {child.pid}\n"
    assert (done.returncode, done.stdout) == (0, f"run mine has ended with status {status}\n")
    assert child.wait() == status


def test_with_another_key_nothing_dies(user: User, two: Served) -> None:
    done = user.mingle("kill", "--now", "00112233aabbccdd", key=OTHER_KEY)
    assert (done.stdout, done.returncode) == ("", 77)
    assert "expected a key that run 4711 takes `mingle kill` with; saw none of them; try --key-file" in done.stderr
    assert two.kills == []


def test_the_key_may_be_the_one_in_the_home_or_in_a_file(user: User, two: Served) -> None:
    user.write_key()
    assert user.mingle("kill", "--timeout", "1", "4711", key=None).returncode == 69
    file = (user.home / ".config" / "mingle" / "key").rename(user.home / "key")
    assert user.mingle("kill", "--now", "--key-file", str(file), "4711", key=None).returncode == 0
    assert [now for _, now in two.kills] == [False, True]


def test_with_no_runs_there_is_nothing_to_show(user: User) -> None:
    done = user.mingle("ls")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "mingle: no runs\n")
    assert user.listed() == []
    assert "mingle ls" in user.mingle("show", "a").stderr


def until(descriptor: int, text: bytes) -> bytes:
    """Read until a text has come."""
    found = b""
    while text not in found:
        assert select.select([descriptor], [], [], 60)[0], found
        found += os.read(descriptor, 4096)
    return found


def test_watch_draws_on_a_terminal_and_prints_changes_elsewhere(user: User, two: Served) -> None:
    ours, theirs = pty.openpty()
    user.watch(theirs)
    lines = user.watch(subprocess.PIPE)
    os.close(theirs)
    assert lines.stdout is not None
    first = until(ours, b"silent")
    assert first.startswith(b"\x1b[H\x1b[2JID")
    assert b"running" in until(lines.stdout.fileno(), b"silent")
    two.end(two.runs[0], 0)
    change = until(lines.stdout.fileno(), b"torchrun")
    assert change.split()[:3] == [b"4711", b"ended", b"(0)"]
    later = until(ours, b"\x1b[2J")
    later += until(ours, b"torchrun")
    assert b"running" not in later.partition(b"\x1b[2J")[2]
    os.close(ours)


def test_a_runner_that_is_killed_has_a_state_of_its_own(user: User) -> None:
    child = user.run(PATIENT)
    (row,) = user.listed()
    child.kill()
    child.wait()
    assert user.listed() == []
    assert user.listed("--all")[0]["state"] == "killed"
    killed = user.mingle("kill", row["id"])
    assert (killed.returncode, killed.stdout) == (
        0,
        f"run {row['id']} has ended: its process on {row['host']} was killed\n",
    )


def test_a_run_that_still_gathers_is_shown_and_ended(user: User) -> None:
    (user.home / "bin" / "ssh").write_text("#!/bin/sh\nexec sleep 600\n")
    child = user.start("true", hosts="a,b")
    while not user.listed():
        assert child.poll() is None
    (row,) = user.listed()
    assert (row["state"], row["here"], row["wanted"], row["attempt"]) == ("gathering", 0, 2, None)
    assert json.loads(user.mingle("show", "--json", row["id"]).stdout)["missing"] == ["a", "b"]
    assert user.mingle("kill", row["id"]).returncode == 0
    assert child.wait() == 143


def test_a_command_that_does_not_end_is_ended_at_once_with_now(user: User) -> None:
    child = user.run(STUBBORN, "--grace", "600")
    (row,) = user.listed()
    early = user.mingle("kill", "--timeout", "1", row["id"])
    assert (early.returncode, child.poll()) == (69, None)
    assert f"try `mingle kill --now {row['id']}`" in early.stderr
    assert [(run["id"], run["state"], run["pid"]) for run in user.listed()] == [(row["id"], "running", child.pid)]
    done = user.mingle("kill", "--now", row["id"])
    assert (done.returncode, done.stdout) == (0, f"run {row['id']} has ended with status 143\n")
    assert child.wait() == 143


def test_a_run_without_a_key_is_shown(user: User) -> None:
    done = user.mingle("run", "--alone", "false", key=None)
    assert (done.returncode, done.stdout) == (1, "")
    assert [(row["state"], row["status"]) for row in user.listed("--all")] == [("ended", 1)]


def test_a_command_of_the_run_can_end_it_with_what_it_was_given(user: User) -> None:
    user.write_key()
    done = user.mingle("run", "--alone", "--id", "mine", str(MINGLE), "kill", "mine", key=None)
    assert (done.returncode, done.stdout) == (143, "")
    assert "mingle run: `mingle kill` was called\n" in done.stderr
