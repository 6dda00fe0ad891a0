"""What is lost on one of eight hosts ends all: how long that takes, under Slurm and on bare hosts.

COMMAND ends by SIGTERM; or it heeds none, and then it has the grace.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

import runs_on_hosts as losses
from cluster.host import namespace
from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster
from runs_on_hosts import OF_COMMAND, OF_RUN, RUNNER, STUBBORN, TRAINING, Bare, Runs, UnderSlurm, begin

from benchmarks import losses as beside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOSTS, TURNS, GRACE_S = 8, 3, 3.0
# What tells itself, and what only a silence tells.
AT_ONCE_S, SILENCE_S = 2.0, 15.0
LOSSES: dict[str, tuple[Callable[[Runs, Path], str], float]] = {
    "COMMAND fails": (losses.fail, AT_ONCE_S),
    "COMMAND killed": (losses.kill_command, AT_ONCE_S),
    "supervisor killed": (losses.kill_agent, AT_ONCE_S),
    "warden killed": (losses.kill_warden, AT_ONCE_S),
    "runner killed": (losses.kill_runner, AT_ONCE_S),
    "host unplugged": (losses.unplug, SILENCE_S),
    "host's processes stopped": (losses.freeze, SILENCE_S),
}
# What COMMAND is, and how much longer all may take for it.
COMMANDS = {"heeds SIGTERM": (TRAINING, 0.0), "heeds none": (STUBBORN, GRACE_S)}
LOOK_S = 0.01  # and each look takes some of them


class Times(NamedTuple):
    """Seconds from a loss until the last of it was seen."""

    elsewhere_s: float  # COMMAND, on the other hosts
    command_s: float  # COMMAND, on any host
    runner_s: float
    anything_s: float


Row = dict[str, float]


def figures() -> dict[str, object]:
    """Return medians of seconds from each loss, the longest of all, and the limit for COMMAND's end; then of peers."""
    found: dict[str, dict[str, Row]] = {}
    for kind in ("slurm", "bare"):
        with _runs(kind) as (runs, place):
            for name, (training, more_s) in COMMANDS.items():
                rows = found[f"{kind}, COMMAND {name}"] = {}
                for loss, (lose, limit_s) in LOSSES.items():
                    # Signs of life come each second: losses are spread over one.
                    taken = [_once(runs, place, training, lose, turn / TURNS) for turn in range(TURNS)]
                    rows[loss] = _row(taken, limit_s + more_s)
                    shown = "   ".join(f"{what} {value:5.2f}" for what, value in rows[loss].items())
                    print(f"  {kind:5} {name:13} {loss:24} {shown}", flush=True)
    return {**found, "peers": beside.figures()}


def _row(taken: list[Times], limit_s: float) -> Row:
    elsewhere, command, runner, anything = map(statistics.median, zip(*taken, strict=True))
    return {
        "limit, s": limit_s,
        "COMMAND elsewhere, s": elsewhere,
        "COMMAND, s": command,
        "mingle run, s": runner,
        "anything, s": anything,
        "longest, s": max(map(max, taken)),
    }


@contextmanager
def _runs(kind: str) -> Iterator[tuple[Runs, Path]]:
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        place.chmod(0o755)
        hosts = stack.enter_context(Hosts(HOSTS, share=[place]))
        if kind == "slurm":
            yield UnderSlurm(stack.enter_context(SlurmCluster(hosts))), place
        else:
            yield Bare(hosts, place, needs_network=True), place


def _once(runs: Runs, place: Path, training: str, lose: Callable[[Runs, Path], str], after_s: float) -> Times:
    with tempfile.TemporaryDirectory(dir=place) as name:
        its = Path(name)
        # A process that is stopped is lost as soon as a host.
        begin(runs, its, training, "--grace", f"{GRACE_S:g}", "--silence", f"{SILENCE_S:g},{SILENCE_S:g}")
        time.sleep(after_s)
        began = time.monotonic()
        lose(runs, its)
        try:
            times = _times(runs, began)
        finally:
            runs.lost().clear_firewall()
        runs.end(its)
    return times


def _times(runs: Runs, began: float) -> Times:
    last_s = Times(0.0, 0.0, 0.0, 0.0)
    while True:
        left = _left(runs)
        passed_s = time.monotonic() - began
        last_s = Times(*(passed_s if its else before_s for its, before_s in zip(left, last_s, strict=True)))
        if not any(left):
            return last_s
        time.sleep(LOOK_S)


def _left(runs: Runs) -> tuple[bool, bool, bool, bool]:
    """Tell what of the run is there, as the fields of Times."""
    here = runs.hosts.processes()
    lost = namespace(runs.lost().pid)
    command = [pid for pid, line in here.items() if any(word in line for word in OF_COMMAND)]
    return (
        any(namespace(pid) not in (lost, "") for pid in command),
        bool(command),
        any(RUNNER in line for line in here.values()),
        any(word in line for line in here.values() for word in OF_RUN),
    )


if __name__ == "__main__":
    figures()
