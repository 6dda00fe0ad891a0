"""`mingle hosts`, `check` of this host alone, and `ls`, `show` and `kill` of runs: what they print, try and return."""

import json
import os
import re
import socket
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from forked import Forked
from served import status_of

from mingle_hooks.cli import jobs
from mingle_hooks.cli.main import run
from mingle_hooks.run import processes, starters, status
from mingle_hooks.run.status import Ending, RunnerProcess


@pytest.mark.parametrize(
    ("words", "status", "last", "note"),
    [
        ("--exclude --html page", 0, None, ""),
        ("--html none/page", 73, r"1 host in .*", "mingle: expected to write the page; saw none/page: No such file"),
        (
            "--command false",
            71,
            r"1 host in \d+\.\d s: 1 finding",
            "mingle check: run 2 on localhost: failed with status 1",
        ),
    ],
)
def test_a_check_of_one_host(
    forked: Forked, tmp_path: Path, words: str, status: int, last: str | None, note: str
) -> None:
    """A page is written beside what is printed; a command runs again where it fails, and its output is not mingle's."""
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = forked.run("check", "--hosts", "localhost", *words.split(), env=env, cwd=tmp_path)
    assert (done.returncode, note in done.stderr, bool(done.stderr)) == (status, True, bool(note))
    lines = done.stdout.splitlines()
    if last is None:
        assert lines == []
    else:
        assert lines[1].split()[:2] == ["localhost", "ok"]
        assert re.fullmatch(last, lines[-1])
    assert (tmp_path / "page").exists() == ("page" in words.split())
    if status == 71:
        assert "BAD  `false` fails on whatever hosts it runs (in 2 of 2 runs): the cause is the command" in done.stdout


def test_a_check_as_json(forked: Forked, tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = forked.run("check", "--hosts", "localhost", "--json", env=env, cwd=tmp_path)
    (host,) = json.loads(done.stdout)["hosts"]
    assert (done.returncode, host["name"], host["missing"]) == (0, "localhost", None)


def test_what_is_left_out_is_noted_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """However often all is looked at."""
    runs = tmp_path / "mingle" / "runs"
    runs.mkdir(mode=0o700, parents=True)
    (runs / "wrong.json").touch(0o600)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    known = jobs.find_runs()
    assert (known.all(), known.all()) == ([], [])
    assert capfd.readouterr().err.count("left out") == 1


A = status_of("11", "aa")
B = status_of("12", "bb")._replace(attempt=None, failure=None)
ENDED = A._replace(state="ended", status=7)
OLD = status_of("10", "00")._replace(state="ended", status=0)
CLEAR = "\x1b[H\x1b[2J"


class StopError(BaseException):
    """Ends what watches for ever."""


def called(monkeypatch: pytest.MonkeyPatch, words: str, looks: list[Any], *, tty: bool = False, sleeps: int = 2) -> str:
    """Return the status of a command that sees these runs, look by look; one that goes on is ended."""
    known: Any = SimpleNamespace(all=mock.Mock(side_effect=looks), one=mock.Mock(side_effect=looks))
    seconds = iter(range(100))
    clock = {"sleep": mock.Mock(side_effect=[None] * sleeps + [StopError]), "monotonic": lambda: float(next(seconds))}
    monkeypatch.setattr(jobs, "find_runs", lambda: known)
    monkeypatch.setattr(jobs, "time", SimpleNamespace(**{**vars(time), **clock}))
    monkeypatch.setattr(jobs, "sys", SimpleNamespace(stdout=mock.Mock(**{"isatty.return_value": tty})))
    try:
        return str(run(words.split()))
    except (StopError, StopIteration):
        return "watches"


@pytest.mark.parametrize(
    ("words", "tty", "looks", "said"),
    [
        ("ls", False, [[OLD]], ["mingle: no runs"]),
        ("ls --watch", False, [[OLD]] * 5, []),
        ("ls --watch", True, [[OLD]] * 3, [f"{CLEAR}ID STATE"] * 3),
        ("ls --all", False, [[OLD]], ["ID STATE", "10 ended (0)"]),
        ("ls", True, [[A, B, OLD]], ["ID STATE", "11 running", "12 running"]),
        (
            "ls --watch",
            False,
            [[OLD, A], [OLD, A], [OLD, A], [OLD, ENDED, B], [OLD, ENDED, B]],
            ["ID STATE", "11 running", "12 running", "11 ended (7)"],
        ),
        (
            "ls --watch",
            True,
            [[A], [A, B], [A, B]],
            [f"{CLEAR}ID STATE", "11 running", *([f"{CLEAR}ID STATE", "11 running", "12 running"] * 2)],
        ),
        ("ls --watch --json", True, [[A], [A], [A, B]], ["11", "11,12"]),
        ("show aa", True, [A], ["id 11"]),
        ("show aa --watch", False, [A, A, ENDED], ["id 11"] * 2),
        ("show aa --watch", True, [A, B, B], [f"{CLEAR}id 11", f"{CLEAR}id 12"]),
        ("show aa --watch --json", False, [A, A, ENDED], ["11", "11"]),
    ],
)
def test_what_watches_prints_what_changes(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    words: str, tty: bool, looks: list[Any], said: list[str],  # noqa: FBT001 - of a row
) -> None:  # fmt: skip
    """A run that is gone is printed too, and a terminal is drawn anew."""
    follows = "--watch" in words and looks[-1] != ENDED
    assert called(monkeypatch, words, looks, tty=tty) == ("watches" if follows else "0")
    seen = capfd.readouterr()
    lines = [line.partition(" 1/2 ")[0].partition(" NODES")[0] for line in (seen.err + seen.out).splitlines()]
    if "show" in words:
        lines = [line for line in lines if line.removeprefix(CLEAR).startswith(("id", "{"))]
    if "--json" in words:
        found = [json.loads(line) for line in lines]
        lines = [",".join(one["id"] for one in (rows if isinstance(rows, list) else [rows])) for rows in found]
    assert [" ".join(line.split()) for line in lines] == said


# The last one ignores SIGINT.
HERE, AWAY, DEAF_TO_INT = RunnerProcess("here", 41, 1), RunnerProcess("away", 41, 1), RunnerProcess("here", 40, 1)
DEAF, HEARD = Ending(is_accepted=False), Ending(is_accepted=True)
KILLED = A._replace(state="killed")
ASKED = "mingle: run 11 does not answer; {}"
SILENT = "expected an answer from run 11 (process 41 on node1); saw none: the run was stopped or killed, or this host"
SILENT += " cannot reach it{}; try {}"
STAYS = "expected the end of run 11 within 1 s; saw {}; try `mingle {} aa`"
RUNS = "processes still running on node1 or its other nodes"
NO_FILE = "; [Errno 2] No such file or directory: '/no/such'"


@pytest.mark.parametrize(
    ("words", "process", "ending", "looks", "said", "done"),
    [
        ("", HERE, None, [ENDED], "run 11 has ended with status 7", []),
        ("", HERE, None, [KILLED], "run 11 has ended: its process on node1 was killed", []),
        ("", HERE, None, [A._replace(state="ended")], "run 11 has ended", []),
        ("", HERE, HEARD._replace(status=3), [A], "run 11 has ended with status 3", []),
        ("", HERE, HEARD, [A, A, ENDED], "run 11 has ended with status 7", []),
        ("", HERE, DEAF, [A, ENDED], ASKED.format("sending SIGTERM to process 41"), [15]),
        (" --now", HERE, DEAF, [A, ENDED], ASKED.format("sending SIGINT twice to process 41"), [2, 2]),
        (" --now", DEAF_TO_INT, DEAF, [A, ENDED], ASKED.format("sending SIGTERM to process 40"), [15]),
        ("", AWAY, DEAF, [A, ENDED], ASKED.format("running stop 5"), [("stop", "5")]),
        *(
            ("", AWAY, DEAF, [A._replace(state=state, job="")], SILENT.format("", "this command on node1"), [])
            for state in ("running", "lost")  # which may only be cut off from the home
        ),
        ("", AWAY, DEAF, [A._replace(job="1")], SILENT.format("; stop ended with 1", "`stop 1`"), [("stop", "1")]),
        ("", AWAY, DEAF, [A._replace(job="none")], SILENT.format(NO_FILE, "`stop none`"), [("stop", "none")]),
        ("", HERE, HEARD, [A] * 3, STAYS.format(RUNS, "kill --now"), []),
        (" --now", HERE, HEARD, [A] * 3, STAYS.format(RUNS, "show"), []),
        (" --now", HERE, DEAF, [A] * 3, STAYS.format("no answer", "show"), [2, 2]),
    ],
)
def test_a_run_is_told_to_end_in_one_way_after_the_other(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    words: str, process: RunnerProcess, ending: Ending | None, looks: list[Any], said: str, done: list[object],
) -> None:  # fmt: skip
    """`kill` asks the run's listener, sends a signal on its own host or asks the scheduler, and waits for the end."""
    seen: list[object] = []

    def stop(argv: tuple[str, ...], **how: object) -> Any:
        seen.append(argv)
        assert how == {"check": False, "timeout": 30.0}
        return SimpleNamespace(returncode=int(argv[1] == "1")) if argv[1] != "none" else os.stat("/no/such")

    tell = mock.Mock(return_value=ending)
    monkeypatch.setattr(status, "kill_run", tell)
    monkeypatch.setattr(status, "runs_here", lambda: "here")
    monkeypatch.setattr(starters, "cancel_argv", lambda _scheduler, job, _environ: ("stop", job) if job else ())
    monkeypatch.setattr(subprocess, "run", stop)
    monkeypatch.setattr(processes, "catches_signal", lambda pid, _number: pid != 40)
    monkeypatch.setattr(os, "kill", lambda pid, number: seen.append(number) if pid in (40, 41) else None)
    runs = [one._replace(process=process, job="5" if one is A else one.job) for one in looks]
    code = 69 if "expected" in said else 0
    assert called(monkeypatch, f"kill aa --timeout 1{words}", runs, sleeps=3) == str(code)
    out, err = capfd.readouterr()
    assert said in (err + out).splitlines()[-1 if done == [] or code else 0]
    assert code or out.startswith("run 11 has ended")
    assert seen == done
    assert [call.kwargs for call in tell.mock_calls] == [{"is_now": bool(words), "limit_s": 1.0}] * (ending is not None)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("--hosts n[1-2] --slots 2", 0, "n1 slots=2\nn2 slots=2\n"),
        ("--hosts n1 --format json", 0, '[{"rank":0,"host":"n1","address":null,"slots":1}]\n'),
        ("--id a --nodes 1 --slots 2 --format nodefile", 0, "node1\nnode1\n"),
        ("--id a --nodes 1 --format etc", 0, ""),
        ("--hosts n1 --format etc", 64, "a format without addresses"),
        ("--hosts n1,n1", 64, "n1 more than once"),
        ("--hosts n1,n2 --nodes 3", 64, "2 nodes, as in --hosts; saw --nodes 3"),
        ("--hosts n1,n2 --nodes 2", 0, "n1 slots=1\nn2 slots=1\n"),
        ("--hosts n1 --slots gpus", 64, "which each host counts for itself"),
        ("--remove-etc", 64, "--id NAME"),
    ],
)
def test_hosts_that_a_person_names(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: str, code: int, text: str
) -> None:
    """No other host is contacted, and what cannot be known that way is refused."""
    monkeypatch.setattr(socket, "gethostname", lambda: "node1")
    assert run(["hosts", *words.split()]) == code
    out, err = capfd.readouterr()
    assert text in err if code else text == out
