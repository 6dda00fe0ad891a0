"""What a task waits for the TaskProlog over /bin/true: both started in turn, with a recorded task's environment."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from mingle_hooks import files as shipped
from mingle_hooks.hooks.files import Site, render_hook as render
from mingle_hooks.hooks.targets import hook

ROUNDS = 400
# As a batch script's TaskProlog and a `mingle env` leave it.
EARLIER = "MINGLE_ID MASTER_ADDR MASTER_PORT NNODES WORLD_SIZE LOCAL_WORLD_SIZE MINGLE_WORLD MINGLE_EXPORTS "
EARLIER += "MINGLE_ID=1 MASTER_ADDR=node1 MASTER_PORT=23089 NNODES=3"
CASES = {"a step of two tasks a node": "slurm-22.05-step", "a batch script": "slurm-22.05-batch"}


def figures() -> dict[str, dict[str, float]]:
    """Return, for each kind of task, the median milliseconds of /bin/true, of the hook, and of their differences."""
    found = {}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "taskprolog"
        path.write_text(render(hook("slurm", "taskprolog"), Site(interfaces=("lo",))))
        path.chmod(0o755)
        for name, file in CASES.items():
            lines = shipped.shipped_text(f"{shipped.ENVIRONMENTS}/{file}.taskprolog").splitlines()
            environ = dict(line.partition("=")[::2] for line in lines) | {"MINGLE_EXPORTS": EARLIER}
            turns = [(_ms("/bin/true", environ), _ms(str(path), environ)) for _ in range(ROUNDS)]
            found[name] = {
                "true ms": statistics.median(true for true, _ in turns),
                "hook ms": statistics.median(hook for _, hook in turns),
                "over true ms": statistics.median(hook - true for true, hook in turns),
            }
            print(f"  {name:28}", ", ".join(f"{key} {ms:5.2f}" for key, ms in found[name].items()))
    return found


def _ms(path: str, environ: dict[str, str]) -> float:
    began = time.perf_counter()
    nowhere = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(path, [path], environ, file_actions=nowhere)
    _, status = os.waitpid(pid, 0)
    taken = time.perf_counter() - began
    if status:
        raise RuntimeError(f"{path} ended with {status}")
    return taken * 1000


if __name__ == "__main__":
    figures()
