"""The main job on one machine: four local nodes meet, then all run the same unchanged training script.

Each node is a shell that knows nothing of the others but an id and a number: it evaluates `mingle env` and runs
train.py, which averages its numbers over all nodes through MASTER_ADDR and MASTER_PORT. They stay on loopback.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

NODES = 4
SHOWN = ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "NNODES", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "MINGLE_WORLD")
NODE = """
set -e
v=$(mingle env --id demo --nodes "$NODES" --iface lo --slots 1 --timeout 60) || exit
eval "$v"
env > "$PLACE/$NODE.env"
exec "$PYTHON" "$TRAIN" --steps 100 --checkpoint "$PLACE/checkpoint.json"
"""


def main() -> int:
    """Run the nodes, show what each one got and said, and return 0 when all of them agree."""
    python = Path(sys.executable)
    key = subprocess.run([python.parent / "mingle", "key"], check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as place:
        common = {
            **os.environ,
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            "MINGLE_KEY": key,
            "NODES": str(NODES),
            "PLACE": place,
            "PYTHON": str(python),
            "TRAIN": str(Path(__file__).with_name("train.py")),
        }
        nodes = [
            subprocess.Popen(
                ["sh", "-c", NODE],
                env={**common, "NODE": str(number)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for number in range(1, NODES + 1)
        ]
        said = [node.communicate(timeout=120)[0] for node in nodes]
        got = [_environment(Path(place, f"{number}.env")) for number in range(1, NODES + 1)]
    _show(got, said)
    worlds = {node.get("MINGLE_WORLD") for node in got}
    ranks = sorted(node.get("NODE_RANK", "") for node in got)
    if any(node.returncode for node in nodes) or len(worlds) != 1 or ranks != [str(rank) for rank in range(NODES)]:
        print("\nThe nodes did not form one world: see above.")
        return 1
    print("\nOne world, four nodes, the same rank 0 for all of them; train.py does not know how they found it.")
    return 0


def _environment(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    return dict(line.partition("=")[::2] for line in path.read_text().splitlines())


def _show(got: list[dict[str, str]], said: list[str]) -> None:
    print('What `eval "$(mingle env --id demo --nodes 4)"` gave to each node:\n')
    for name in SHOWN:
        print(f"  {name:18}" + "".join(f"{node.get(name, '-'):>18}" for node in got))
    print("\nWhat the unchanged train.py said on each:\n")
    for number, text in enumerate(said, 1):
        for line in text.splitlines():
            print(f"  node {number} | {line}")


if __name__ == "__main__":
    sys.exit(main())
