"""`mingle check` of this host alone: its exit status, and what it prints and writes."""

import json
import os
import re
from pathlib import Path

import pytest
from forked import Forked


@pytest.mark.parametrize(
    ("words", "status", "last", "note"),
    [
        ("", 0, r"1 host in \d+\.\d s: all is well", ""),
        ("--exclude", 0, None, ""),
        ("--html page", 0, r"1 host in \d+\.\d s: all is well", ""),
        ("--html none/page", 73, r"1 host in .*", "mingle: expected to write the page; saw none/page: No such file"),
        ("--command true", 0, r"1 host in .*", "mingle check: run 1 on localhost: passed after "),
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
