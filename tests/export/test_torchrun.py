"""Plain `torchrun train.py`, without a flag, on two nodes of this machine with different numbers of slots."""

from __future__ import annotations

import os
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest
from light import BIN
from needs import only_with

from mingle_hooks.export.variables import variables
from mingle_hooks.world import Assignment, View, World

if TYPE_CHECKING:
    from pathlib import Path

# Without torch, whose import takes 1.5 s of a processor: what torchrun makes of the variables is tried. The real one
# trains so, over IPv6 too, in system/launchers/test_eval_in_job_scripts.py.
TORCHRUN = str(BIN / "torchrun")
TELL = """
import os
with open(f"rank{os.environ['RANK']}", "w") as file:
    file.write(f"{os.environ['WORLD_SIZE']} of {os.environ['WORLD_SIZE']}")
"""


@pytest.mark.parametrize(
    ("address", "slots"), [("127.0.0.1", (1, 2)), pytest.param("::1", (2, 1), marks=only_with("IPv6"))]
)
def test_plain_torchrun_forms_the_world(address: str, slots: tuple[int, int], tmp_path: Path) -> None:
    """Every rank of both nodes is there once."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.bind((address, 0))
        port = probe.getsockname()[1]
    (tmp_path / "train.py").write_text(TELL)
    size = sum(slots)
    world = World("job", len(slots), size, address, port, "0123456789abcdef")
    nodes = [launch(world, Assignment(rank, count, None, address, "lo"), tmp_path) for rank, count in enumerate(slots)]
    try:
        said = [node.communicate(timeout=120)[0] for node in nodes]
    finally:
        for node in nodes:
            node.terminate()  # and not killed: torchrun then ends its own processes
            node.wait(60)
    assert [node.returncode for node in nodes] == [0, 0], said
    assert [(tmp_path / f"rank{rank}").read_text() for rank in range(size)] == [f"{size} of {size}"] * size


def launch(world: World, place: Assignment, directory: Path) -> subprocess.Popen[bytes]:
    """Start what a user would on one node."""
    found = variables(View(world, place, "node", {}), ["torchrun", "gloo"])
    environ = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "HOME": str(directory)}
    return subprocess.Popen(
        [TORCHRUN, "train.py"],
        cwd=directory,
        env=environ | {variable.name: variable.value for variable in found},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
