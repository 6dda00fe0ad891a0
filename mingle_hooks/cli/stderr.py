"""Standard error: what is said there may be lost, for there is nobody else to tell."""

from __future__ import annotations

import os
import stat
import sys


def write(text: str) -> None:
    """Write text to stderr, as far as that can be done."""
    send(text.encode(sys.stderr.encoding, "backslashreplace"))


def send(data: bytes) -> None:
    """Write bytes to stderr, as far as that can be done."""
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:  # closed, full, or nobody reads it
        return


def is_of_step() -> bool:
    """Tell whether all tasks of a Slurm step share this stderr: slurmstepd reads it from a pipe and srun shows it.

    A file, as by `srun --error=%t`, a terminal of `srun --pty` and a redirection are this task's own.
    """
    return "SLURM_STEP_ID" in os.environ and "SLURM_LOCALID" in os.environ and stat.S_ISFIFO(os.fstat(2).st_mode)
