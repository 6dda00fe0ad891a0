"""Calls on files that one start of mingle makes: what a thousand nodes ask of a shared file system at once.

Two hosts, in a step as Slurm starts it, form a world each time; strace counts. A call without a path, on what is open
already, counts in the sum only.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from cluster.hosts import Hosts

if TYPE_CHECKING:
    from cluster.host import Host

BUILD = Path(__file__).parent.parent / "packaging" / "build.py"
ENV = {"MINGLE_KEY": "00112233445566778899aabbccddeeff" * 2}
STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NNODES": "2", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}
STEP |= {"SLURM_JOB_NODELIST": "node[1-2]", "SLURM_STEP_NODELIST": "node[1-2]", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
STEP |= {"SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2"}
# Multicast is asked too where a host is slow to answer, as under strace it is.
WORDS = ["env", "--via", "hosts"]
NODES = 1000


def _member(host: Host, command: list[str], trace: str) -> str:
    """Return a command line for bash: the member of this host, with its calls written to a file."""
    rank = int(host.name.removeprefix("node")) - 1
    told = {**STEP, "SLURM_NODEID": str(rank), "SLURM_PROCID": str(rank), "SLURMD_NODENAME": host.name}
    exports = " ".join(f"{name}='{value}'" for name, value in told.items())
    return f"{exports} strace -f -e trace=file -o {trace} {' '.join(command)}"


def _counted(text: str, own: str) -> dict[str, int]:
    """Return the calls of a trace, those on mingle's files and on Python's, and how many files are there."""
    calls = [line for line in text.splitlines() if re.match(r"\d+ +(?!execve)\w+\(", line)]
    paths = [found[1] if (found := re.search(r'"([^"]+)"', line)) else "" for line in calls]
    there = {path for path, line in zip(paths, calls, strict=True) if path and " = -1 " not in line}
    return {
        "calls": len(calls),
        "on mingle's files": sum(path.startswith(own) for path in paths),
        "on Python's files": sum(path.startswith(sys.base_prefix) for path in paths),
        "files": len({path for path in there if path.startswith((own, sys.base_prefix))}),
    }


def figures() -> dict[str, dict[str, int]]:
    """Return the calls of the member that makes more, for each way of installing."""
    found = {}
    with TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        subprocess.run([sys.executable, BUILD, place], check=True, stdout=subprocess.DEVNULL)
        commands = {
            "python -c pass": ([sys.executable, "-c", "pass"], sys.prefix),
            "mingle in a virtual environment": ([f"{sys.prefix}/bin/mingle", *WORDS], sys.prefix),
            "mingle.pyz": ([sys.executable, f"{place}/mingle.pyz", *WORDS], place),
            "mingle.pyz, by python -IS": ([sys.executable, "-IS", f"{place}/mingle.pyz", *WORDS], place),
        }
        with Hosts(2, share=[Path(place)]) as hosts:
            for name, (command, own) in commands.items():
                done = hosts.run_all(
                    lambda host, command=command: ["bash", "-c", _member(host, command, f"{place}/{host.name}")],  # type: ignore[misc]
                    env=ENV,
                )
                for one in done:
                    if one.returncode:
                        raise RuntimeError(one.stderr)
                traces = [_counted(Path(place, host.name).read_text(), own) for host in hosts]
                found[name] = max(traces, key=lambda its: its["calls"])
                shown = ", ".join(f"{count} {what}" for what, count in found[name].items())
                print(f"  {name:32} {shown}; {found[name]['calls'] * NODES:,} calls on {NODES} nodes")
    return found


if __name__ == "__main__":
    figures()
