"""COMMAND's output reaches the runner whole, in whole lines, and at the runner's pace."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mingle_hooks.run import messages, processes
from mingle_hooks.run.command import LONGEST, MOST_WAITING, Pipe
from mingle_hooks.run.messages import ERR, MOST_TAIL, OUT

if TYPE_CHECKING:
    from fake_runner import Runner


def test_each_frame_ends_where_a_line_does(runner: Runner) -> None:
    """Whatever pieces the program writes; what is left at the end comes, too."""
    runner.supervise()
    script = (
        "import os\nfor n in range(3000):\n os.write(1, b'a' * (n % 70)); os.write(1, b'b\\n')\nos.write(1, b'end')"
    )
    runner.attempt("python3", "-c", script)
    assert bytes(runner.output) == b"".join(b"a" * (n % 70) + b"b\n" for n in range(3000)) + b"end"
    assert all(data.endswith(b"b\n") for kind, data in runner.frames[:-1] if kind == OUT)


def test_a_long_line_comes_in_pieces_and_any_octets_come_as_they_are(runner: Runner) -> None:
    """A line of 1 MB, NUL, and what is no text."""
    runner.supervise()
    octets = random.Random(1).randbytes(1 << 20).replace(b"\n", b"\0")  # noqa: S311 - to be the same again
    (runner.directory / "octets").write_bytes(octets)
    ended = runner.attempt("sh", "-c", "cat octets; echo; printf 'last\\377\\000' >&2; kill -9 $$")
    assert bytes(runner.output) == octets + b"\n"
    assert bytes(runner.errors) == b"last\xff\0"
    assert all(len(data) < 10 * LONGEST for _, data in runner.frames)
    assert len(ended["tail"]) <= MOST_TAIL


def test_the_last_lines_of_both_streams_are_told_with_the_end(runner: Runner) -> None:
    """In the order in which they came, from a whole line on; what is no text is shown as such."""
    os.mkfifo(runner.directory / "go")
    runner.supervise()
    runner.start("sh", "-c", "seq 100000; printf 'no line yet'; read go < go; echo 'and: \N{BROKEN HEART}' >&2; exit 1")
    runner.until(lambda: runner.output.endswith(b"100000\n"))
    (runner.directory / "go").write_text("\n")
    tail = runner.wait_for(messages.ENDED)["tail"]
    assert len(tail) <= MOST_TAIL
    assert tail.endswith("100000\nno line yetand: \N{BROKEN HEART}\n")
    assert int(tail.splitlines()[0]) == int(tail.splitlines()[1]) - 1
    runner.wait_for(messages.CLEAN)
    assert runner.attempt("printf", "\\377")["tail"] == "\N{REPLACEMENT CHARACTER}"


def test_all_that_a_command_wrote_before_its_end_is_in_these_lines(runner: Runner) -> None:
    """However far the supervisor had come with reading."""
    os.mkfifo(runner.directory / "go")
    runner.supervise()
    runner.start("sh", "-c", "read go < go; head -c 900000 /dev/zero | tr '\\0' '\\n'; echo last; exit 1")
    runner.wait_for(messages.FORMED)
    (command,) = processes.children(runner.supervisor)
    os.kill(runner.supervisor, signal.SIGSTOP)
    (runner.directory / "go").write_text("\n")
    runner.until(lambda: ") Z " in Path(f"/proc/{command}/stat").read_text())
    os.kill(runner.supervisor, signal.SIGCONT)
    assert runner.wait_for(messages.ENDED)["tail"].endswith("\nlast\n")


def test_output_of_what_outlives_the_command_comes_until_it_has_ended(runner: Runner) -> None:
    """It gets a second after TERM."""
    runner.supervise()
    script = "trap 'echo saved; exit' TERM; echo ready > ready; while :; do sleep 0.01; done"
    runner.attempt("sh", "-c", 'sh -c "$0" & while ! [ -s ready ]; do sleep 0.01; done', script)
    assert bytes(runner.output) == b"saved\n"


def test_who_holds_the_pipe_without_being_a_descendant_holds_nothing_up(runner: Runner) -> None:
    """As a daemon does that has got a descriptor."""
    runner.supervise()
    runner.start("sh", "-c", "echo $$; read line < go")
    os.mkfifo(runner.directory / "go")
    runner.until(lambda: runner.output)
    with Path(f"/proc/{int(runner.output)}/fd/1").open("wb", buffering=0) as pipe:
        pipe.write(b"torn")
        (runner.directory / "go").write_text("\n")
        runner.wait_for(messages.CLEAN)
        runner.until(lambda: runner.drained)
    assert runner.output.endswith(b"\ntorn")


def test_a_runner_that_does_not_read_holds_the_writer_and_no_word(runner: Runner) -> None:
    """Nothing is lost, and the supervisor keeps little; what it says and hears goes its own way."""
    runner.supervise()
    assert runner.stream is not None
    runner.stream.listen(wanted=False)
    lines = 200_000  # 13 MB: more than the bound below, and than all buffers on the way
    script = f"import sys\nfor n in range({lines}):\n print(f'{{n:063}}')\nsys.stdout.flush(); open('done', 'w')"
    runner.start("python3", "-c", script)
    runner.wait_for(messages.FORMED)
    runner.until(lambda: is_stuck(runner.supervisor))
    os.kill(runner.supervisor, signal.SIGUSR1)
    runner.wait_for(messages.NOTICED)
    assert not (runner.directory / "done").exists()
    status = Path(f"/proc/{runner.supervisor}/status").read_text()
    own = int(status.partition("RssAnon:")[2].split()[0]) << 10  # without files, of which each Python maps others
    assert own < (10 << 20) + 2 * MOST_WAITING
    runner.stream.listen(wanted=True)
    runner.wait_for(messages.CLEAN)
    runner.until(lambda: runner.drained)
    assert bytes(runner.output) == b"".join(b"%063d\n" % n for n in range(lines))


def is_stuck(pid: int) -> bool:
    """Tell whether COMMAND, below a supervisor, waits for room in its pipe."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return any("pipe_write" in Path(f"/proc/{child}/wchan").read_text() for child in children)


def test_a_command_that_ends_while_nobody_reads_is_told_with_its_last_lines(runner: Runner) -> None:
    """And is clean; its output comes when it is read."""
    runner.supervise()
    assert runner.stream is not None
    runner.stream.listen(wanted=False)
    script = "head -c 9000000 /dev/zero | tr '\\0' '\\n'; echo last; exit 3"
    runner.start("sh", "-c", script)
    runner.wait_for(messages.FORMED)
    runner.until(lambda: is_stuck_below(runner.supervisor))
    runner.end(0.5)
    runner.wait_for(messages.ENDED)
    runner.wait_for(messages.CLEAN)
    runner.stream.listen(wanted=True)
    runner.until(lambda: runner.drained)
    assert set(runner.output) == {10}


def is_stuck_below(pid: int) -> bool:
    """Tell whether any descendant of a supervisor waits for room in its pipe."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return is_stuck(pid) or any(is_stuck_below(int(child)) for child in children)


@pytest.mark.parametrize("seed", range(3))
def test_lines_are_those_that_were_written_whatever_the_pieces(seed: int) -> None:
    """Each part ends with a line, or is longer than a line may be."""
    chance = random.Random(seed)  # noqa: S311 - to be the same again
    lengths = [chance.choice((0, 5, 80, 3000, LONGEST - 1, LONGEST, 3 * LONGEST)) for _ in range(60)]
    written = b"".join(b"x" * length + b"\n" for length in lengths) + b"rest"
    reading, writing = os.pipe2(os.O_NONBLOCK)
    pipe = Pipe(reading, ERR)
    seen, position = [], 0
    while position < len(written):
        position += os.write(writing, written[position : position + chance.randrange(1, 50_000)])
        data = pipe.read()
        assert data is not None
        if parts := pipe.lines(data):
            seen.append(b"".join(parts))
    seen.append(pipe.take())
    pipe.close()
    os.close(writing)
    assert b"".join(seen) == written
    assert all(part.endswith(b"\n") or len(part) >= LONGEST for part in seen[:-1])


def test_a_full_disk_or_a_broken_pipe_behind_the_runner_is_not_the_supervisors(runner: Runner) -> None:
    """Its own streams may be full or broken: it does not write there."""
    reading, writing = os.pipe()
    os.close(reading)
    runner.supervise(stdout=writing, stderr=writing, stdin=subprocess.DEVNULL)
    os.close(writing)
    assert runner.attempt("echo", "out")["status"] == 0
    assert bytes(runner.output) == b"out\n"
