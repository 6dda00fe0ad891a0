"""Hooks of which only a part is there, as after a copy that was broken off."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from rendered import HOOKS, SHELLS, SITES, shell

from mingle_hooks.hooks.files import render_hook as render

if TYPE_CHECKING:
    from pathlib import Path

SHELL_HOOKS = [each for each in HOOKS if each.template.endswith(".sh.j2") and each.scheduler != "pbs"]
# Of scripts that differ in their names only, one is enough: the last.
SCRIPTS = [*{(each.template, each.scheduler): each for each in SHELL_HOOKS}.values()]


def run(argv: list[str], env: dict[str, str]) -> tuple[int, str]:
    """Run a hook and return its status and output; what it leaves in its process group is ended, as slurmd does."""
    process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        return process.wait(20), process.communicate(timeout=20)[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize("each", SCRIPTS, ids=lambda each: f"{each.scheduler}-{each.name}")
def test_a_hook_that_ends_at_any_line_is_no_failure(tmp_path: Path, each: object, name: str) -> None:
    """Cut after any line, a hook has status 0, and a TaskProlog prints nothing or all.

    Under dash that is every line but comments, after which a shell reads what it read before them; under the other
    shells it is every tenth, as each is a process or several.
    """
    hook = next(known for known in SCRIPTS if known is each)
    text = render(hook, *SITES["plain"], state_directory=f"{tmp_path}/state")
    script, lines = tmp_path / "hook", text.splitlines(keepends=True)
    env = {
        "SLURM_JOB_ID": "7", "SLURM_JOB_UID": "0", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n1",
        "SLURM_STEP_NUM_NODES": "1", "SLURM_NNODES": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2",
        "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_LOCALID": "0",
    }  # fmt: skip
    printed = set()
    told = [number for number, line in enumerate(lines, 1) if number == 1 or line.split("#", 1)[0].strip()]
    for count in {*(told if name == "dash" else range(1, len(lines), 10)), len(lines)}:
        script.write_text("".join(lines[:count]))
        status, output = run([*shell(name), str(script), "7.server", "root", "root"], env)
        assert status == 0, (count, lines[count - 1])
        printed.add(output)
    assert len(printed) <= 2, printed
