"""Output that cannot be written is one line and a code of the table, and never half a world or a lost line."""

import fcntl
import io
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from unittest import mock

import pytest
from forked import Forked

from mingle_hooks.cli import answer
from mingle_hooks.errors import MingleError, NetworkError, PlaceError
from mingle_hooks.rendezvous.member import Progress

MINGLE = str(Path(sys.executable).with_name("mingle"))
ONE = ("env", "--id", "job", "--nodes", "1")
WRONG = ("env", "--id", "job", "--nodes", "none")
# It says a word before it fails.
LONELY = ("env", "--id", "job", "--nodes", "2", "--insecure", "--timeout", "1", "--iface", "none0")
# Enough frameworks for more than one block of a file.
MANY = (*ONE, "--for", "torchrun,jax,tensorflow,nccl,gloo,ucx,horovod,ray,xgboost")
# Without a scheduler's or a user's variables.
ENV = {name: value for name, value in os.environ.items() if not name.startswith(("MINGLE_", "SLURM_", "PBS_"))}
PRINTS = ["key", "--help", "template sbatch --nodes 2 -- train.py", "hooks doctor", " ".join(ONE), " ".join(WRONG)]
LINE = re.compile(r"mingle: expected [^\n]+; saw [^\n]+; try [^\n]+\n")


def run(words: tuple[str, ...], redirections: str = "", **options: object) -> subprocess.CompletedProcess[str]:
    """Run mingle in a shell, with these redirections."""
    argv = ["bash", "-c", f'"$@" {redirections}', "bash", MINGLE, *words]
    return subprocess.run(argv, env=ENV, text=True, timeout=60, check=False, capture_output=True, **options)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize(
    "sink", [{1: "/dev/full"}, {1: None}, {0: None, 1: None}, {1: "|"}], ids=["full", "closed", "both closed", "gone"]
)
@pytest.mark.parametrize("words", PRINTS)
def test_output_that_goes_nowhere_is_one_line_and_a_code(
    forked: Forked, words: str, sink: dict[int, str | None]
) -> None:
    """73 where writing was all that went wrong; "gone" is what `| head -0` leaves, once head has ended.

    Where stderr takes nothing either the code remains, and nothing lands where it does not belong.
    """
    code = 64 if words.endswith("none") else PlaceError.exit_code
    for errors in ({}, {2: "/dev/full"}, {2: None}):
        done = forked.run(*words.split(), env=ENV, streams={**sink, **errors})
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr == "" if errors else LINE.fullmatch(done.stderr), done


@pytest.mark.parametrize("errors", ["2>/dev/full", "2>&-"])
def test_a_message_that_stderr_does_not_take_is_not_for_eval(errors: str) -> None:
    """Stdout holds the same as ever, and eval fails with the code."""
    assert run(WRONG, errors).stdout == run(WRONG).stdout != ""
    assert run(ONE, errors).returncode == 0
    assert run(LONELY, errors).returncode == run(LONELY).returncode == NetworkError.exit_code
    explained = run((*ONE, "--explain"), errors)
    assert explained.returncode == 0
    assert "MASTER_ADDR=" in explained.stdout


@pytest.mark.parametrize(("redirection", "before"), [(">", ""), (">>", "true\n"), ("1<>", "true\n" * 2000)])
def test_half_a_world_is_taken_out_of_its_file_again(tmp_path: Path, redirection: str, before: str) -> None:
    """A file that could not take it all has what it had, so nobody sources half a world; what is behind it stays."""
    file = tmp_path / "world"
    file.write_text(before)
    done = run(MANY, f'{redirection}"{file}"', preexec_fn=lambda: limit_files(1024))
    assert LINE.fullmatch(done.stderr), done
    assert done.returncode == PlaceError.exit_code
    text = file.read_text()
    if redirection == "1<>":
        assert text[1024:] == before[1024:]
        return
    assert text.startswith(before)
    assert "export" not in text
    # What made room for it is the short text that fails.
    sourced = subprocess.run(["bash", "-c", '. "$1" || exit', "bash", file], capture_output=True, check=False)
    assert (sourced.returncode, sourced.stderr) == (PlaceError.exit_code, b"")
    assert len(run(MANY).stdout) > 1024


def test_a_slow_reader_of_a_pipe_that_does_not_block_gets_everything() -> None:
    """The pipe is full when mingle begins, and takes the text in pieces."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    os.write(writer, b"#" * 4095 + b"\n")
    got: list[bytes] = []

    def read() -> None:
        while data := os.read(reader, 512):
            got.append(data)

    thread = threading.Thread(target=read)
    process = subprocess.Popen([MINGLE, "hooks", "render", "slurm"], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    thread.start()
    _, errors = process.communicate(timeout=60)
    thread.join()
    os.close(reader)
    assert (process.returncode, errors) == (0, b"")
    assert b"".join(got).partition(b"\n")[2].decode() == run(("hooks", "render", "slurm")).stdout


def limit_files(octets: int) -> None:
    """Let no file of this process grow beyond this."""
    import resource  # in the child only

    resource.setrlimit(resource.RLIMIT_FSIZE, (octets, octets))


EXEC = ("exec", "--id", "job", "--nodes", "1", "--")


def test_exec_hands_on_what_is_closed_or_ignored_and_starts_nothing_without_a_standard_output() -> None:
    """None of mingle's own descriptors takes its place, nor may one of the command's; a hangup as nohup(1) does."""
    see = "import os; os.write(1, ascii([os.path.exists(f'/proc/self/fd/{n}') for n in range(3)]).encode())"
    assert run((*EXEC, sys.executable, "-c", see), "<&- 2>&-").stdout == "[False, True, False]"
    done = run((*EXEC, "touch", "/no/such/file"), ">&-")
    assert (done.returncode, done.stdout) == (PlaceError.exit_code, "")
    assert "saw " in done.stderr
    assert "a closed or read-only one" in done.stderr
    nohup = ["env", "--ignore-signal=HUP", MINGLE, *EXEC, "sh", "-c", "kill -HUP $$; echo on"]
    done = subprocess.run(nohup, env=ENV, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "on\n")


def test_the_status_of_a_child_is_known_where_the_caller_ignores_sigchld() -> None:
    ignoring = ["env", "--ignore-signal=CHLD", MINGLE, "hooks", "doctor"]
    done = subprocess.run(ignoring, env=ENV, capture_output=True, text=True, check=False)
    assert (done.returncode == MingleError.exit_code, "Traceback" in done.stderr) == (False, False)


# Stops itself when it is about to say why it fails, as a supervisor stops a member that has just failed by itself.
STOPPED = """\
import os, signal, sys
from mingle_hooks.cli import main
write = main.write_stderr
main.write_stderr = lambda text: (os.kill(os.getpid(), signal.SIGTERM), write(text))
sys.argv[1:] = ["env", "--id", "job", "--nodes", "none"]
main.main()
"""


def test_a_process_that_is_stopped_while_it_fails_prints_why_it_failed() -> None:
    """The signal adds no traceback, and eval still fails."""
    done = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, text=True, check=False)
    assert done.returncode == 64
    assert done.stderr.startswith("mingle: expected ")
    assert done.stderr.count("\n") == 1
    assert "exit 64" in done.stdout


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def written(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, progress: Progress, *, quiet: bool = False) -> str:
    """Return what a member writes that sees no progress for 500 s."""
    seconds = iter(range(500))
    monkeypatch.setattr(answer.time, "monotonic", lambda: next(seconds))
    with answer.ProgressPrinter(stream, quiet=quiet) as printer:
        for _ in range(1, 500):
            printer.progress(progress)
        printer.note("a note")
    return stream.getvalue()


INSIDE, SAID = Progress(1, 2, "rank 1"), "mingle: 1 of 2 nodes checked in after {} s; waiting for rank 1"
# Nobody who counts the others has been found.
OUTSIDE, LOOKING = Progress(0, 2, "rank 0 (node1)"), "mingle: still looking for rank 0 (node1) after {} s"


@pytest.mark.parametrize(("progress", "said"), [(INSIDE, SAID), (OUTSIDE, LOOKING)])
def test_a_log_gets_plain_lines_now_and_then(monkeypatch: pytest.MonkeyPatch, progress: Progress, said: str) -> None:
    """No control characters, and by far not one line a second."""
    lines = written(monkeypatch, io.StringIO(), progress).splitlines()
    assert lines == [*map(said.format, (1, 11, 41, 101, 401)), "mingle: a note"]


def test_a_member_that_waits_does_not_end_because_its_log_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(9))
    monkeypatch.setattr(answer.time, "monotonic", lambda: next(seconds))
    stream = mock.Mock(**{"isatty.return_value": False, "write.side_effect": OSError})
    with answer.ProgressPrinter(stream, quiet=False) as printer:
        printer.progress(INSIDE)
        printer.note("a note")
    assert stream.write.call_count == 2


def test_a_terminal_sees_one_live_line_that_is_wiped_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many are in and who is awaited, rewritten in place; nothing at all with --quiet."""
    with answer.ProgressPrinter(stream := io.StringIO(), quiet=True) as printer:
        printer.failed(MingleError("a world", "none", "again"))
    assert stream.getvalue() == "mingle: expected a world; saw none; try again\n"
    first, *lives, last = written(monkeypatch, Terminal(), INSIDE).split("\r\x1b[K")
    assert (first, lives, last) == ("", [*map(SAID.format, range(1, 500))], "mingle: a note\n")
    assert written(monkeypatch, Terminal(), INSIDE, quiet=True) == ""
