"""`mingle ls`, `show` and `kill` as a person calls them, for runs of a test and real ones."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import Forked
from places import MINGLE, Places
from served import KEY, OTHER_KEY, Served, status_of

from mingle_hooks.run.status import RunnerProcess, write_status

# Says that it is there; then waits, whoever tells it to end.
STUBBORN = "trap '' TERM INT; echo here; while :; do sleep 60 & wait; done"
PATIENT = "echo here; exec sleep 600"


class User(Places):
    """A user with a home of its own."""

    def __init__(self, home: Path, forked: Forked) -> None:
        super().__init__(home)
        self.home, self._forked = home, forked
        self.runs = home / ".local" / "state" / "mingle" / "runs"
        self.environ |= {"MINGLE_KEY": KEY.decode()}
        self.environ.pop("XDG_STATE_HOME", None)

    def mingle(self, *words: str, key: bytes | None = b"") -> subprocess.CompletedProcess[str]:
        """Return what a command says with another key than the user's, or (None) with none in its environment."""
        environ = self.environ | ({"MINGLE_KEY": key.decode()} if key else {})
        if key is None:
            environ.pop("MINGLE_KEY", None)
        return self._forked.run(*words, env=environ, cwd=self.home)

    def run(self, script: str, *options: str) -> subprocess.Popen[str]:
        """Begin a run on this host, and wait until COMMAND is there, and the run's file says so."""
        child = self.start(*options, "sh", "-c", script, hosts="")
        assert child.stdout is not None
        assert child.stdout.readline() == "here\n"
        self.until(lambda: [row["state"] for row in self.listed()] == ["running"], "the run is not listed")
        return child

    def listed(self, *options: str) -> list[dict[str, Any]]:
        """Return the runs that there are."""
        found: list[dict[str, Any]] = json.loads(self.mingle("ls", "--json", *options).stdout)
        return found


@pytest.fixture
def user(tmp_path: Path, forked: Forked) -> Iterator[User]:
    """Return a user who has begun nothing yet."""
    made = User(tmp_path, forked)
    yield made
    made.close()


@pytest.fixture
def two(user: User) -> Iterator[Served]:
    """Serve a run of the user's, beside another, of another host, that is silent for a minute."""
    serving = Served(user.runs)
    serving.run()
    write_status(str(user.runs), status_of("4712", "44556677")._replace(process=RunnerProcess("elsewhere", 1, 1)))
    os.utime(user.runs / "44556677.json", (time.time() - 60,) * 2)
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
    world = {"here": 1, "wanted": 2, "attempt": 1, "restarts": 3, "began": run.began, "since": run.began}
    what = {"host": "node1", "pid": os.getpid(), "command": "torchrun train.py", "scheduler": "local", "job": None}
    state = {"id": "4711", "run": "00112233aabbccdd", "state": "running", "status": None}
    assert user.listed()[0] == world | what | state


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


def test_kill_ends_a_run_for_holders_of_its_key_alone_and_says_with_which_status(user: User, two: Served) -> None:
    """The key may be in a file; a second call says the same."""
    refused = user.mingle("kill", "--now", "00112233aabbccdd", key=OTHER_KEY)
    assert (refused.stdout, refused.returncode, two.kills) == ("", 77, [])
    assert "expected a key that run 4711 takes `mingle kill` with; saw none of them; try --key-file" in refused.stderr
    file = user.home / "key"
    file.write_bytes(KEY)
    file.chmod(0o600)
    assert user.mingle("kill", "--timeout", "1", "--key-file", str(file), "4711", key=None).returncode == 69
    for _ in range(2):
        done = user.mingle("kill", "--now", "4711")
        assert (done.returncode, done.stdout, done.stderr) == (0, "run 4711 has ended with status 130\n", "")
    assert [now for _, now in two.kills] == [False, True]


def test_a_run_of_this_host_ends_without_a_key(user: User) -> None:
    del user.environ["MINGLE_KEY"]
    child = user.run(PATIENT, "--id", "mine")
    done = user.mingle("kill", "mine", key=None)
    assert done.stderr == f"mingle: run mine does not answer; sending SIGTERM to process {child.pid}\n"
    assert (done.returncode, done.stdout) == (0, "run mine has ended with status 143\n")
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


def test_a_command_of_the_run_can_end_it_with_what_it_was_given(user: User) -> None:
    """The user's key is the one in the home."""
    file = user.home / ".config" / "mingle" / "key"
    file.parent.mkdir(parents=True)
    file.write_bytes(KEY)
    file.chmod(0o600)
    done = user.mingle("run", "--alone", "--id", "mine", str(MINGLE), "kill", "mine", key=None)
    assert (done.returncode, done.stdout) == (143, "")
    assert "mingle run: `mingle kill` was called\n" in done.stderr
