"""A first try: `mingle template … -- COMMAND` as people type it, submitted from their venv, with nothing handed on."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.pbs import PbsStandIn
    from cluster.real_pbs import RealPbs
    from cluster.slurm import SlurmCluster

TRAIN = Path(__file__).resolve().parents[2] / "examples" / "train.py"
JOB_S = 120.0


def made(line: str, place: Path) -> str:
    """Return the script that `mingle template` makes of this line in the tests' own venv, with train.py beside it."""
    shutil.copy(TRAIN, place)
    environ = {"PATH": f"{sys.prefix}/bin:/usr/bin:/bin", "VIRTUAL_ENV": sys.prefix, "HOME": os.environ["HOME"]}
    done = subprocess.run(
        [f"{sys.prefix}/bin/mingle", "template", *shlex.split(line)],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("command", "processes"),
    [
        ("-N 4 -- torchrun train.py", 4),
        ("-N 2 -n 4 -- srun torchrun train.py", 4),
        ("-N 2 -- python -m torch.distributed.run --nproc-per-node 2 train.py", 4),
        ("-N 2 -- mingle exec torchrun --rdzv-backend c10d train.py", 2),
        ("-N 2 --launcher plain -- nice torchrun train.py", 2),
        ("-N 2 -n 4 -- srun python train.py --backend sockets", 4),
        ("-N 2 -- python train.py", 2),
    ],
)
def test_it_trains_on_slurm(slurm: SlurmCluster, tmp_path: Path, command: str, processes: int) -> None:
    """All processes are one world, though sbatch hands on no environment."""
    if "sockets" not in command:
        pytest.importorskip("torch", reason="for want of torch")
    script = made(f"sbatch -t 5 -o {tmp_path}/out {command}", tmp_path)
    job = slurm.submit(script, "--export=NONE", user="alice", cwd=str(tmp_path))
    assert slurm.wait(job, timeout=JOB_S) == "COMPLETED", (tmp_path / "out").read_text()
    text = (tmp_path / "out").read_text()
    assert f"{processes} processes at step 200: y = 3.000 x + 1.000" in text, text


def test_it_trains_under_pbs(any_pbs: Callable[..., PbsStandIn | RealPbs]) -> None:
    """The tasks of all hosts find mingle and torchrun, though PBS gives them no PATH."""
    pytest.importorskip("torch", reason="for want of torch")
    its = any_pbs(2)
    job = its.submit(made("pbs -N 2 -- torchrun train.py", its.place), cwd=str(its.place))
    assert its.wait(job) == 0, its.output(job)
    assert "2 processes at step 200: y = 3.000 x + 1.000" in its.output(job)
