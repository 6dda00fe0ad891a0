"""`mingle hooks simulate`: each hook as its scheduler runs it, on any machine, with nothing of it changed."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from needs import only_with

from mingle_hooks.cli.hooks import hooks

OWNED = Path("/tmp/mingle-simulate-owned")  # noqa: S108 -- what the hostile text would make
TRIAL = re.compile(r"(\S+) +(\S.*?) +status (\d+) +[0-9.]+ ms")


@functools.cache  # each test looks at another part of it
def trials(scheduler: str) -> dict[tuple[str, str], list[str]]:
    """Simulate a scheduler's hooks; return (hook, environment) -> what it exported or left. Each ends with 0."""
    done = CliRunner().invoke(hooks, ["simulate", scheduler], catch_exceptions=False)
    assert done.exit_code == 0
    found: dict[tuple[str, str], list[str]] = {}
    for line in done.stdout.splitlines():
        match = TRIAL.fullmatch(line)
        if match:
            assert match[3] == "0"
            said = found[match[1], match[2]] = []
        elif line.startswith("    "):
            said.append(line.strip())
    assert f"{len(found)} runs, none failed" in done.stdout
    assert not OWNED.exists()
    return found


@pytest.mark.parametrize("scheduler", ["slurm", "pbs", "torque"])
def test_every_hook_ends_well_in_every_environment(scheduler: str) -> None:
    """Recorded and hostile environments alike end with status 0."""
    assert len(trials(scheduler)) >= 7


def test_slurms_hooks_show_what_a_job_gets() -> None:
    """What the TaskProlog exports in a recorded step, and nothing where nothing can be known."""
    found = trials("slurm")
    assert "export RANK=3" in found["taskprolog", "slurm-22.05-step"]
    assert found["taskprolog", "no variables at all"] == []
    assert found["taskprolog", "hostile numbers"] == []


@only_with("root")
@pytest.mark.parametrize(
    ("scheduler", "start", "end", "good", "job"),
    [
        ("slurm", "prolog", "epilog", "slurm-26.05-job", "1"),
        ("torque", "prologue", "epilogue", "a job", "12.server"),
        ("torque", "prologue.parallel", "epilogue.parallel", "a job of an array", "12[3].server"),
    ],
)
def test_roots_hooks_show_what_they_make_and_remove(scheduler: str, start: str, end: str, good: str, job: str) -> None:
    """A job's start makes its directory and its end removes that; a hostile id makes and removes nothing."""
    found = trials(scheduler)
    place = f"/run/mingle/{job} "
    assert [line for line in found[start, good] if line.startswith(place)]
    assert found[start, "a hostile job id"] == []
    assert not [line for line in found[end, good] if line.startswith(place)]
    assert [line for line in found[end, "a hostile job id"] if re.match(r"/run/mingle/[0-9]", line)]


def test_a_user_may_simulate_too() -> None:
    """Without root's rights it works, and says what is missing."""
    argv = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] if os.geteuid() == 0 else []
    command = [sys.executable, "-m", "mingle_hooks", "hooks", "simulate", "slurm"]
    done = subprocess.run([*argv, *command], capture_output=True, text=True, timeout=60, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    assert "export RANK=3" in done.stdout
    assert "run this as root" in done.stderr
