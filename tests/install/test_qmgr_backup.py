"""The backup of PBS's hooks: the printed command, with a stand-in for qmgr that answers as the real one does."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from mingle_hooks.cli.hooks import hooks

if TYPE_CHECKING:
    from pathlib import Path

# Statuses and words of OpenPBS 23.06.
QMGR = {
    "hooks": 'case "$2" in "print hook") echo create hook own ;; "list hook") echo Hook own ;; *) exit 1 ;; esac',
    "no hooks": 'case "$2" in "list hook") exit 0 ;; *) exit 1 ;; esac',
    "mingle is there": "echo create hook mingle",
    "not a manager": 'echo "x is unauthorized to access hooks data" >&2; [ "$2" = "list hook" ]',
    "no server": 'echo "qmgr: cannot connect to server" >&2; exit 3',
    "a server that goes": 'case "$2" in "print hook") echo create hoo; exit 1 ;; *) echo refused >&2; exit 3 ;; esac',
}
# The backup where the command succeeds; None: it is not touched.
WANTED = {"hooks": "create hook own\n", "no hooks": "", "mingle is there": None}


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("state", QMGR)
def test_the_backup_is_whole_or_the_command_fails(tmp_path: Path, state: str, *, older: bool) -> None:
    """It is made anew where mingle's hook is not there yet; what cannot be asked for replaces nothing."""
    done = CliRunner().invoke(hooks, ["install", "pbs", "--yes", "--root", str(tmp_path)], catch_exceptions=False)
    line = next(line for line in done.stdout.splitlines() if "print hook" in line)
    backup = tmp_path / "etc/mingle/hooks/qmgr-hooks.before"
    if older:
        backup.write_text("older\n")
    program = tmp_path / "bin/qmgr"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{QMGR[state]}\n")
    program.chmod(0o755)
    env = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    script = line.replace("/etc/mingle", f"{tmp_path}/etc/mingle")
    status = subprocess.run(["sh", "-ec", script], env=env, capture_output=True, timeout=20, check=False).returncode
    assert (status == 0) is (state in WANTED)
    kept = "older\n" if older else None
    wanted = kept if WANTED.get(state) is None else WANTED[state]
    assert (backup.read_text() if backup.exists() else None) == wanted
