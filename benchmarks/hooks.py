"""What the hooks cost on a real Slurm: srun with each against without, in turn, medians.

On one host, as every node of a cluster has processors of its own; and on four, which share this machine's.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster

DIRECTORY = "/etc/mingle/hooks/slurm"
ROUNDS, RUNS = 4, 8
NODES = (1, 4)
# Alloc by itself costs most: srun then asks the controller every 0.1 s or so whether the Prologs have ended.
CASES = {
    "no hooks": (),
    "TaskProlog=/bin/true": ("TaskProlog=/bin/true",),
    "TaskProlog of mingle": (f"TaskProlog={DIRECTORY}/taskprolog",),
    "Prolog=/bin/true": ("Prolog=/bin/true",),
    "Prolog of mingle": (f"Prolog={DIRECTORY}/prolog",),
    "Alloc, no Prolog": ("PrologFlags=Alloc",),
    "Alloc, Prolog=/bin/true": ("PrologFlags=Alloc", "Prolog=/bin/true"),
    "Alloc, Prolog of mingle": ("PrologFlags=Alloc", f"Prolog={DIRECTORY}/prolog"),
}


def figures() -> dict[str, dict[str, float]]:
    """Return, for each case and number of nodes, the median and the least milliseconds of srun."""
    taken: dict[tuple[int, str], list[float]] = {(nodes, name): [] for nodes in NODES for name in CASES}
    with Hosts(4) as hosts, SlurmCluster(hosts) as slurm:
        host = slurm.controller
        host.write("/etc/mingle/key", "ab" * 32 + "\n", mode=0o400)
        host.run(["mingle", "hooks", "install", "slurm", "--yes"], check=True)
        # The clock is read on the host, so that the way into it does not count.
        once = "a=$(date +%s%N); srun -N{} /bin/true; b=$(date +%s%N); echo $((b - a))"
        for _ in range(ROUNDS):
            for name, lines in CASES.items():
                slurm.reconfigure(*lines)
                for nodes in NODES:
                    for run in range(RUNS + 1):
                        argv = ["/bin/sh", "-c", once.format(nodes)]
                        done = host.run(argv, user="alice", check=True)
                        if run:  # the first one finds cold caches
                            taken[nodes, name].append(int(done.stdout) / 1e6)
    found = {}
    for (nodes, name), times in taken.items():
        found[f"-N{nodes} {name}"] = {"median ms": statistics.median(times), "min ms": min(times)}
        print(f"  -N{nodes} {name:26} median {statistics.median(times):6.1f} ms   least {min(times):6.1f} ms")
    return found


if __name__ == "__main__":
    figures()
