"""The job scripts of examples/: each is what the command in its first lines makes, and its training runs anywhere."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from forked import Forked

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = sorted(path for scheduler in ("slurm", "pbs") for path in (EXAMPLES / scheduler).glob("*.sh"))
NAMES = ["accelerate", "array", "container", "ddp", "deepspeed", "elastic-requeue", "heterogeneous", "jax"]


@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_every_example_is_there_for_both(scheduler: str) -> None:
    """Slurm and PBS have the same examples."""
    assert [path.stem for path in sorted((EXAMPLES / scheduler).glob("*.sh"))] == NAMES


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_example_is_what_its_command_makes(path: Path, forked: Forked) -> None:
    """The command in the second line, run again, gives the same file; for the first it is started as users do."""
    text = path.read_text()
    command = text.splitlines()[1].removeprefix("# Made by: ").rpartition(" (mingle-hooks ")[0]
    program, *words = shlex.split(command)
    assert program == "mingle"
    clean = {"PATH": os.environ["PATH"]}
    if path == SCRIPTS[0]:
        argv = [sys.executable, "-m", "mingle_hooks", *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, env=clean)
    else:
        done = forked.run(*words, env=clean)
    assert (done.returncode, done.stdout) == (0, text)


def test_the_training_runs_without_a_scheduler(tmp_path: Path) -> None:
    """Alone, train.py fits the line, and goes on from its checkpoint when it is started again."""
    command = [sys.executable, str(EXAMPLES / "train.py"), "--steps"]
    first = subprocess.run([*command, "100"], cwd=tmp_path, capture_output=True, text=True, check=True)
    again = subprocess.run([*command, "200"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "1 processes at step 100" in first.stdout
    assert again.stdout.splitlines() == [
        "rank 0 of 1 begins at step 100",
        "1 processes at step 200: y = 3.000 x + 1.000",
    ]
