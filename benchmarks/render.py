"""What `mingle template` adds to the start of bare Python, and how long a thousand renderings take."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from mingle_hooks.scripts.script import describe, render_script as render

MINGLE = str(Path(sys.executable).parent / "mingle")
TEMPLATE = [MINGLE, "template", "sbatch", "--nodes", "2", "--", "train.py"]
RUNS, RENDERINGS = 21, 1000


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def figures() -> dict[str, float]:
    """Return milliseconds over bare Python, the median of turns, and the seconds of a thousand renderings."""
    turns = [_seconds(TEMPLATE) - _seconds([sys.executable, "-c", "pass"]) for _ in range(RUNS)]
    job = describe({"nodes": "2", "time": "1:00:00"}, ["train.py", "--lr", "0.1"])
    began = time.perf_counter()
    for number in range(RENDERINGS):
        render(("slurm", "pbs")[number % 2], job)
    taken = time.perf_counter() - began
    over = statistics.median(turns) * 1e3
    print(f"  `mingle template` over `python -c pass`: median {over:.0f} ms; {RENDERINGS} renderings: {taken:.2f} s")
    return {"ms over python": over, "seconds for 1000 renderings": taken}


if __name__ == "__main__":
    figures()
