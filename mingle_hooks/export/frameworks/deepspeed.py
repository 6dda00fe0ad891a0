"""The deepspeed launcher: `deepspeed --hostfile "$MINGLE_HOSTFILE" --master_addr "$MASTER_ADDR" train.py`.

Read in deepspeed 0.19, launcher/runner.py: lines of `host slots=N`, each host once, from --hostfile or
/job/hostfile and from no variable.
"""

from __future__ import annotations

from mingle_hooks.export.hostfiles import mpi
from mingle_hooks.world import File, View


def settings(view: View) -> dict[str, str]:
    """Return nothing: all is in the file."""
    return {}


def files(view: View) -> tuple[File, ...]:
    """Return the hostfile."""
    return hostfile(view)


def hostfile(view: View, *variables: str) -> tuple[File, ...]:
    """Return the hostfile that DeepSpeed and Open MPI read, or nothing without a roster."""
    text = mpi.text(view.world.roster)
    return (File("hostfile", text, ("MINGLE_HOSTFILE", *variables)),) if text else ()
