"""Supervisors started by a real srun, in each kind of job."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cluster.slurm import SlurmCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.hosts import Hosts

HERE = Path(__file__).parent
KEY = "5ec4e7" * 8
# What srun says of its own step, or of itself.
OF_SRUN = ("SLURM_", "SRUN_", "SLURMD_", "PMI_", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES")
OF_SHELL = ("_", "SHLVL", "PWD", "OLDPWD")
SCRIPT = """\
umask 0027
cd {place}/'a dir'
export MINGLE_RUN_KEY={key} LINES='two
lines' QUOTED="a 'b' \\"c\\" \\$d %e, \\\\f" EMPTY=
env -0 > {place}/batch
{python} {driver} {place}/out {words}
"""


def script(place: Path, *words: str) -> str:
    for name in ("a dir", "out"):
        (place / name).mkdir(exist_ok=True)
        (place / name).chmod(0o777)
    driver = HERE / "starter_driver.py"
    return SCRIPT.format(place=place, key=KEY, python=sys.executable, driver=driver, words=shlex.join(words))


def told(place: Path) -> dict[str, Any]:
    return {path.name: json.loads(path.read_text()) for path in sorted((place / "out").iterdir())}


def batch(place: Path) -> dict[str, str]:
    pairs = (place / "batch").read_bytes().decode().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if pair)


def run(cluster: SlurmCluster, place: Path, *options: str, words: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return what the probes of a job with these options tell, after the checks that hold for all jobs."""
    place.mkdir(exist_ok=True)
    place.chmod(0o777)
    job = cluster.submit(script(place, *words), f"--output={place}/log", *options, user="alice")
    state = cluster.wait(job)
    log = (place / "log").read_text()
    assert state == "COMPLETED", log
    assert "srun" not in log, log
    found, own = told(place), batch(place)
    for name, its in found.items():
        assert its["hostname"] == name.partition(".")[0]
        assert (its["cwd"], its["umask"]) == (f"{place}/a dir", 0o027)
        assert (its["shown"], its["stdin"]) == ([], "")
        assert variables(its["environ"]) == variables(own)
        options_kept = ("SLURM_CPUS_PER_TASK", "SLURM_GPUS", "SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU")
        assert [its["environ"].get(name) for name in options_kept] == [own.get(name) for name in options_kept]
    return found


def variables(environ: dict[str, str]) -> dict[str, str]:
    return {n: v for n, v in environ.items() if not n.startswith(OF_SRUN) and n not in OF_SHELL}


JOBS = {
    "tasks": ("-N3", "--ntasks-per-node=4"),
    "processors": ("-N3", "--ntasks-per-node=2", "--cpus-per-task=2", "--threads-per-core=1", "--hint=nomultithread"),
    "uneven": ("-N3", "-n4"),
    "exclusive": ("-N2", "--exclusive", "--mem-per-cpu=10", "--distribution=cyclic", "--export=ALL,SLURM_EXACT=1"),
    "said of srun": ("-N2", "--export=ALL,SLURM_LABELIO=1,SLURM_KILL_BAD_EXIT=1,SRUN_CPUS_PER_TASK=1,SLURM_TIMELIMIT=1"),
    "alone": ("-N1", "-n2"),
}


def test_each_host_gets_one_with_the_scripts_environment(slurm: SlurmCluster, tmp_path: Path) -> None:
    """And its directory and umask, a stdin at its end, all processors of the job there, and nothing secret shown."""
    for number, (name, options) in enumerate(JOBS.items()):
        found = run(slurm, tmp_path / str(number), *options)
        count = int(options[0][2:])
        assert [*found] == [f"node{n}.0" for n in range(1, count + 1)], name
        cpus = {its["environ"]["SLURM_CPUS_ON_NODE"] for its in found.values()}
        assert cpus <= {"4", "2", "1"}, name
        if name != "uneven":
            assert cpus == ({"2"} if name == "alone" else {"4"}), name
