"""The deepspeed launcher, on every node and without ssh.

Read in deepspeed 0.19, launcher/runner.py: with --no_ssh it starts the processes of node --node_rank out of the
hostfile.
"""

from __future__ import annotations

from collections.abc import Mapping

from mingle_hooks.export.launchers.words import absent, check, given
from mingle_hooks.world import View

FLAGS = frozenset(
    {
        *("-h", "--help", "--module", "--no-python", "--no-local-rank", "--no-ssh", "--no-ssh-check"),
        *("--force-multi", "--save-pid", "--bind-cores-to-rank", "-q", "--quiet"),
    }
)


def options(_name: tuple[str, ...], words: tuple[str, ...], view: View, exported: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hostfile, this node's place in it, and where rank 0 is. Raises UsageError."""
    asked = given(words, FLAGS)
    check("deepspeed", asked, view.world.nodes, view.place.node_rank)
    found = {
        "--hostfile": exported["MINGLE_HOSTFILE"],
        "--no_ssh": None,
        "--node_rank": view.place.node_rank,
        "--master_addr": view.world.master_addr,
        "--master_port": view.world.master_port,
    }
    if "-H" in asked:
        del found["--hostfile"]
    return absent(found, asked)
