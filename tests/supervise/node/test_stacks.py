"""The stacks of COMMAND's Python processes, where nobody writes any more."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from supervise.runner.places import path_without

from mingle_hooks.rendezvous.wire import WireError, parse
from mingle_hooks.run import command as stacks
from mingle_hooks.run.messages import CLEAN, DUMP, ENDED, MOST_STACKS, STACKS, Dump, Stacks

if TYPE_CHECKING:
    from fake_runner import Runner

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


def supervised(runner: Runner, how: str, **environ: str) -> None:
    """Start a supervisor that finds this py-spy, and COMMAND, which hangs."""
    folder = runner.directory / "bin"
    folder.mkdir()
    if how:
        spy = folder / "py-spy"
        spy.write_text(SPY)
        spy.chmod(0o755)
    path = f"{folder}:{path_without('py-spy')}"
    runner.supervise(environ={"PATH": path, "SPY": how, "PYTHONFAULTHANDLER": "", **environ})
    runner.start(sys.executable, "-c", HANGS)
    runner.until(lambda: b"begun" in runner.output)


def dumped(runner: Runner, within_s: float = 10.0) -> str:
    """Ask for stacks, and return what was answered."""
    runner.say(DUMP, Dump(0, round(within_s * 1000)))
    return str(parse(Stacks, runner.wait_for(STACKS)).text)


def test_py_spy_tells_them_and_the_program_goes_on(runner: Runner) -> None:
    """It has not the run's key; a second question is none."""
    supervised(runner, "works", PYTHONFAULTHANDLER="1")
    said = dumped(runner)
    assert said.splitlines()[1].endswith('(idle): "MainThread"')
    assert said.splitlines()[2] == "    hangs (<string>:3)"
    runner.say(DUMP, Dump(0, 1000))
    runner.end()
    assert runner.wait_for(ENDED)["signal"] == signal.SIGTERM
    runner.wait_for(CLEAN)
    assert len(runner.all_of(STACKS)) == 1


@pytest.mark.parametrize("how", ["", "refused", "hangs"])
def test_faulthandler_tells_them_where_py_spy_does_not(runner: Runner, how: str) -> None:
    """It is not there, may not look, or hangs; no core is written."""
    supervised(runner, how, PYTHONFAULTHANDLER="1")
    assert dumped(runner, stacks.WRITE_S + 0.1).endswith("what faulthandler wrote at SIGABRT is in its output")
    assert runner.wait_for(ENDED)["signal"] == signal.SIGABRT
    runner.wait_for(CLEAN)
    runner.until(lambda: runner.drained)
    assert b'File "<string>", line 3 in hangs' in runner.errors


@pytest.mark.parametrize(
    ("how", "why"), [("", "py-spy is not on PATH"), ("refused", "Error: Permission Denied")], ids=["neither", "refused"]
)
def test_who_has_neither_is_told_and_gets_no_signal(runner: Runner, how: str, why: str) -> None:
    supervised(runner, how)
    said = dumped(runner)
    assert said.endswith(f": no stack ({why}, and PYTHONFAULTHANDLER=1 is not set)")
    runner.end()
    assert runner.wait_for(ENDED)["signal"] == signal.SIGTERM
    runner.wait_for(CLEAN)


def test_what_is_told_is_bounded(runner: Runner) -> None:
    supervised(runner, "long")
    assert 0 <= MOST_STACKS - len(dumped(runner)) < len("Thread 1 (idle)\n")
    with pytest.raises(WireError):
        parse(Stacks, {"attempt": 0, "text": "x" * (MOST_STACKS + 1)})
    runner.end()
    runner.wait_for(CLEAN)


def test_a_line_that_grows_is_told_before_it_ends(runner: Runner) -> None:
    """A bar of progress writes no end of line for hours."""
    runner.supervise()
    runner.attempt("printf", "bar")
    assert [data for _, data in runner.frames] == [b"", b"bar"]


def test_an_abort_may_write_no_core() -> None:
    """Neither into a file nor into a program."""
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
