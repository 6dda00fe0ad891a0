"""What `mingle` adds to the start of a step, on four real hosts with a real Slurm.

All commands take turns within one run, so that a machine that slows down slows all of them.
"""

from __future__ import annotations

import statistics
import sys
import time
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster

HERE = Path(sys.executable).parent
TORCHRUN = [
    sys.executable,
    *("-m", "torch.distributed.run", "--nnodes=4", "--nproc-per-node=1", "--rdzv-backend=c10d"),
    *("--rdzv-endpoint=node1:29400", "--no-python", "true"),
]
COMMANDS = {
    "true": ["true"],
    "python -c pass": [sys.executable, "-c", "pass"],
    "mingle exec -- true": [str(HERE / "mingle"), "exec", "--", "true"],
    "eval $(mingle env)": ["bash", "-c", f'eval "$({HERE}/mingle env)"; true'],
}
BASE = "python -c pass"
RUNS = 21
TORCH_RUNS = 3


def _seconds(slurm: SlurmCluster, command: list[str]) -> float:
    began = time.perf_counter()
    slurm.srun("-N4", *command, timeout=120, check=True)
    return time.perf_counter() - began


def figures(runs: int = RUNS) -> dict[str, dict[str, float]]:
    """Return each command's median and least seconds, and the median of its ratio to BASE, turn by turn."""
    with Hosts(4) as hosts, SlurmCluster(hosts) as slurm:
        turns = [{name: _seconds(slurm, command) for name, command in COMMANDS.items()} for _ in range(runs)]
        if find_spec("torch"):
            for turn in turns[:TORCH_RUNS]:
                turn["torchrun"] = _seconds(slurm, TORCHRUN)
    found = {}
    for name in turns[0]:
        taken = [turn[name] for turn in turns if name in turn]
        ratio = statistics.median(turn[name] / turn[BASE] for turn in turns if name in turn)
        found[name] = {"median": statistics.median(taken), "min": min(taken), f"ratio to {BASE}": ratio}
        print(f"  srun -N4 {name:22} median {found[name]['median'] * 1e3:7.1f} ms   {ratio:5.2f} x `{BASE}`")
    return found


if __name__ == "__main__":
    figures()
