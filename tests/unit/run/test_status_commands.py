"""`mingle ls`, `show` and `kill` as a person calls them, for runs of a test and real ones."""

from __future__ import annotations

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
from served import KEY, OTHER_KEY, Served

from mingle_hooks.run import status
from mingle_hooks.run.status import RunnerProcess

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

    def listed(self) -> list[dict[str, Any]]:
        """Return the runs that there are."""
        found: list[dict[str, Any]] = json.loads(self.mingle("ls", "--json").stdout)
        return found

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
    """Serve a run of the user's, beside another that nobody answers for."""
    serving = Served(user.runs)
    serving.world()
    lost = serving.world("4712", "44556677")
    lost._reception.close()
    status.write_entry(str(user.runs), lost.entry._replace(process=RunnerProcess("elsewhere", 1, 1)))
    with serving:
        yield serving
    serving.close()


def moment(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def test_ls_shows_each_run_on_a_line(user: User, two: Served) -> None:
    done = user.mingle("ls")
    began = [moment(world.entry.began) for world in two.worlds]
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "ID    STATE        NODES  ATTEMPT  SINCE                HOST   COMMAND",
        f"4711  running      1/2    1        {began[0]}  node1  torchrun train.py",
        f"4712  unreachable  ?/2    -        {began[1]}  node1  torchrun train.py",
    ]
    first, second = user.listed()
    entry = two.worlds[0].entry
    assert first == {
        "id": "4711",
        "run": "00112233aabbccdd",
        "state": "running",
        "here": 1,
        "wanted": 2,
        "attempt": 1,
        "restarts": 3,
        "began": entry.began,
        "since": entry.began,
        "host": "node1",
        "pid": os.getpid(),
        "command": "torchrun train.py",
    }
    assert (second["run"], second["state"], second["here"]) == ("44556677", "unreachable", None)


def test_show_tells_who_is_in_who_is_missing_and_the_last_failure(user: User, two: Served) -> None:
    done = user.mingle("show", "0011")
    at, began = moment(1_700_000_000), moment(two.worlds[0].entry.began)
    assert (done.returncode, done.stderr) == (0, "")
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


def test_a_run_that_does_not_answer_is_neither_shown_nor_taken_for_ended(user: User, two: Served) -> None:
    shown, killed = user.mingle("show", "4712"), user.mingle("kill", "4712")
    assert (shown.returncode, killed.returncode, killed.stdout) == (69, 69, "")
    assert "state    unreachable" in shown.stdout
    assert shown.stderr == killed.stderr
    assert f"rm {two.path}/44556677.json" in killed.stderr
    assert (two.path / "44556677.json").exists()


def test_kill_waits_for_the_end_and_says_with_which_status(user: User, two: Served) -> None:
    """Then it is gone."""
    done = user.mingle("kill", "--now", "4711")
    assert (done.returncode, done.stdout, done.stderr) == (0, "run 4711 has ended with status 130\n", "")
    assert two.kills == [("00112233aabbccdd", True)]
    again = user.mingle("kill", "4711")
    assert (again.returncode, again.stdout) == (64, "")
    assert "expected the id of a run; saw 4711; try 4712" in again.stderr


def test_with_another_key_nothing_is_shown_and_nothing_dies(user: User, two: Served) -> None:
    for words in (("ls",), ("show", "4711"), ("kill", "--now", "00112233aabbccdd")):
        done = user.mingle(*words, key=OTHER_KEY)
        assert (done.stdout, done.returncode) == ("", 0 if words == ("ls",) else 64)
        assert "mingle: 2 runs have another key than those found here" in done.stderr
    assert two.kills == []


def test_the_key_may_be_the_one_in_the_home_or_in_a_file(user: User, two: Served) -> None:
    user.write_key()
    assert [row["state"] for row in user.listed()] == ["running", "unreachable"]
    file = (user.home / ".config" / "mingle" / "key").rename(user.home / "key")
    assert "running" in user.mingle("ls", "--key-file", str(file), key=None).stdout
    assert two.kills == []


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
    first = until(ours, b"unreachable")
    assert first.startswith(b"\x1b[H\x1b[2JID")
    assert b"running" in until(lines.stdout.fileno(), b"unreachable")
    two.call(lambda: two.worlds[0].close(0))
    change = until(lines.stdout.fileno(), b"torchrun")
    assert change.split()[:2] == [b"4711", b"ended"]
    later = until(ours, b"\x1b[2J")
    later += until(ours, b"torchrun")
    assert b"running" not in later.partition(b"\x1b[2J")[2]
    os.close(ours)


def test_a_run_is_shown_and_ended_and_leaves_nothing(user: User) -> None:
    child = user.run(PATIENT)
    (row,) = user.listed()
    assert (row["state"], row["here"], row["wanted"], row["attempt"], row["pid"]) == ("running", 1, 1, 0, child.pid)
    assert row["command"] == f"sh -c '{PATIENT}'"
    whole = json.loads(user.mingle("show", "--json", row["id"][:6]).stdout)
    assert ([node["state"] for node in whole["nodes"]], whole["missing"], whole["failure"]) == (["running"], [], None)
    done = user.mingle("kill", row["id"][:6])
    assert (done.returncode, done.stdout) == (0, f"run {row['id']} has ended with status 143\n")
    assert child.wait() == 143
    assert "mingle run: `mingle kill` was called\n" in child.communicate()[1]
    assert (user.listed(), os.listdir(user.runs)) == ([], [])


def test_a_run_that_still_gathers_is_shown_and_ended(user: User) -> None:
    (user.home / "bin" / "ssh").write_text("#!/bin/sh\nexec sleep 600\n")
    child = user.start("true", hosts="a,b")
    while not user.listed():
        assert child.poll() is None
    (row,) = user.listed()
    assert (row["state"], row["here"], row["wanted"], row["attempt"]) == ("gathering", 0, 2, None)
    assert json.loads(user.mingle("show", "--json", row["id"]).stdout)["missing"] == ["a", "b"]
    assert user.mingle("kill", row["id"]).returncode == 0
    assert (child.wait(), os.listdir(user.runs)) == (143, [])


def test_a_command_that_does_not_end_is_ended_at_once_with_now(user: User) -> None:
    child = user.run(STUBBORN, "--grace", "600")
    (row,) = user.listed()
    early = user.mingle("kill", "--timeout", "1", row["id"])
    assert (early.returncode, child.poll()) == (69, None)
    assert f"try `mingle kill --now {row['id']}`" in early.stderr
    assert [run["id"] for run in user.listed()] == [row["id"]]
    done = user.mingle("kill", "--now", row["id"])
    assert (done.returncode, done.stdout) == (0, f"run {row['id']} has ended with status 143\n")
    assert child.wait() == 143
    assert os.listdir(user.runs) == []


def test_without_a_key_a_run_is_not_written_down_and_runs(user: User) -> None:
    done = user.mingle("run", "--alone", "true", key=None)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (user.home / ".local").exists()


def test_a_command_of_the_run_can_ask_with_what_it_was_given(user: User) -> None:
    user.write_key()
    done = user.mingle("run", "--alone", "--no-label", str(MINGLE), "ls", "--json", key=None)
    assert [row["state"] for row in json.loads(done.stdout)] == ["running"]
