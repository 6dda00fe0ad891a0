"""A node of an elastic world that is killed and started again, with the same line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial

from cluster.hosts import Hosts

from frameworks.rows import ALIKE, REJOIN
from frameworks.runs import ENV, KEY, LATE, Seen, daemons, tried

# By then all three have taken steps together.
WELL_UNDER_WAY = "STEP 5"


def killed(hosts: Hosts) -> str:
    """Train on three hosts, kill the third meanwhile and start it again; return "" where all came to the end."""
    return tried(REJOIN.name, partial(_killed, hosts), len(ALIKE))


def _killed(hosts: Hosts) -> Seen:

    def start(number: int) -> subprocess.Popen[str]:
        world = f"--id elastic --nodes {len(ALIKE)} --rank {number}"
        line = f"exec mingle exec {world} {REJOIN.command(ALIKE, sys.executable)}"
        return hosts[number].popen(["bash", "-c", line], env={**KEY, **ENV})

    first, second, third = (start(number) for number in range(len(ALIKE)))
    assert first.stdout is not None
    for line in first.stdout:
        if line.startswith(WELL_UNDER_WAY):
            break
    for pid in set(hosts[2].processes()) - daemons(hosts):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    third.wait()
    ended = [first, second, start(2)]
    try:
        said = [its.communicate(timeout=REJOIN.longest_s) for its in ended]
    except subprocess.TimeoutExpired as late:
        return Seen([LATE], "", str(late))
    return Seen([its.returncode for its in ended], *("".join(its[stream] for its in said) for stream in (0, 1)))
