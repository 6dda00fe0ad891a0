"""What can be lost of a run on one host; each returns what is said of it, with RANK for the host's rank."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from supervise.on_hosts.runs import RUNNER, everything, of_run

if TYPE_CHECKING:
    from pathlib import Path

    from supervise.on_hosts.runs import Runs


def _signal_command(runs: Runs, place: Path, number: int) -> None:
    """Signal COMMAND's own process, not what it started."""
    rank = runs.ranked.index(runs.lost())
    os.kill(int((place / str(rank)).read_text()), number)


def fail(runs: Runs, place: Path) -> str:
    _signal_command(runs, place, signal.SIGUSR1)
    return f"{runs.lost().name} (rank RANK): exited with status 7 after"


def kill_command(runs: Runs, place: Path) -> str:
    _signal_command(runs, place, signal.SIGKILL)
    return f"{runs.lost().name} (rank RANK): killed by SIGKILL after"


def eat_memory(runs: Runs, place: Path) -> str:
    """Take more memory than the host has."""
    _signal_command(runs, place, signal.SIGUSR2)
    return f"{runs.lost().name} (rank RANK): killed by SIGKILL after"


def kill_supervisor(runs: Runs, _place: Path) -> str:
    host = runs.lost()
    os.kill(of_run(host, "start.py agent")[1], signal.SIGKILL)
    return f"{host.name} (rank RANK): its supervisor was killed or lost its connection"


def kill_warden(runs: Runs, _place: Path) -> str:
    host = runs.lost()
    os.kill(of_run(host, "start.py agent")[0], signal.SIGKILL)
    return f"{host.name} (rank RANK): its supervisor was killed or lost its connection"


def unplug(runs: Runs, _place: Path) -> str:
    host = runs.lost()
    host.unplug()
    return f"{host.name} (rank RANK): no sign of life for"


def freeze(runs: Runs, _place: Path) -> str:
    """Stop all that the run has on a host."""
    host = runs.lost()
    for pid in everything(host):
        os.kill(pid, signal.SIGSTOP)
    return f"{host.name} (rank RANK): no sign of life for"


def stop(runs: Runs, _place: Path) -> str:
    runs.stop()
    return "ending: SIGTERM received"


def kill_runner(runs: Runs, _place: Path) -> str:
    """Kill the runner, which is the batch script; nobody can say why any more."""
    os.kill(of_run(runs.home, RUNNER)[0], signal.SIGKILL)
    return ""
