"""`mingle ls`, `mingle show` and `mingle kill` as a person calls them."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from supervise.worlds.served import KEY, OTHER_KEY, Served

from mingle_hooks.run import status as registry
from mingle_hooks.run.status import RunnerProcess as Process

if TYPE_CHECKING:
    from collections.abc import Iterator

MINGLE = Path(sys.executable).parent / "mingle"
NOBODY = Process("elsewhere", 1, 1)


def mingle(served: Served, *words: str, key: bytes | None = KEY) -> subprocess.CompletedProcess[str]:
    """Return what a command says."""
    return subprocess.run([MINGLE, *words], capture_output=True, text=True, check=False, env=environ(served, key))


def environ(served: Served, key: bytes | None = KEY) -> dict[str, str]:
    """Return the environment of the runs' user."""
    found = {**os.environ, "HOME": str(served.path.parents[2]), "XDG_STATE_HOME": str(served.path.parents[1])}
    found = {name: value for name, value in found.items() if not name.startswith(("MINGLE_", "SLURM_", "PBS_"))}
    return found | ({} if key is None else {"MINGLE_KEY": key.decode()})


@pytest.fixture
def two(served: Served) -> Iterator[Served]:
    """Return what serves a run, and has another that nobody answers for."""
    served.world()
    lost = served.world("4712", "44556677")
    lost._shut()
    registry.write_entry(str(served.path), lost.entry._replace(process=NOBODY))
    with served:
        yield served


def test_ls_shows_each_run_on_a_line(two: Served) -> None:
    """One that does not answer, too."""
    done = mingle(two, "ls")
    assert (done.returncode, done.stderr) == (0, "")
    began = [time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(world.entry.began)) for world in two.worlds]
    assert done.stdout.splitlines() == [
        "ID    STATE        NODES  ATTEMPT  SINCE                HOST   COMMAND",
        f"4711  running      1/2    1        {began[0]}  node1  torchrun train.py",
        f"4712  unreachable  ?/2    -        {began[1]}  node1  torchrun train.py",
    ]


def test_ls_for_programs(two: Served) -> None:
    """All that is known of each."""
    done = mingle(two, "ls", "--json")
    first, second = json.loads(done.stdout)
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


def test_show_tells_who_is_in_who_is_missing_and_the_last_failure(two: Served) -> None:
    """Nothing of what a program wrote reaches the terminal as it is."""
    done = mingle(two, "show", "0011")
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1_700_000_000))
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(two.worlds[0].entry.began))
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
        f"node1  running  0     {moment}",
        "node2  missing  -     -",
        "",
        f"last failure, {moment} of attempt 0:",
        "node2 (rank 1): exited with status 7 after 12 s; its last lines:",
        "  a line",
        r"  red \x1b[31m and a bell \x07",
    ]
    whole = json.loads(mingle(two, "show", "--json", "4711").stdout)
    assert whole["missing"] == ["node2"]
    assert whole["nodes"][0] == {"host": "node1", "local": 0, "state": "running", "rank": 0, "since": 1_700_000_000}
    assert whole["failure"]["cause"]["tail"].endswith("bell \x07\n")


def test_a_run_that_does_not_answer_is_told_and_neither_shown_as_well_nor_taken_for_ended(two: Served) -> None:
    """What is written down of it is shown; the status says that this is not all."""
    shown, killed = mingle(two, "show", "4712"), mingle(two, "kill", "4712")
    assert (shown.returncode, killed.returncode) == (69, 69)
    assert "state    unreachable" in shown.stdout
    assert killed.stdout == ""
    assert shown.stderr == killed.stderr
    assert f"rm {two.path}/44556677.json" in killed.stderr
    assert (two.path / "44556677.json").exists()


def test_kill_waits_for_the_end_and_says_with_which_status(two: Served) -> None:
    """Then it is gone."""
    done = mingle(two, "kill", "--now", "4711")
    assert (done.returncode, done.stdout, done.stderr) == (0, "run 4711 has ended with status 130\n", "")
    assert two.kills == [("00112233aabbccdd", True)]
    again = mingle(two, "kill", "4711")
    assert (again.returncode, again.stdout) == (64, "")
    assert "expected the id of a run; saw 4711; try 4712" in again.stderr


def test_kill_says_where_it_does_not_end_in_time(two: Served) -> None:
    """And what to try."""
    done = mingle(two, "kill", "4711", "--timeout", "1")
    assert (done.returncode, done.stdout) == (69, "")
    assert "try `mingle kill --now 4711`" in done.stderr
    assert two.kills == [("00112233aabbccdd", False)]


def test_with_another_key_or_none_nothing_is_shown_and_nothing_dies(two: Served) -> None:
    """Only that there is something."""
    for key in (OTHER_KEY, None):
        for words in (("ls",), ("show", "4711"), ("kill", "4711"), ("kill", "--now", "00112233aabbccdd")):
            done = mingle(two, *words, key=key)
            assert (done.stdout, done.returncode) == ("", 0 if words == ("ls",) else 64)
            assert "mingle: 2 runs have another key than those found here" in done.stderr
    assert two.kills == []


def test_the_key_may_be_the_one_in_the_home_or_in_a_file(two: Served, tmp_path: Path) -> None:
    """By the rules that all members follow."""
    file = tmp_path / "key"
    file.write_bytes(KEY)
    file.chmod(0o600)
    assert "running" in mingle(two, "ls", "--key-file", str(file), key=None).stdout
    home = Path(environ(two)["HOME"]) / ".config" / "mingle"
    home.mkdir(parents=True)
    file.rename(home / "key")
    assert "running" in mingle(two, "ls", key=None).stdout


def test_with_no_runs_there_is_nothing_to_show(served: Served) -> None:
    """Which is no failure."""
    done = mingle(served, "ls")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "mingle: no runs\n")
    assert mingle(served, "ls", "--json").stdout == "[]\n"
    assert "mingle ls" in mingle(served, "show", "a").stderr


def until(descriptor: int, text: bytes) -> bytes:
    """Read until a text has come."""
    found = b""
    while text not in found:
        assert select.select([descriptor], [], [], 60)[0], found
        found += os.read(descriptor, 4096)
    return found


def test_watch_draws_on_a_terminal_and_prints_changes_elsewhere(two: Served, request: pytest.FixtureRequest) -> None:
    """Until somebody ends it."""
    ours, theirs = pty.openpty()
    drawn = subprocess.Popen([MINGLE, "ls", "--watch"], stdout=theirs, env=environ(two))
    lines = subprocess.Popen([MINGLE, "ls", "--watch"], stdout=subprocess.PIPE, env=environ(two))
    for child in (drawn, lines):
        request.addfinalizer(child.wait)
        request.addfinalizer(child.kill)
    os.close(theirs)
    assert lines.stdout is not None
    first = until(ours, b"unreachable")
    assert first.startswith(b"\x1b[H\x1b[2JID")
    assert b"running" in until(lines.stdout.fileno(), b"unreachable")
    two.call(lambda: two.worlds[0].close(0))
    told = until(lines.stdout.fileno(), b"torchrun")
    assert told.split()[:2] == [b"4711", b"ended"]
    later = until(ours, b"\x1b[2J")
    later += until(ours, b"torchrun")
    assert b"running" not in later.partition(b"\x1b[2J")[2]
    os.close(ours)
    lines.stdout.close()
