"""Generated scripts for the other launchers, run on the real Slurm: by stand-ins, and by the real mpirun."""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import launcher_stand_ins
import pytest
from light import TRAIN as LIGHT
from needs import need

from mingle_hooks.scripts.script import describe
from mingle_hooks.scripts.script import render_script as render

if TYPE_CHECKING:
    from cluster.slurm import SlurmCluster

TRAIN = Path(__file__).resolve().parents[2] / "examples" / "train.py"
# Ray's driver: it waits for all nodes, as a program that wants all of them does.
DRIVER = """
import os, socket, sys, time
host, _, port = os.environ["RAY_ADDRESS"].rpartition(":")
while True:
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rw") as file:
        file.write("status\\n")
        file.flush()
        nodes = int(file.readline())
    if nodes == 3:
        break
    time.sleep(0.2)
print(nodes, "nodes", flush=True)
sys.exit(int(sys.argv[1]))
"""


def run(
    slurm: SlurmCluster, place: Path, options: dict[str, Any], *command: str, train: Path = TRAIN
) -> tuple[str, str, str]:
    """Run a job of these options as alice, and return its state, its exit code and its output."""
    (place / "bin").mkdir()
    for name in ("accelerate", "deepspeed", "ray"):
        (place / "bin" / name).write_text(
            f'#!/bin/sh\nexec {sys.executable} {launcher_stand_ins.__file__} {name} "$@"\n'
        )
        (place / "bin" / name).chmod(0o755)
    (place / "driver.py").write_text(DRIVER)
    shutil.copy(train, place)
    common = {"time": "5", "output": f"{place}/out", "setup": [f"PATH={place}/bin:{Path(sys.executable).parent}:$PATH"]}
    job = slurm.submit(render("slurm", describe(common | options, command)), user="alice", cwd=str(place))
    return slurm.wait(job), slurm.job(job)["ExitCode"], (place / "out").read_text()


@pytest.mark.parametrize("launcher", ["accelerate", "deepspeed"])
def test_a_launcher_of_each_node_trains(slurm: SlurmCluster, tmp_path: Path, launcher: str) -> None:
    """A stand-in on each of three hosts starts its two processes, and all six are one world."""
    options = {"nodes": "3", "ntasks-per-node": "2", "launcher": launcher}
    state, _, text = run(slurm, tmp_path, options, "train.py", "--backend", "sockets")
    assert state == "COMPLETED", text
    assert sorted(text.count(f"rank {rank} of 6 begins") for rank in range(6)) == [1] * 6
    assert "6 processes at step 200: y = 3.000 x + 1.000" in text


@pytest.mark.parametrize("launcher", ["accelerate", "deepspeed"])
@pytest.mark.parametrize("command", [["-m", "train"], ["python3", "train.py"]], ids=" ".join)
def test_a_launcher_starts_modules_and_programs(
    slurm: SlurmCluster, tmp_path: Path, launcher: str, command: list[str]
) -> None:
    """All six processes have one address, and each its rank."""
    options = {"nodes": "3", "ntasks-per-node": "2", "launcher": launcher}
    state, _, text = run(slurm, tmp_path, options, *command, train=LIGHT)
    assert state == "COMPLETED", text
    assert sorted(text.count(f"rank {rank} of 6 begins") for rank in range(6)) == [1] * 6
    assert [*Counter(re.findall(r"\bAT=(\S+)", text)).values()] == [6], text


@pytest.mark.parametrize("launcher", ["accelerate", "deepspeed"])
def test_a_failure_under_a_launcher_is_the_jobs(slurm: SlurmCluster, tmp_path: Path, launcher: str) -> None:
    """The status of the process that failed is the job's, and the others end."""
    command = 'if [ "$RANK" = 3 ]; then exit 7; fi; exec sleep 600'
    state, code, text = run(
        slurm, tmp_path, {"nodes": "2", "ntasks-per-node": "2", "launcher": launcher}, "bash", "-c", command
    )
    assert (state, code) == ("FAILED", "7:0"), text


@pytest.mark.parametrize("status", [0, 7])
def test_ray_has_a_head_and_workers(slurm: SlurmCluster, tmp_path: Path, status: int) -> None:
    """The driver runs beside the head once, with all nodes; its end is the job's, with its status."""
    state, code, text = run(slurm, tmp_path, {"nodes": "3", "launcher": "ray"}, "driver.py", str(status))
    assert (state, code) == ("FAILED" if status else "COMPLETED", f"{status}:0"), text
    assert text.count("node1: 3 nodes") == 1


def test_mpirun_starts_all_ranks(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Open MPI's own mpirun starts a process for each slot of three hosts."""
    need("mpirun")
    options = {"nodes": "3", "ntasks-per-node": "2", "launcher": "mpirun"}
    state, _, text = run(slurm, tmp_path, options, "train.py", "--backend", "sockets")
    assert state == "COMPLETED", text
    assert "6 processes at step 200" in text
