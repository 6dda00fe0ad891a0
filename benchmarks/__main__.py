"""`make bench`: run the benchmarks named as arguments, all by default; print and save their figures."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from importlib import import_module
from pathlib import Path

from benchmarks import plots

NAMES = {
    "startup": "srun -N4, on four real hosts with a real Slurm",
    "scale": "from the last member's arrival to the last answer, simulated members",
    "rooms": "what 65,536 and 100,000 members cost: packets counted, the rest computed from scale",
    "traffic": "datagrams in a minute's wait",
    "port": "MASTER_PORT against another user of rank 0's host, in a thousand worlds",
    "render": "job scripts: start-up of the command, and a thousand renderings",
    "files": "what one mingle env asks of the file system",
    "taskprolog": "what a task waits for the task prolog",
    "run": "mingle run: its start and end, a gigabyte of output, and what it is at rest",
    "ending": "mingle run: from a loss on one of eight hosts to the end of all, under Slurm and bare; its peers",
    "causes": "mingle run: which first lines of the report name what torchrun's worker failed of",
    "check": "mingle check of healthy hosts: 800 simulated ones; 64 here; with loss, busy processors, slow logins",
    "silence": "mingle run: 1,024 agents at rest where 30 % of the heartbeats are lost both ways",
    "canary": "200 jobs while the hooks of four nodes change one by one: steps whose nodes disagree",
    "scripts": "job scripts on a real Slurm: which traps show, and what the fixed ones do",
    "peers": "mingle beside torchrun, MPI, Ray, NVRx, zeroconf and Slurm's own ways: start, loss, check-in",
    "hooks": "what prolog and task prolog add to srun, on a real Slurm",
}
# Reads what the others have written.
PLOTS = ("plots", "docs/benchmarks.md and docs/scale.md, from peers.json and rooms.json; made at the end of these too")
RESULTS = Path(__file__).parent / "results"


def chosen(words: list[str]) -> list[str]:
    """Return the benchmarks that are named, all of them where none is; print the usage where that was asked for."""
    known = "".join(f"  {name:9} {text}\n" for name, text in [*NAMES.items(), PLOTS])
    usage = f"usage: python -m benchmarks [NAME ...]\n\nRun these benchmarks, all by default:\n{known}"
    if {"-h", "--help"}.intersection(words):
        sys.stdout.write(usage)
        sys.exit(0)
    if unknown := [word for word in words if word not in {*NAMES, PLOTS[0]}]:
        sys.stderr.write(f"{usage}\nerror: no benchmark is called {' or '.join(unknown)}\n")
        sys.exit(2)
    return words or [*NAMES, PLOTS[0]]


def main(names: list[str]) -> None:
    """Run each benchmark and write results/NAME.json."""
    for name in names:
        if name == PLOTS[0]:
            continue
        print(f"{name}: {NAMES[name]}")
        figures = import_module(f"benchmarks.{name}").figures()
        about = {
            "when": time.strftime("%Y-%m-%d", time.gmtime()),
            "python": platform.python_version(),
            "processors": os.cpu_count(),
            "load before": os.getloadavg()[0],
        }
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps({**about, "figures": figures}, indent=2) + "\n")
    if {"peers", "rooms", PLOTS[0]}.intersection(names):
        plots.write()
        import_module("benchmarks.rooms").write()


if __name__ == "__main__":
    main(chosen(sys.argv[1:]))
