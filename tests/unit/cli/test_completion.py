"""A Tab in bash, zsh and fish: the real shells, asked as a person asks them."""

import os
import pty
import select
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from forked import Forked
from needs import need

from mingle_hooks.cli.commands import COMMANDS, COMPLETERS as SPOKEN, matching as matches
from mingle_hooks.export.frameworks import FRAMEWORKS
from mingle_hooks.export.hostfiles import FORMATS
from mingle_hooks.export.variables import SHELLS
from mingle_hooks.hooks.targets import TARGETS
from mingle_hooks.scripts.directives import SCHEDULERS
from mingle_hooks.scripts.job import LAUNCHERS
from mingle_hooks.settings import BACKENDS

BIN = Path(sys.executable).parent
# In seconds; a bound on a shell that hangs, not a measure.
PATIENCE_S = 30.0
START = {
    "bash": (["bash", "--norc", "-i"], 'bind "set enable-bracketed-paste off" 2>/dev/null; PS1="ready> "'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -U compinit; compinit -u -D; unset zle_bracketed_paste; PS1="ready> "'),
}
# What is typed -> all that it may become.
WORDS = {
    "mingle ": {*COMMANDS},
    "mingle hosts --format ": {*FORMATS},
    "mingle env --for ": {*FRAMEWORKS, "none"},
    "mingle env --shell ": {*SHELLS},
    "mingle env --via ": {*BACKENDS},
    "mingle env --scope ": {"node", "task"},
    "mingle env --slots ": {"gpus", "tasks", "cpus"},
    "mingle template ": {*SCHEDULERS, "list", "show", "eject"},
    "mingle template slurm --launcher ": {*LAUNCHERS},
    "mingle hooks render ": {"slurm", "pbs", "torque"},
    "mingle hooks render pbs ": {*TARGETS["pbs"].hooks},
    "mingle completion ": {*SPOKEN},
    # Behind a mistake, without an error: a person's line is no place for a message.
    "mingle =": {*COMMANDS},
    'mingle env "unclosed': set(),
    "mingle env --nosuch ": set(),
    "mingle hooks render slrum ": set(),
}
# What is typed -> the one thing that a Tab makes of it.
BECOMES = {
    "mingle ex": "mingle exec",
    "mingle env --for nccl,g": "mingle env --for nccl,gloo",
    "mingle env --on": "mingle env --on-failure",
    "mingle exec --nodes 4 python some-f": "mingle exec --nodes 4 python some-file",
    "mingle run --restarts 3 some-f": "mingle run --restarts 3 some-file",
    "mingle run --log-dir some-d": "mingle run --log-dir some-directory/",
    "mingle env --key-file some-f": "mingle env --key-file some-file",
    "mingle env --directory some-d": "mingle env --directory some-directory/",
    "mingle template slurm --nodes 2 -- some-f": "mingle template slurm --nodes 2 -- some-file",
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Make a directory with a file and a directory."""
    (tmp_path / "some-file").touch()
    (tmp_path / "some-directory").mkdir()
    return tmp_path


def environ(place: Path) -> dict[str, str]:
    """Return an environment in which only what is tested is told."""
    return {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(place), "TERM": "dumb", "LC_ALL": "C.UTF-8"}


def answer(forked: Forked, shell: str, typed: str) -> set[str]:
    """Return the words with which the shell's script would be answered."""
    variables = {"_MINGLE_COMPLETE": f"{shell}_complete", "COMP_WORDS": typed}
    variables["COMP_CWORD"] = "" if shell == "fish" else str(typed.count(" "))
    done = forked.run(env={**os.environ, **variables})
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    if shell == "zsh":
        return set(lines[1::3])
    return {line.split(",", 1)[1].partition("\t")[0] for line in lines if line}


class Terminal:
    """An interactive shell in a terminal, with mingle's completion evaled."""

    def __init__(self, shell: str, place: Path) -> None:
        argv, setup = START[shell]
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(place)
            os.execvpe(argv[0], argv, environ(place))  # noqa: S606 - in the child of pty.fork
        self._type(f'{setup}; eval "$(mingle completion {shell})"; echo s"et up"\n')
        self._read("set up")

    def tab(self, typed: str, becomes: str) -> str:
        """Type this and a Tab, and return what stands there once it is what it should become, or time is over."""
        self._type(f"{typed}\t")
        shown = self._read(becomes)
        self._type("\x15")  # Ctrl-U takes the line away
        return shown

    def close(self) -> None:
        """End the shell."""
        os.close(self.terminal)
        os.waitpid(self.pid, 0)

    def _type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def _read(self, until: str) -> str:
        shown, deadline = "", time.monotonic() + PATIENCE_S
        while until not in shown and time.monotonic() < deadline:
            if select.select([self.terminal], [], [], 0.1)[0]:
                shown += os.read(self.terminal, 65536).decode(errors="replace")
                while "\b" in shown:  # zsh takes a space back, and writes another
                    at = shown.index("\b")
                    shown = shown[: max(at - 1, 0)] + shown[at + 1 :]
        return shown


def test_what_is_listed_already_is_not_offered_again() -> None:
    """A list has each value once; a single value may be any that begins so."""
    known = ("torchrun", "tensorflow", "nccl")
    assert [item.value for item in matches("torchrun,t", known, is_list=True)] == ["torchrun,tensorflow"]
    assert [item.value for item in matches("t", known)] == ["torchrun", "tensorflow"]


@pytest.mark.parametrize(
    ("shell", "typed"), [*(("bash", typed) for typed in WORDS), ("zsh", "mingle "), ("fish", "mingle ")]
)
def test_every_value_that_there_is_and_no_other_is_offered(forked: Forked, shell: str, typed: str) -> None:
    """Each shell gets the values in the form that its script reads."""
    assert answer(forked, shell, typed) == WORDS[typed]


@pytest.mark.parametrize(("instruction", "code"), [("bash_no", 64), ("tcsh_complete", 64), ("", 0)])
def test_what_no_script_says_is_a_mistake(forked: Forked, place: Path, instruction: str, code: int) -> None:
    """An empty variable says nothing."""
    done = forked.run("key", env={**environ(place), "_MINGLE_COMPLETE": instruction})
    assert (done.returncode, f"saw {instruction}; try" in done.stderr) == (code, bool(code))


@pytest.mark.parametrize("shell", START)
def test_a_tab_completes_what_is_typed_in_a_terminal(shell: str, place: Path) -> None:
    """Options, values, lists, and files, also for COMMAND."""
    need(shell)
    with closing(Terminal(shell, place)) as terminal:
        for typed, becomes in BECOMES.items():
            assert becomes in terminal.tab(typed, becomes)


def test_fish_offers_the_same(place: Path) -> None:
    need("fish")
    script = "mingle completion fish | source; complete -C 'mingle env --for gl'; complete -C 'mingle run some-f'"
    argv = ["fish", "--no-config", "-c", script]
    done = subprocess.run(argv, env=environ(place), cwd=place, capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == (["gloo", "some-file"], "")
