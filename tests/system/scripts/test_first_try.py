"""A first try: `mingle template … -- COMMAND` as people type it, submitted from their venv, with nothing handed on."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster.hosts import Hosts
from cluster.pbs import PbsStandIn
from cluster.real_pbs import RealPbs
from cluster.slurm import SlurmCluster
from light import TRAIN as LIGHT
from light import VENV
from support.needs import need
from support.remote_stand_ins import RemoteStandIn

from mingle_hooks.scripts.script import describe
from mingle_hooks.scripts.script import environment_lines as lines
from mingle_hooks.scripts.script import render_script as render

TRAIN = Path(__file__).resolve().parents[3] / "examples" / "train.py"
JOB_S = 120.0


def made(line: str, place: Path, train: Path, venv: str | Path = sys.prefix) -> str:
    """Return the script that `mingle template` makes of this line in a venv, with train.py beside it."""
    shutil.copy(train, place)
    environ = {"PATH": f"{sys.prefix}/bin:/usr/bin:/bin", "VIRTUAL_ENV": str(venv), "HOME": os.environ["HOME"]}
    done = subprocess.run(
        [f"{sys.prefix}/bin/mingle", "template", *shlex.split(line)],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def submitted(slurm: SlurmCluster, place: Path, command: str, train: Path, venv: str | Path = sys.prefix) -> str:
    """Return what the job of this line wrote, submitted without any environment."""
    script = made(f"sbatch -t 5 -o {place}/out {command}", place, train, venv)
    job = slurm.submit(script, "--export=NONE", user="alice", cwd=str(place))
    assert slurm.wait(job, timeout=JOB_S) == "COMPLETED", (place / "out").read_text()
    return (place / "out").read_text()


@pytest.mark.parametrize(
    ("command", "processes", "venv"),
    [
        ("-N 4 -- torchrun train.py", 4, VENV),
        ("-N 2 -n 4 -- srun torchrun train.py", 4, VENV),
        ("-N 2 -- python -m torch.distributed.run --rdzv-backend c10d --nproc-per-node 2 train.py", 4, sys.prefix),
        ("-N 2 -- mingle exec torchrun train.py", 2, VENV),
        ("-N 2 --launcher plain -- nice torchrun train.py", 2, VENV),
    ],
)
def test_torchrun_starts_one_world_on_slurm(
    slurm: SlurmCluster, tmp_path: Path, command: str, processes: int, venv: str | Path
) -> None:
    """All processes are one world, though sbatch hands on no environment."""
    if venv != VENV:
        need("torch")
    text = submitted(slurm, tmp_path, command, LIGHT, venv)
    ranks = re.findall(rf"rank (\d) of {processes} begins", text)
    assert sorted(ranks) == [str(rank) for rank in range(processes)], text


@pytest.mark.parametrize(
    ("command", "processes"),
    [("-N 2 -n 4 -- srun python train.py --backend sockets", 4), ("-N 2 -- python train.py", 2)],
)
def test_it_trains_on_slurm(slurm: SlurmCluster, tmp_path: Path, command: str, processes: int) -> None:
    """So do processes that Slurm starts, with torch and without."""
    if "sockets" not in command:
        need("torch")
    text = submitted(slurm, tmp_path, command, TRAIN)
    assert f"{processes} processes at step 200: y = 3.000 x + 1.000" in text, text


def test_torchrun_starts_one_world_under_pbs(any_pbs: Callable[..., PbsStandIn | RealPbs]) -> None:
    """The tasks of all hosts find mingle and torchrun, though PBS gives them no PATH."""
    its = any_pbs(2)
    job = its.submit(made("pbs -N 2 -- torchrun train.py", its.place, LIGHT, VENV), cwd=str(its.place))
    assert its.wait(job) == 0, its.output(job)
    assert sorted(re.findall(r"rank (\d) of 2 begins", its.output(job))) == ["0", "1"], its.output(job)


@pytest.mark.parametrize("scheduler", ["lsf", "sge", "torque"])
def test_it_trains_by_remote_start(hosts: Callable[..., Hosts], tmp_path: Path, scheduler: str) -> None:
    """Each host makes the environment again by itself."""
    script = made(f"{scheduler} -N 2 -n 4 -- srun python train.py --backend sockets", tmp_path, TRAIN)
    with RemoteStandIn(scheduler, hosts(2), tmp_path, 2) as its:
        status, text = its.run(script)
    assert status == 0, text
    assert "4 processes at step 200" in text


NASTY = 'it\'s "$(touch pwned)" `touch pwned` $HOME;\n{{ x }} é \\'


def nasty(place: Path, scheduler: str) -> str:
    """Return a script of a mingle in a directory of the worst name; its job prints what PATH begins with."""
    program = place / NASTY / "mingle"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.prefix}/bin/mingle "$@"\n')
    program.chmod(0o755)
    tell = 'import json, os; print(json.dumps(os.environ["PATH"].split(":")[0]), flush=True)'
    options = {"nodes": "2", "launcher": "plain", "output": f"{place}/out"}
    if scheduler != "slurm":
        del options["output"]
    job = describe(options, [sys.executable, "-c", tell])
    return render(scheduler, job, environment=lines({}, str(program)))


@pytest.mark.parametrize("scheduler", ["lsf", "sge", "torque"])
def test_a_hostile_path_arrives_by_remote_start(hosts: Callable[..., Hosts], tmp_path: Path, scheduler: str) -> None:
    """On every host PATH begins with the directory as it is, and no text of it is run."""
    script = nasty(tmp_path, scheduler)
    with RemoteStandIn(scheduler, hosts(2), tmp_path, 1) as its:
        status, text = its.run(script)
    assert (status, text.count(json.dumps(f"{tmp_path}/{NASTY}"))) == (0, 2), text
    assert not list(tmp_path.rglob("pwned"))


def test_a_hostile_path_arrives_on_slurm(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The same, by srun."""
    job = slurm.submit(nasty(tmp_path, "slurm"), "--export=NONE", user="alice", cwd=str(tmp_path))
    assert slurm.wait(job, timeout=JOB_S) == "COMPLETED", (tmp_path / "out").read_text()
    assert (tmp_path / "out").read_text().count(json.dumps(f"{tmp_path}/{NASTY}")) == 2
    assert not list(tmp_path.rglob("pwned"))


def test_a_hostile_path_arrives_under_pbs(any_pbs: Callable[..., PbsStandIn | RealPbs]) -> None:
    """The same, by pbs_tmrsh."""
    its = any_pbs(2)
    job = its.submit(nasty(its.place, "pbs"), cwd=str(its.place))
    assert its.wait(job) == 0, its.output(job)
    assert its.output(job).count(json.dumps(f"{its.place}/{NASTY}")) == 2
    assert not list(its.place.rglob("pwned"))
