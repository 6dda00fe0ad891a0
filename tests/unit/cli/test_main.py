"""A command line becomes a call, and an error one line and a code, which only one of a step's tasks prints."""

import errno
import io
import os
import signal
import stat
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from mingle_hooks.cli import answer, main
from mingle_hooks.errors import ConflictError, MissingError, UsageError
from mingle_hooks.export import shells
from mingle_hooks.run import start


@pytest.fixture(autouse=True)
def environ() -> Iterator[dict[str, str]]:
    """Give an environment and signals of the test's own."""
    before = {number: signal.getsignal(number) for number in main._ENDS}
    with mock.patch.dict(os.environ, {"PATH": "/bin"}, clear=True):
        yield os.environ  # type: ignore[misc]
    for number, how in before.items():
        signal.signal(number, how)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """Keep what is written to stdout and stderr."""
    found: tuple[list[str], list[str]] = ([], [])
    monkeypatch.setattr(main, "write_stdout", found[0].append)
    monkeypatch.setattr(main, "write_stderr", found[1].append)
    return found


ERROR = {
    "usage": UsageError("a", "b", "c"),
    "rank 0": ConflictError("a", "b", "c"),
    "printed": MissingError("a", "b", "c"),
}
ERROR["usage"].is_about_arguments = ERROR["rank 0"].repeats_rank_0 = ERROR["printed"].is_printed = True
TASK = {"SLURM_STEP_ID": "0", "SLURM_LOCALID": "1", "SLURM_PROCID": "1"}


@pytest.mark.parametrize(
    ("kind", "changes", "parent", "is_printed"),
    [
        ("usage", {}, "slurmstepd\n", False),
        ("usage", {"_": "/usr/bin/srun"}, "slurmstepd\n", False),
        ("usage", {"_": "/bin/bash"}, "slurmstepd\n", True),
        ("usage", {}, "bash\n", True),
        ("usage", {}, "", True),  # /proc hides it
        *(("usage", {name: None}, "slurmstepd\n", True) for name in TASK),
        *(("usage", {name: "0"}, "slurmstepd\n", True) for name in ("SLURM_PROCID", "SLURM_HET_SIZE")),
        *(("rank 0", {name: None}, "bash\n", name != "SLURM_PROCID") for name in TASK),
        *((kind, {"file": "yes"}, "slurmstepd\n", True) for kind in ("usage", "rank 0")),
        ("other", {}, "slurmstepd\n", True),
        ("printed", dict.fromkeys(TASK), "bash\n", False),
    ],
)
def test_one_of_many_processes_prints_what_all_have_to_say(
    monkeypatch: pytest.MonkeyPatch,
    said: tuple[list[str], list[str]],
    kind: str,
    changes: dict[str, str | None],
    parent: str,
    *,
    is_printed: bool,
) -> None:
    """Task 0, if srun has started all with the same arguments and shows what they print; or rank 0."""
    error = ERROR.get(kind) or UsageError("a", "b", "c")
    os.environ.update({name: value for name, value in {**TASK, **changes}.items() if value is not None})
    mode = stat.S_IFREG if "file" in changes else stat.S_IFIFO
    its, real = SimpleNamespace(st_mode=mode), os.fstat
    monkeypatch.setattr(os, "fstat", lambda number: its if number == 2 else real(number))
    opened = {f"/proc/{os.getppid()}/comm": io.StringIO(parent)} if parent else {}
    monkeypatch.setattr(main, "open", lambda path: opened.get(path) or os.stat("/no/such/file"), raising=False)
    monkeypatch.setattr(main, "_run", mock.Mock(side_effect=error))
    assert main.run(["exec"]) == error.exit_code
    assert said == ([], ["mingle: expected a; saw b; try c\n"] * is_printed)


@pytest.mark.parametrize(
    ("error", "code", "begin"),
    [
        (main.StoppedError(signal.SIGTERM), 143, "mingle: stopped by SIGTERM"),
        (OSError(errno.ENFILE, "x"), 71, "mingle: expected a free file descriptor; saw all file descriptors of this"),
        (ValueError("wrong"), 70, "Traceback (most recent call last):"),
    ],
)
def test_whatever_ends_it_has_a_code(
    monkeypatch: pytest.MonkeyPatch, said: tuple[list[str], list[str]], error: BaseException, code: int, begin: str
) -> None:
    """From then on no signal of its own interrupts it."""
    signal.signal(signal.SIGHUP, main._stop)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    monkeypatch.setattr(main, "_run", mock.Mock(side_effect=error))
    assert main.run(["exec", "true"]) == code
    err = "".join(said[1])
    assert (said[0], err.startswith(begin), "please report it" in err) == ([], True, code == 70)
    assert (signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGTERM)) == (signal.SIG_IGN, signal.SIG_DFL)


SH, CSH = "; case $- in *i*) (exit {0});; *) exit {0};; esac;", ";\nif ( ! $?prompt ) exit {0};\nsh -c 'exit {0}';"
STATUS = "MINGLE_EXPORTS; (exit {0});"


@pytest.mark.parametrize(
    ("words", "variables", "code", "text"),
    [
        ("env", {}, 71, SH),
        ("evn", {}, 64, SH),
        ("--id a", {}, 64, SH),
        ("evn", {}, 71, ""),
        ("", {}, 64, ""),
        ("exec env", {}, 64, ""),
        ("env --shell json --shell=csh", {"MINGLE_SHELL": "sh"}, 64, CSH),
        ("env --shell", {"MINGLE_SHELL": "csh"}, 64, CSH),
        ("env --shell psh", {"MINGLE_SHELL": "csh"}, 64, SH),
        ("env --on-failure exit --on-failure=status", {}, 64, STATUS),
        ("env --on-failure status --on-failure=exit", {"MINGLE_ON_FAILURE": "status"}, 64, SH),
        ("env", {"MINGLE_ON_FAILURE": "status"}, 64, STATUS),
    ],
)
def test_what_may_be_in_an_eval_ends_its_script(
    monkeypatch: pytest.MonkeyPatch,
    said: tuple[list[str], list[str]],
    words: str,
    variables: dict[str, str],
    code: int,
    text: str,
) -> None:
    """In its language, if that is known; what an earlier mingle left is gone."""
    error = UsageError("a", "b", "c")
    error.exit_code = code
    os.environ.update({**variables, "MINGLE_ID": "b", "MINGLE_EXPORTS": "NNODES", "NNODES": "2"})
    monkeypatch.setattr(main, "_run", mock.Mock(side_effect=error))
    monkeypatch.setattr(shells, "reader", lambda: None)
    monkeypatch.setattr(sys, "stdout", terminal := mock.Mock(**{"isatty.return_value": False}))
    assert main.run(words.split()) == code
    assert [line[-len(text.format(code)) - 1 :] for line in said[0]] == [text.format(code) + "\n"] * bool(text)
    assert "NNODES" in "".join(said[0]) or not text
    terminal.isatty.return_value = True
    main.run(words.split())
    assert len(said[0]) == bool(text) + words.startswith("env")


def test_a_plain_call_is_made_with_its_options_and_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without click; what click would have to explain goes to click."""
    calls = mock.Mock(**{"execute.return_value": 5, "run.return_value": 6})
    monkeypatch.setattr(answer, "execute", calls.execute)
    monkeypatch.setattr(answer, "print_variables", calls.print_variables)
    monkeypatch.setattr(start, "run", calls.run)
    lines = ("exec --id a --explain --keep-key true x", "exec -- true", "run --hosts a true", "env --no-wait --nodes 2")
    assert [main.run(line.split()) for line in lines] == [5, 5, 6, 0]
    assert calls.mock_calls == [
        mock.call.execute(("true", "x"), {"id": "a"}, (True, False, False, False, True)),
        mock.call.execute(("true",), {}, (False,) * 5),
        mock.call.run(("true",), {"hosts": "a"}),
        mock.call.print_variables({"nodes": "2"}, (False, True, False, False, False)),
    ]
    with mock.patch("mingle_hooks.cli.commands.run_click", side_effect=[0, 1]) as by_click:
        assert [main.run(["exec"]), main.run(["ls"])] == [0, 1]
    assert by_click.mock_calls == [mock.call(["exec"]), mock.call(["ls"])]


def test_a_process_takes_the_signals_that_are_not_ignored_and_opens_what_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In streams that leave the descriptors open."""
    filled: Any = mock.Mock()
    monkeypatch.setattr(main, "fill_standard_descriptors", filled)
    monkeypatch.setattr(main, "run", lambda words: {"a b": 9}[" ".join(words)])
    monkeypatch.setattr(sys, "argv", ["mingle", "a", "b"])
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with pytest.raises(SystemExit) as ended:
        main.main()
    streams: list[Any] = [sys.stdin, sys.stdout, sys.stderr]
    monkeypatch.undo()
    assert (ended.value.code, filled.mock_calls) == (9, [mock.call(os.O_RDONLY)])
    whole = [stream.buffer.raw for stream in streams]
    assert [(raw.fileno(), raw.closefd, raw.mode) for raw in whole] == [
        *((number, False, "rb" if number == 0 else "wb") for number in range(3)),
    ]
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    with pytest.raises(main.StoppedError, match="stopped by SIGINT"):
        signal.raise_signal(signal.SIGINT)
