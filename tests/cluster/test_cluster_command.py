from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cluster import holder

if TYPE_CHECKING:
    from cluster.slurm import SlurmCluster

TESTS = Path(__file__).parents[1]


def test_commands_on_a_pipe_run_on_the_first_host(slurm: SlurmCluster) -> None:
    """`make cluster` runs what comes on a pipe as alice, returns its status, and leaves nothing behind."""
    assert slurm.sinfo()  # skips where there can be no Slurm
    with subprocess.Popen(
        [sys.executable, "-m", "cluster"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=TESTS,
    ) as done:
        out, err = done.communicate("srun -N4 hostname | sort\nhostname\nid -un\nls\nexit 3\n", timeout=120)
    assert out.split() == ["node1", "node2", "node3", "node4", "node1", "alice", "train.py"]
    assert done.returncode == 3
    assert "You are alice on node1" in err
    assert re.search(r"srun -N4 mingle exec (torchrun|python3) train\.py\n", err)
    assert [tag for tag in holder.tagged().values() if tag.split(":")[1] == str(done.pid)] == []


def test_on_a_terminal_it_is_an_interactive_shell(slurm: SlurmCluster) -> None:
    """On a terminal there is a prompt with the host's name, and the shell's end is the end."""
    assert slurm.sinfo()
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "cluster", "root"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        cwd=TESTS,
    ) as process:
        os.close(theirs)
        os.write(ours, b"srun -N2 hostname </dev/null; exit 4\n")
        shown = read_all(ours)
        assert process.wait(120) == 4
    os.close(ours)
    assert "root@node1:" in shown
    assert "node2" in shown


def read_all(terminal: int) -> str:
    """Return all that is written to a terminal until its other side is closed."""
    output = b""
    with contextlib.suppress(OSError):  # EIO is how Linux tells the end of a terminal.
        while more := os.read(terminal, 4096):
            output += more
    return output.decode(errors="replace")


def test_an_unknown_user_is_refused_by_name() -> None:
    """A user whom the hosts do not have is a usage error."""
    done = subprocess.run(
        [sys.executable, "-m", "cluster", "mallory"], capture_output=True, text=True, check=False, cwd=TESTS
    )
    assert done.returncode == 64
    assert "'mallory'" in done.stderr
