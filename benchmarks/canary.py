"""Jobs while the hooks' settings and version change node by node, on a real Slurm: whether a step's nodes disagree.

Each host has an /etc of its own. The hooks change on one host after the other, without a pause, until the last job has
ended; every job has steps whose tasks tell what they were given and which hook gave it.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from cluster.hosts import Hosts
from cluster.paths import PROJECT
from cluster.slurm import SlurmCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.host import Host

DATA = PROJECT / "tests/data"
JOBS, NODES, STEPS = 200, 4, 3
TIMEOUT_S = 1500.0
HOOKS = "/etc/mingle/hooks/slurm"
LINES = (f"Prolog={HOOKS}/prolog", f"Epilog={HOOKS}/epilog", f"TaskProlog={HOOKS}/taskprolog", "PrologFlags=Alloc")
# What each host has in turn, every other time with the next version of mingle: its settings, and those of [hooks].
SETTINGS = (
    ("", "observe = true"),
    ("", ""),
    ('host_suffix = "-ib"\nport_range = "30000-34999"', ""),
    ("", 'hosts = ["node1"]'),
    ("", 'partitions = ["none"]'),
)
OWN = 'prolog = "none"\nepilog = "none"\ntaskprolog = "none"\n'
# A task tells its step, which hook its node has by now, and what it was given.
TASK = (
    'echo "$SLURM_STEP_ID $(cksum <{hooks}/taskprolog | tr " " -)'
    ' ${{MASTER_ADDR-}}:${{MASTER_PORT-}}:${{MINGLE_ID-}}:${{NNODES-}}"'
)
JOB = """#!/bin/sh
for step in $(seq {steps}); do srun --overlap sh -c '{task}'; sleep 0.$((SLURM_ARRAY_TASK_ID % 10)); done
"""


def figures() -> dict[str, int]:
    """Return how many jobs and steps there were, and of these how many were on nodes that had different hooks."""
    with Hosts(NODES) as hosts, SlurmCluster(hosts, cpus=8) as slurm:
        hosts.run_all(["sh", "-ec", (DATA / "own_etc.sh").read_text()], check=True)
        for host in hosts:
            host.write("/etc/mingle/key", "ab" * 32 + "\n", mode=0o400)
            host.write("/run/next/mingle", (DATA / "next_mingle.sh").read_text(), mode=0o755)
            _install(host, *SETTINGS[1], is_next=False)
        slurm.reconfigure(*LINES)
        script = JOB.format(steps=STEPS, task=TASK.format(hooks=HOOKS))
        some = (f"--array=1-{JOBS}", "-N2-4", "--ntasks-per-node=1", "-o", "/home/alice/out.%a")
        job = slurm.submit(script, *some, user="alice")
        changes, deadline = 0, time.monotonic() + TIMEOUT_S
        for host, (settings, hooks), is_next in _changes(hosts):
            if slurm.has_no_job() or time.monotonic() > deadline:
                break
            _install(host, settings, hooks, is_next=is_next)
            changes += 1
        states = Counter(slurm.states(job))
        steps = list(_steps(hosts[0]))
        found = {
            "jobs": JOBS,
            "jobs completed": states["COMPLETED"],
            "changes of a node's hooks meanwhile": changes,
            "steps": len(steps),
            "steps whose nodes had different hooks": sum(len({hook for hook, _ in step}) > 1 for step in steps),
            "steps that were given variables": sum(step[0][1] != ":::" for step in steps),
            "steps whose nodes disagree": sum(len({given for _, given in step}) > 1 for step in steps),
            "nodes drained": sum(state.startswith(("drain", "down")) for state in slurm.sinfo().values()),
        }
    for name, count in found.items():
        print(f"  {name:42} {count:6}")
    return found


def _changes(hosts: Hosts) -> Iterator[tuple[Host, tuple[str, str], bool]]:
    """Yield a host, its next settings and whether it has the next version of mingle, host by host."""
    for number, settings in enumerate(itertools.cycle(SETTINGS)):
        yield from ((host, settings, number % 2 == 0) for host in hosts)


def _install(host: Host, settings: str, hooks: str, *, is_next: bool) -> None:
    host.write("/etc/mingle/mingle.toml", f"{settings}\n[hooks]\n{OWN}{hooks}\n")
    path = "PATH=/run/next:$PATH " if is_next else ""
    host.run(["sh", "-c", f"{path}mingle hooks install slurm --yes"], check=True)


def _steps(host: Host) -> Iterator[list[tuple[str, str]]]:
    """Yield each step's tasks: the node's hook, and what it gave."""
    for path in sorted(host.outside("/home/alice").glob("out.*")):
        rows = [line.split() for line in path.read_text().splitlines() if line.endswith(tuple("0123456789:"))]
        for step in sorted({row[0] for row in rows}):
            yield [(row[1], row[2]) for row in rows if row[0] == step]


if __name__ == "__main__":
    figures()
