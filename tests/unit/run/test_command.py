"""COMMAND's output reaches the runner whole, in whole lines and at its pace; and the stacks of its processes."""

import os
import random
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_runner import Runner
from places import path_without
from support.executables import executable

from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.wire import WireError, parse
from mingle_hooks.run import command as stacks, messages, processes
from mingle_hooks.run.command import LONGEST, MOST_WAITING, Pipe, Relay, root_exception
from mingle_hooks.run.messages import CLEAN, DUMP, ENDED, ERR, MOST_STACKS, MOST_TAIL, STACKS, Dump, Stacks


def test_a_long_line_comes_in_pieces_and_any_octets_come_as_they_are(agent: Runner) -> None:
    octets = random.Random(1).randbytes(1 << 20).replace(b"\n", b"\0")  # noqa: S311 - to be the same again
    (agent.directory / "octets").write_bytes(octets)
    ended = agent.attempt("sh", "-c", "cat octets; echo; printf 'last\\377\\000' >&2; kill -9 $$")
    assert (bytes(agent.output), bytes(agent.errors)) == (octets + b"\n", b"last\xff\0")
    assert all(len(data) < 10 * LONGEST for _, data in agent.frames)
    assert len(ended["tail"]) <= MOST_TAIL


def test_the_last_lines_of_both_streams_come_with_the_end(agent: Runner) -> None:
    os.mkfifo(agent.directory / "go")
    agent.start("sh", "-c", "seq 100000; printf 'no line yet'; read go < go; echo 'and: \N{BROKEN HEART}' >&2; exit 1")
    agent.until(lambda: agent.output.endswith(b"100000\n"))
    (agent.directory / "go").write_text("\n")
    tail = agent.wait_for(messages.ENDED)["tail"]
    assert len(tail) <= MOST_TAIL
    assert tail.endswith("100000\nno line yetand: \N{BROKEN HEART}\n")
    assert int(tail.splitlines()[0]) == int(tail.splitlines()[1]) - 1
    agent.wait_for(messages.CLEAN)
    assert agent.attempt("printf", "\\377")["tail"] == "\N{REPLACEMENT CHARACTER}"


def test_all_that_a_command_wrote_before_its_end_is_in_these_lines(agent: Runner) -> None:
    os.mkfifo(agent.directory / "go")
    agent.begin("sh", "-c", "read go < go; head -c 900000 /dev/zero | tr '\\0' '\\n'; echo last; exit 1")
    (command,) = processes.children(agent.pid)
    os.kill(agent.pid, signal.SIGSTOP)
    (agent.directory / "go").write_text("\n")
    agent.until(lambda: ") Z " in Path(f"/proc/{command}/stat").read_text())
    os.kill(agent.pid, signal.SIGCONT)
    assert agent.wait_for(messages.ENDED)["tail"].endswith("\nlast\n")


def test_output_of_what_outlives_the_command_comes_until_it_has_ended(agent: Runner) -> None:
    script = "trap 'echo saved; exit' TERM; echo ready > ready; while :; do sleep 0.01; done"
    agent.attempt("sh", "-c", 'sh -c "$0" & while ! [ -s ready ]; do sleep 0.01; done', script)
    assert bytes(agent.output) == b"saved\n"


def test_a_process_that_holds_the_pipe_and_is_no_descendant_delays_nothing(agent: Runner) -> None:
    agent.start("sh", "-c", "echo $$; read line < go")
    os.mkfifo(agent.directory / "go")
    agent.until(lambda: agent.output)
    with Path(f"/proc/{int(agent.output)}/fd/1").open("wb", buffering=0) as pipe:
        pipe.write(b"torn")
        (agent.directory / "go").write_text("\n")
        agent.wait_for(messages.CLEAN)
        agent.until(lambda: agent.drained)
    assert agent.output.endswith(b"\ntorn")


def test_a_runner_that_does_not_read_blocks_the_writer_and_no_message(agent: Runner) -> None:
    """COMMAND goes on once its output is read, and its end is reported though nobody reads; nothing is lost."""
    assert agent.stream is not None
    agent.stream.listen(wanted=False)
    script = "import sys\nfor n in range(10**6):\n print(f'{n:063}')"  # more than all buffers on the way hold
    agent.begin("python3", "-c", script)
    agent.until(lambda: is_stuck(agent.pid, "python"))
    os.kill(agent.pid, signal.SIGUSR1)
    agent.wait_for(messages.NOTICED)
    status = Path(f"/proc/{agent.pid}/status").read_text()
    own = int(status.partition("RssAnon:")[2].split()[0]) << 10  # without files, of which each Python maps others
    assert own < 20 << 20  # 11 MiB usually, and COMMAND writes 64
    agent.stream.listen(wanted=True)
    agent.until(lambda: len(agent.output) > 12 << 20)  # the bound, and all buffers
    agent.stream.listen(wanted=False)
    agent.until(lambda: is_stuck(agent.pid, "python"))
    agent.end(0.5)
    agent.wait_for(messages.ENDED)
    agent.wait_for(messages.CLEAN)
    agent.stream.listen(wanted=True)
    agent.until(lambda: agent.drained)
    whole = len(agent.output) // 64
    assert bytes(agent.output[: 64 * whole]) == b"".join(b"%063d\n" % n for n in range(whole))


def is_stuck(root: int, name: str) -> bool:
    """Tell whether a process of this name, below an agent, waits for room in its pipe."""
    for pid in processes.descendants(root):
        with suppress(OSError):  # it has ended meanwhile
            is_named = Path(f"/proc/{pid}/comm").read_text().startswith(name)
            if is_named and "pipe_write" in Path(f"/proc/{pid}/wchan").read_text():
                return True
    return False


@pytest.mark.parametrize("seed", range(3))
def test_lines_are_those_that_were_written_whatever_the_pieces(seed: int) -> None:
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
    pipe.file.close()
    os.close(writing)
    assert b"".join(seen) == written
    assert all(part.endswith(b"\n") or len(part) >= LONGEST for part in seen[:-1])


def test_a_relay_that_is_closed_waits_for_no_room() -> None:
    """The next attempt's has its place: a timer would look at it for ever. Its last lines are whole."""
    lines = b"".join(b"%07d\n" % number for number in range(MOST_TAIL // 8 + 9))
    sent: list[bytes] = []
    link: Any = SimpleNamespace(waiting_bytes=MOST_WAITING + 1, send_output=lambda _kind, *parts: sent.extend(parts))
    pipes = [os.pipe2(os.O_NONBLOCK) for _ in range(2)]
    with Loop() as loop:
        relay = Relay(loop, link, *(reading for reading, _ in pipes))
        for _, writing in pipes:
            os.write(writing, lines)
            os.close(writing)
        loop.turn(0)
        assert relay.is_paused
        relay.close()
    assert (relay.is_paused, b"".join(sent)) == (False, lines * 2)
    assert relay.tail.encode() == lines[-MOST_TAIL:]


# It says that it is there, and hangs.
HANGS = "import time\ndef hangs():\n    print('begun', flush=True); time.sleep(1000)\nhangs()"
# In place of py-spy: the words that it was given, and who stands below which process.
SPY = """\
#!/bin/sh
[ "$1 $2" = "dump --pid" ] || exit 2
[ -z "$MINGLE_RUN_KEY" ] || exit 3
case $SPY in
refused) echo "Error: Permission Denied" >&2; exit 1 ;;
hangs) exec sleep 1000 ;;
long) yes 'Thread 1 (idle)' | head -c 300000; exit ;;
esac
echo "Process $3"; echo "Thread $3 (idle): \\"MainThread\\""; echo "    hangs (<string>:3)"
"""


def supervised(runner: Runner, how: str, script: str = HANGS, **environ: str) -> None:
    """Start an agent that finds this py-spy, and COMMAND, which hangs."""
    folder = runner.directory / "bin"
    if how:
        executable(folder / "py-spy", SPY)
    path = f"{folder}:{path_without('py-spy')}"
    runner.supervise(environ={"PATH": path, "SPY": how, "PYTHONFAULTHANDLER": "", **environ})
    runner.begin(sys.executable, "-c", script, shows=b"begun")


def dumped(runner: Runner, within_s: float = 10.0) -> str:
    """Ask for stacks, and return what was answered."""
    runner.send(DUMP, Dump(0, round(within_s * 1000)))
    return str(parse(Stacks, runner.wait_for(STACKS)).text)


def test_py_spy_gives_the_stacks_and_the_program_goes_on(runner: Runner) -> None:
    supervised(runner, "works", PYTHONFAULTHANDLER="1")
    said = dumped(runner)
    assert said.splitlines()[1].endswith('(idle): "MainThread"')
    assert said.splitlines()[2] == "    hangs (<string>:3)"
    runner.send(DUMP, Dump(0, 1000))
    runner.end()
    assert runner.wait_for(ENDED)["signal"] == signal.SIGTERM
    runner.wait_for(CLEAN)
    assert len(runner.all_of(STACKS)) == 1


@pytest.mark.parametrize("how", ["", "refused", "hangs"])
def test_faulthandler_gives_the_stacks_if_py_spy_does_not(runner: Runner, how: str) -> None:
    supervised(runner, how, PYTHONFAULTHANDLER="1")
    assert dumped(runner, stacks.WRITE_S + 0.1).endswith("what faulthandler wrote at SIGABRT is in its output")
    assert runner.wait_for(ENDED)["signal"] == signal.SIGABRT
    runner.wait_for(CLEAN)
    runner.until(lambda: runner.drained)
    assert b'File "<string>", line 3 in hangs' in runner.errors


@pytest.mark.parametrize(
    ("how", "why"), [("", "py-spy is not on PATH"), ("refused", "Error: Permission Denied")], ids=["neither", "refused"]
)
def test_without_both_there_are_no_stacks_and_no_signal(runner: Runner, how: str, why: str) -> None:
    supervised(runner, how)
    said = dumped(runner)
    assert said.endswith(f": no stack ({why}, and PYTHONFAULTHANDLER=1 is not set)")
    runner.end()
    assert runner.wait_for(ENDED)["signal"] == signal.SIGTERM
    runner.wait_for(CLEAN)


def test_a_program_that_outlives_sigabrt_is_not_awaited(runner: Runner) -> None:
    supervised(runner, "", f"import signal\nsignal.signal(signal.SIGABRT, lambda *_: None)\n{HANGS}")
    assert dumped(runner, 0.5).endswith("is in its output")
    runner.end()
    runner.wait_for(CLEAN)


def test_the_stacks_are_bounded(runner: Runner) -> None:
    supervised(runner, "long")
    assert 0 <= MOST_STACKS - len(dumped(runner)) < len("Thread 1 (idle)\n")
    with pytest.raises(WireError):
        parse(Stacks, {"attempt": 0, "text": "x" * (MOST_STACKS + 1)})
    runner.end()
    runner.wait_for(CLEAN)


def test_a_line_that_grows_is_reported_before_it_ends(agent: Runner) -> None:
    agent.attempt("printf", "bar")
    assert [data for _, data in agent.frames] == [b"", b"bar"]


def test_an_abort_may_write_no_core() -> None:
    pid = os.fork()
    if not pid:
        signal.pause()
    try:
        stacks.forbid_core(pid)
        limits = Path(f"/proc/{pid}/limits").read_text()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    (core,) = (line.split() for line in limits.splitlines() if line.startswith("Max core file size"))
    assert core[4] in ("0", "1")


WRITTEN = (Path(__file__).parents[2] / "data" / "exceptions.txt").read_text().split("\n####")[1:]


@pytest.mark.parametrize(
    ("expected", "written"),
    [("", ""), *(part.split("\n", 1) for part in WRITTEN), ("", "Traceback (most recent call last):\n" * 20_000)],
)
def test_the_exception_that_ended_command_is_found(expected: str, written: str) -> None:
    """It is the last one; under torchrun the one of the worker that torchrun names."""
    assert root_exception(f"{written}\n") == expected.strip()
