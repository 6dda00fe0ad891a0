"""Real runs on this machine: shown from their beginning to their end, and ended, on every path."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

MINGLE = Path(sys.executable).parent / "mingle"
KEY = "0123456789abcdef" * 4
# Says that it is there; then waits, whoever tells it to end.
STUBBORN = "trap '' TERM INT; echo here; while :; do sleep 60 & wait; done"
PATIENT = "echo here; exec sleep 600"


class User:
    """A user with a home of its own; what it has begun is ended."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.runs = home / ".local" / "state" / "mingle" / "runs"
        left = ("MINGLE_", "SLURM_", "PBS_", "XDG_")
        own = {name: value for name, value in os.environ.items() if not name.startswith(left)}
        self.environ = {**own, "HOME": str(home), "MINGLE_KEY": KEY}
        self._begun: list[subprocess.Popen[str]] = []

    def mingle(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Return what a command says."""
        its = {**self.environ, **environ}
        return subprocess.run([MINGLE, *words], capture_output=True, text=True, check=False, env=its)

    def run(self, script: str, *options: str, said: str = "here\n", **environ: str) -> subprocess.Popen[str]:
        """Begin a run, and wait until COMMAND is there."""
        child = self.begin(script, *options, **environ)
        assert child.stdout is not None
        assert child.stdout.readline() == said
        return child

    def begin(self, script: str, *options: str, **environ: str) -> subprocess.Popen[str]:
        """Begin a run."""
        child = subprocess.Popen(
            [MINGLE, "run", *(() if "--hosts" in options else ("--alone",)), *options, "sh", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.environ, **environ},
        )
        self._begun.append(child)
        return child

    def listed(self) -> list[dict[str, Any]]:
        """Return the runs that there are."""
        found: list[dict[str, Any]] = json.loads(self.mingle("ls", "--json").stdout)
        return found

    def end(self) -> None:
        """End what is left."""
        for child in self._begun:
            if child.poll() is None:
                child.kill()
            child.communicate()


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    """Return a user who has begun nothing yet."""
    made = User(tmp_path)
    yield made
    made.end()


def test_a_run_is_shown_and_ended_and_leaves_nothing(user: User) -> None:
    """By the beginning of its id."""
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
    """Nobody has come yet."""
    ssh = user.home / "ssh"
    ssh.write_text("#!/bin/sh\nexec sleep 600\n")
    ssh.chmod(0o755)
    child = user.begin("true", "--hosts", "a,b", PATH=f"{user.home}:{os.environ['PATH']}")
    while not user.listed():
        assert child.poll() is None
    (row,) = user.listed()
    assert (row["state"], row["here"], row["wanted"], row["attempt"]) == ("gathering", 0, 2, None)
    assert json.loads(user.mingle("show", "--json", row["id"]).stdout)["missing"] == ["a", "b"]
    assert user.mingle("kill", row["id"]).returncode == 0
    assert (child.wait(), os.listdir(user.runs)) == (143, [])


def test_a_command_that_does_not_end_is_ended_at_once_with_now(user: User) -> None:
    """Before that it has its grace; nothing of it is left."""
    child = user.run(STUBBORN, "--grace", "600")
    (row,) = user.listed()
    early = user.mingle("kill", "--timeout", "1", row["id"])
    assert (early.returncode, child.poll()) == (69, None)
    assert [its["id"] for its in user.listed()] == [row["id"]]
    done = user.mingle("kill", "--now", row["id"])
    assert (done.returncode, done.stdout) == (0, f"run {row['id']} has ended with status 143\n")
    assert child.wait() == 143
    assert os.listdir(user.runs) == []


def test_of_a_run_that_fails_again_and_again_the_last_failure_is_shown(user: User) -> None:
    """With its last lines, while the next attempt runs; its own end leaves nothing either."""
    script = "[ $MINGLE_ATTEMPT = 0 ] && { echo a line of $MINGLE_ATTEMPT; exit 7; }; echo here; read -r _ <$FIFO"
    fifo = user.home / "fifo"
    os.mkfifo(fifo)
    child = user.run(script, "--restarts", "1", said="a line of 0\n", FIFO=str(fifo))
    assert child.stdout is not None
    assert child.stdout.readline() == "here\n"
    (row,) = user.listed()
    shown = user.mingle("show", row["run"]).stdout.splitlines()
    assert "attempt  1, of at most 1" in shown
    assert re.search(r": exited with status 7 after \d+ s; its last lines:$", shown[-2])
    assert shown[-1] == "  a line of 0"
    fifo.write_text("\n")
    assert child.wait() == 0
    assert os.listdir(user.runs) == []


def test_with_another_key_nothing_is_shown_and_nothing_dies(user: User) -> None:
    """By the file's name neither."""
    child = user.run(PATIENT)
    run = os.listdir(user.runs)[0].removesuffix(".json")
    for words in (["ls"], ["show", run], ["kill", "--now", run]):
        assert user.mingle(*words, MINGLE_KEY=KEY[::-1]).stdout == ""
    assert child.poll() is None
    assert user.mingle("kill", run).returncode == 0


def test_what_a_killed_runner_left_is_not_shown(user: User) -> None:
    """And is removed."""
    child = user.run(PATIENT)
    assert len(os.listdir(user.runs)) == 1
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert (user.listed(), os.listdir(user.runs)) == ([], [])


def test_a_runner_that_has_been_stopped_is_unreachable(user: User) -> None:
    """It is shown, and not taken for ended."""
    child = user.run(PATIENT)
    child.send_signal(signal.SIGSTOP)
    (row,) = user.listed()
    assert row["state"] == "unreachable"
    child.send_signal(signal.SIGCONT)
    assert user.mingle("kill", row["id"]).returncode == 0


def test_without_a_key_a_run_is_not_written_down_and_runs(user: User) -> None:
    """Where the home is this machine's alone, none is made."""
    del user.environ["MINGLE_KEY"]
    done = user.mingle("run", "--alone", "true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [*user.home.iterdir()] == []


def test_a_home_that_cannot_be_written_is_one_note(user: User) -> None:
    """And no failure."""
    (user.home / ".local").write_text("a file")
    done = user.mingle("run", "--alone", "true")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert done.stderr.startswith("mingle run: `mingle ls` does not show this run: ")


def test_a_command_of_the_run_can_ask_with_what_it_was_given(user: User) -> None:
    """Where the user's key lies in the home, and the run made one of its own for its members."""
    del user.environ["MINGLE_KEY"]
    directory = user.home / ".config" / "mingle"
    directory.mkdir(parents=True)
    (directory / "key").write_text(KEY)
    (directory / "key").chmod(0o600)
    done = user.mingle("run", "--alone", "--no-label", str(MINGLE), "ls", "--json")
    assert [row["state"] for row in json.loads(done.stdout)] == ["running"]
