"""What the hooks cost: their own time and size, then srun with each against without on a real Slurm, by medians.

Each case has a node of its own, whose slurmd has its own settings, so that a job on each takes its turn within the
same second, whatever else the machine does. The nodes have a system log, as nodes have.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from cluster.hosts import Hosts
from cluster.slurm import CONF, LOGS, SlurmCluster, conf

from mingle_hooks.hooks.files import Site, render_hook
from mingle_hooks.hooks.slurm import SLURM_HOOKS

if TYPE_CHECKING:
    from cluster.host import Host

DIRECTORY = "/etc/mingle/hooks/slurm"
ROUNDS, TURNS = 12, 6
NONE = "no hooks"
CASES = {
    NONE: "",
    "TaskProlog=/bin/true": "TaskProlog=/bin/true",
    "TaskProlog of mingle": f"TaskProlog={DIRECTORY}/taskprolog",
    "Prolog=/bin/true": "Prolog=/bin/true",
    "Prolog of mingle": f"Prolog={DIRECTORY}/prolog",
}
# Alloc by itself costs most: srun then asks the controller every 0.1 s or so whether the Prologs have ended.
FLAGS = {"": (), "Alloc, ": ("PrologFlags=Alloc",)}
RELOAD_S = 1.0
# Each in turn for a job of its own, as slurmd runs them; what is left is the median of the differences from /bin/true.
ALONE = """
import json, statistics, subprocess, sys, time
def ms(path, job):
    environ = {"SLURM_JOB_ID": str(job), "SLURM_JOB_UID": "61001", "SLURM_CLUSTER_NAME": "x"}
    began = time.perf_counter()
    subprocess.run([path], env=environ, stdin=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - began) * 1000
rows = [[ms(path, job) for path in sys.argv[1:]] for job in range(1000, 1100)]
print(json.dumps([statistics.median(its[at] - its[0] for its in rows) for at in range(1, len(rows[0]))]))
"""
OWN_CONF = "/run/slurm.conf"
# /dev of this host alone, with a system log that is read.
NEW_DEV = """
new=/run/dev; mkdir $new; mount -t tmpfs -o mode=0755 none $new
for name in null zero full random urandom tty ptmx fd stdin stdout stderr; do cp -a /dev/$name $new; done
mkdir $new/pts $new/shm; mount --bind /dev/pts $new/pts; mount --rbind $new /dev
"""
LOG = """
import socket
log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
log.bind("/dev/log")
while True:
    log.recv(65536)
"""


def figures() -> dict[str, dict[str, float]]:
    """Return, for each case, the median milliseconds of srun and of its difference from the case without hooks."""
    found = {}
    with Hosts(1 + len(CASES)) as hosts:
        for host in hosts:
            host.run(["/bin/sh", "-c", NEW_DEV], check=True)
        logs = [host.popen([sys.executable, "-c", LOG]) for host in hosts]
        try:
            with SlurmCluster(hosts) as slurm:
                slurm.controller.write("/etc/mingle/key", "ab" * 32 + "\n", mode=0o400)
                slurm.controller.run(["mingle", "hooks", "install", "slurm", "--yes"], check=True)
                found["alone"] = alone = _alone(slurm.controller) | _sizes()
                for key, value in alone.items():
                    print(f"  {key:42} {value:7.1f}")
                for flags, lines in FLAGS.items():
                    for name, figure in _of_cases(slurm, lines).items():
                        found[flags + name] = figure
                        print(f"  {flags + name:28}", ", ".join(f"{key} {ms:5.1f}" for key, ms in figure.items()))
        finally:
            for log in logs:
                log.kill()
                log.communicate()
    return found


def _alone(host: Host) -> dict[str, float]:
    """Return the milliseconds of root's hooks over /bin/true."""
    paths = [f"{DIRECTORY}/{name}" for name in ("prolog", "epilog")]
    done = host.run([sys.executable, "-c", ALONE, "/bin/true", *paths], check=True)
    return dict(zip(("prolog over /bin/true ms", "epilog over /bin/true ms"), json.loads(done.stdout), strict=True))


def _sizes() -> dict[str, float]:
    """Return what an admin has to read: lines of shell as installed, and the page's words."""
    lines = [line.strip() for hook in SLURM_HOOKS.values() for line in render_hook(hook, Site()).splitlines()]
    page = (Path(__file__).parents[1] / "docs/admin.md").read_text()
    return {
        "lines of shell": len(lines),
        "lines without comments and empty ones": sum(bool(line) and line[0] != "#" for line in lines),
        "words of docs/admin.md": len(page.split()),
    }


def _of_cases(slurm: SlurmCluster, flags: tuple[str, ...]) -> dict[str, dict[str, float]]:
    slurm.reconfigure(*flags)
    nodes = dict(zip(CASES, list(slurm.hosts)[1:], strict=True))
    for name, host in nodes.items():
        _configure(slurm, host, *flags, CASES[name])
    try:
        rows = [row for _ in range(ROUNDS) for row in _round(slurm, [host.name for host in nodes.values()])]
    finally:
        for host in nodes.values():
            host.run(["umount", CONF], check=True)
    return {
        name: {
            "median ms": statistics.median(row[host.name] for row in rows),
            "over no hooks ms": statistics.median(row[host.name] - row[nodes[NONE].name] for row in rows),
        }
        for name, host in nodes.items()
    }


def _configure(slurm: SlurmCluster, host: Host, *lines: str) -> None:
    """Give one node settings of its own, over the file that all share."""
    host.write(OWN_CONF, conf([each.name for each in slurm.hosts], slurm.cpus, lines))
    host.run(["/bin/sh", "-c", f"mount --bind {OWN_CONF} {CONF} && kill -HUP $(cat {LOGS}/slurmd.pid)"], check=True)
    time.sleep(RELOAD_S)


def _round(slurm: SlurmCluster, nodes: list[str]) -> list[dict[str, float]]:
    """Return the milliseconds of a job on each node, turn by turn; each turn begins with another node."""
    turns = [nodes[turn % len(nodes) :] + nodes[: turn % len(nodes)] for turn in range(TURNS + 1)]
    # The clock is read on the host, so that the way into it does not count.
    once = "a=$(date +%s%N); srun -N1 -w {0} /bin/true; b=$(date +%s%N); echo {0} $((b - a))"
    script = "\n".join(once.format(node) for turn in turns for node in turn)
    said = slurm.controller.run(["/bin/sh", "-c", script], user="alice", check=True, timeout=120).stdout.split()
    taken = [(node, int(ns) / 1e6) for node, ns in zip(said[::2], said[1::2], strict=True)]
    each = [dict(taken[at : at + len(nodes)]) for at in range(0, len(taken), len(nodes))]
    return each[1:]  # the first one finds cold caches


if __name__ == "__main__":
    figures()
