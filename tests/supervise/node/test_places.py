"""Where a supervisor runs, and whose environment it has."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from fake_runner import KEY, START

from mingle_hooks.run import agent as environ
from mingle_hooks.run import messages
from mingle_hooks.run.agent import Options

if TYPE_CHECKING:
    from pathlib import Path

    from fake_runner import Runner


@pytest.mark.parametrize(
    ("options", "given", "place"),
    [
        (("--host", "node7", "--local", "3"), {"SLURMD_NODENAME": "n", "SLURM_LOCALID": "1"}, ("node7", 3)),
        ((), {"SLURMD_NODENAME": "node9", "SLURM_LOCALID": "1"}, ("node9", 1)),
        (("--host", ""), {"SLURMD_NODENAME": "", "SLURM_LOCALID": ""}, (os.uname().nodename, 0)),
    ],
)
def test_the_place_is_the_starters_word_or_else_slurms(
    runner: Runner, options: tuple[str, ...], given: dict[str, str], place: tuple[str, int]
) -> None:
    """Or this host, alone."""
    runner.supervise(*options, host="", environ=given)
    for said in runner.all_of(messages.JOIN):
        assert (said["host"], said["local"]) == place
    assert [said["output"] for said in runner.all_of(messages.JOIN)] == [False, True]


def given_environ(runner: Runner) -> bytes:
    """Return what a starter writes into the file, with what the host knows better."""
    given = {**runner.environ(), "GIVEN": "line\nand = ü", "PBS_NODENUM": "0", "TMPDIR": "/there"}
    return b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in given.items())


@pytest.mark.parametrize("way", ["file", "stdin"])
def test_the_callers_environment_comes_from_a_private_file_or_standard_input(runner: Runner, way: str) -> None:
    """But for what is the host's own; a sweep finds the supervisor by it."""
    file = runner.directory / "environ"
    file.write_bytes(given_environ(runner))
    file.chmod(0o600)
    source = ("--environ", str(file)) if way == "file" else ("--stdin",)
    here = {"PBS_NODENUM": "3", "TMPDIR": "/here", "HERE": "dropped"}
    with file.open("rb") as stdin:
        keep = ("--keep", "PBS_", "--keep", "TMPDIR", "--local", "2")
        runner.supervise(*source, *keep, environ=here, bare=True, stdin=stdin if way == "stdin" else None)
    assert runner.all_of(messages.JOIN)[0]["local"] == 2
    names = ("GIVEN", "PBS_NODENUM", "TMPDIR", "HERE", "PATH")
    runner.attempt(sys.executable, "-c", f"import os; print({{name: os.environ.get(name) for name in {names}}})")
    seen = {"GIVEN": "line\nand = ü", "PBS_NODENUM": "3", "TMPDIR": "/here", "HERE": None, "PATH": os.environ["PATH"]}
    assert runner.output.decode() == f"{seen}\n"
    assert {runner.warden, runner.supervisor} <= runner.processes().keys()


def test_a_file_that_others_may_read_or_have_made_is_refused(tmp_path: Path) -> None:
    """In one line, and it is a usage error."""
    file = tmp_path / "environ"
    file.write_text("A=b\0")
    file.chmod(0o640)
    (tmp_path / "fifo").mkdir()
    for path, seen in ((file, "mode 0640"), (tmp_path / "none", "No such file"), (tmp_path / "fifo", "not one")):
        argv = [*START, "agent", "--environ", str(path)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (64, 1)
        assert seen in done.stderr


@pytest.mark.parametrize(
    ("arguments", "given", "seen"),
    [
        (("--nonsense",), {}, "--nonsense"),
        ((), {}, "MINGLE_RUN_KEY"),
        ((), {"MINGLE_RUN_KEY": KEY, "MINGLE_RUN_AT": "127.0.0.1"}, "MINGLE_RUN_AT"),
        ((), {"MINGLE_RUN_KEY": "xy" * 32, "MINGLE_RUN_AT": "127.0.0.1 1"}, "MINGLE_RUN_KEY"),
        (("--local", "x"), {"MINGLE_RUN_KEY": KEY, "MINGLE_RUN_AT": "127.0.0.1 1"}, "--local"),
    ],
)
def test_who_is_no_starter_is_told_so(arguments: tuple[str, ...], given: dict[str, str], seen: str) -> None:
    """In one line, with the status of a usage error."""
    argv = [*START, "agent", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=given)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1)
    assert seen in done.stderr


def test_a_file_of_pairs_is_merged_with_what_the_host_knows_better() -> None:
    """What is no pair is left out; a value may have any octets but NUL. What the host does not say, the caller may."""
    own = {"PBS_A": "own", "A": "own", "TMPDIR": "own"}
    data = b"A=given\0PBS_A=given\0PBS_B=given\0=none\0none\0EMPTY=\0RAW=\xff=\n\0"
    merged = environ.merge_environ(own, data, ("PBS_", "TMPDIR"))
    assert merged == {"A": "given", "EMPTY": "", "RAW": "\udcff=\n", "PBS_A": "own", "PBS_B": "given", "TMPDIR": "own"}
    assert environ.merge_environ(own, b"A=given", ()) == {"A": "given"}


def test_the_options_are_those_that_starters_write() -> None:
    """Each may be left out."""
    words = ("--host", "a", "--local", "1", "--environ", "/f", "--keep", "X", "--keep", "Y", "--stdin")
    found = Options.parse(words)
    assert found == Options("a", "1", "/f", is_stdin=True, keep=("X", "Y"))
    assert found.words() == ("--host", "a", "--local", "1")
    assert Options.parse(()).words() == ()
