"""A stand-in for torchrun that starts one process, and what the training that it starts says."""

import re
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess

from cluster.paths import BIN
from light import TRAIN
from support.executables import executable

# The ranks that the real torchrun would give where every node has one process.
TORCHRUN = f"""#!/bin/sh
export RANK="$PET_NODE_RANK" WORLD_SIZE="$PET_NNODES" MASTER_ADDR="$PET_MASTER_ADDR" MASTER_PORT="$PET_MASTER_PORT"
shift
exec python3 {TRAIN} "$@"
"""
OF_FOUR = ["0 of 4", "1 of 4", "2 of 4", "3 of 4"]


def torchrun(place: Path) -> str:
    """Put the stand-in into a directory, and return a PATH that begins with it."""
    return f"{executable(place / 'bin' / 'torchrun', TORCHRUN).parent}:{BIN}:/usr/bin:/bin"


def ranks(results: Sequence[CompletedProcess[str]]) -> list[str]:
    """Return the rank and size that each host's training says, in the hosts' order."""
    assert [done.returncode for done in results] == [0] * len(results), results
    return [found for done in results for found in re.findall(r"^rank (\d of \d) begins$", done.stdout, re.MULTILINE)]
