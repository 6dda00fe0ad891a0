"""Generated scripts on the real Slurm of the test hosts, as a user who is not root."""

from __future__ import annotations

import re
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from light import BIN
from light import TRAIN as LIGHT
from needs import need

from mingle_hooks.scripts.script import describe
from mingle_hooks.scripts.script import render_script as render

if TYPE_CHECKING:
    from cluster.slurm import SlurmCluster

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# A batch script has the PATH of the one who submits; the tests' Python is nobody's default.
SETUP = f"PATH={Path(sys.executable).parent}:$PATH"
JOB_S = 120.0
# Long enough that nothing but a signal ends it within the test.
LONG = ("--steps", "100000", "--pause", "0.1")
BARE = ("--backend", "sockets")  # saves the seconds that torch takes to load


# Rank 1 fails while rank 0 is at work; when they are there again, both say so.
FAILS_ONCE = """
import os, sys, time, train
if not os.path.exists("failed"):
    if os.environ["RANK"] == "0":
        open("began", "w").close()
        time.sleep(600)
    while not os.path.exists("began"):
        time.sleep(0.1)
    open("failed", "w").close()
    sys.exit(3)
train.main()
"""


def submit(slurm: SlurmCluster, place: Path, options: dict[str, Any], *command: str) -> str:
    """Give in the job of these options as alice, with train.py in its directory."""
    if not (place / "train.py").exists():
        shutil.copy(EXAMPLES / "train.py", place)
    common = {"time": "5:00", "output": f"{place}/%j.out", "setup": [SETUP]}
    script = render("slurm", describe(common | options, command or ("train.py",)))
    return slurm.submit(script, user="alice", cwd=str(place))


def output(place: Path, job: str) -> str:
    """Return what a job wrote."""
    return (place / f"{job}.out").read_text()


def begun(place: Path, job: str, size: int) -> list[tuple[str, str]]:
    """Return the host and the rank of each process that says that it begins."""
    return sorted(re.findall(rf"^(node\d): rank (\d) of {size} begins", output(place, job), re.MULTILINE))


def wait_for_text(place: Path, job: str, text: str, seconds: float = JOB_S) -> None:
    """Wait until a job's output holds a text."""
    deadline = time.monotonic() + seconds
    while not (place / f"{job}.out").exists() or text not in output(place, job):
        assert time.monotonic() < deadline, f"no {text!r} in the output of job {job}"
        time.sleep(0.2)


# The real static one trains from a script in test_hosts_with_different_gpus.
def test_torchrun_starts_one_on_each_host(slurm: SlurmCluster, tmp_path: Path) -> None:
    """It is on all hosts, and each line says on which it was written."""
    shutil.copy(LIGHT, tmp_path)
    options = {"nodes": "4", "launcher": "torchrun", "setup": [SETUP, f"PATH={BIN}:$PATH"]}
    job = submit(slurm, tmp_path, options)
    assert slurm.wait(job, timeout=JOB_S) == "COMPLETED", output(tmp_path, job)
    assert begun(tmp_path, job, 4) == [(f"node{n + 1}", str(n)) for n in range(4)]


def test_one_process_per_task(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The launcher "process" has Slurm start every process, each with its own rank."""
    options = {"nodes": "4", "ntasks-per-node": "2", "launcher": "process"}
    job = submit(slurm, tmp_path, options, "train.py", *BARE)
    assert slurm.wait(job, timeout=JOB_S) == "COMPLETED", output(tmp_path, job)
    text = output(tmp_path, job)
    assert "8 processes at step 200" in text
    begins = sorted(re.findall(r"^(\d node\d): rank (\d) of 8 begins", text, re.MULTILINE))
    assert begins == [(f"{n} node{n // 2 + 1}", str(n)) for n in range(8)]


def test_groups_of_different_nodes(slurm: SlurmCluster, tmp_path: Path) -> None:
    """A heterogeneous job is one world over all of its groups."""
    options = {"nodes": "1+2", "ntasks-per-node": "1+2", "launcher": "process"}
    job = submit(slurm, tmp_path, options, "train.py", *BARE)
    assert slurm.wait(job, timeout=JOB_S) == "COMPLETED", output(tmp_path, job)
    assert "5 processes at step 200" in output(tmp_path, job)


def test_an_array_is_one_world_for_each_of_its_jobs(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Two jobs of an array, two hosts each, run at once and do not meet."""
    options = {"nodes": "2", "array": "1-2", "launcher": "plain", "output": f"{tmp_path}/%a.out"}
    job = submit(
        slurm,
        tmp_path,
        options,
        "bash",
        "-c",
        'exec python3 train.py --checkpoint "$SLURM_ARRAY_TASK_ID.json" --backend sockets',
    )
    assert slurm.wait(job, timeout=JOB_S) == "COMPLETED"
    assert ["2 processes at step 200" in output(tmp_path, n) for n in "12"] == [True, True]


def test_a_failing_rank_fails_the_job(slurm: SlurmCluster, tmp_path: Path) -> None:
    """When one rank fails the job fails with its status, and nothing is left on any host."""
    options = {"nodes": "4", "launcher": "plain"}
    line = 'if [ "$NODE_RANK" = 2 ]; then exit 7; fi; exec sleep 600'
    job = submit(slurm, tmp_path, options, "bash", "-c", line)
    assert slurm.wait(job, timeout=30) == "FAILED"
    assert slurm.job(job)["ExitCode"] == "7:0", output(tmp_path, job)


def test_elastic_restarts_a_failed_process(slurm: SlurmCluster, tmp_path: Path) -> None:
    """With torchrun-elastic a process that fails is started again, with all others, and the job completes."""
    need("torch")
    shutil.copy(LIGHT, tmp_path)
    (tmp_path / "fails_once.py").write_text(FAILS_ONCE)
    options = {"nodes": "2", "launcher": "torchrun-elastic", "max-restarts": "1"}
    job = submit(slurm, tmp_path, options, "fails_once.py")
    assert slurm.wait(job, timeout=JOB_S) == "COMPLETED", output(tmp_path, job)
    assert begun(tmp_path, job, 2) == [("node1", "0"), ("node2", "1")]


@pytest.mark.parametrize(("launcher", "nodes"), [("process", 4), ("torchrun", 2)])
def test_a_cancelled_job_saves(slurm: SlurmCluster, tmp_path: Path, launcher: str, nodes: int) -> None:
    """On scancel the training gets TERM, writes its checkpoint and ends; nothing is left."""
    if launcher == "torchrun":
        need("torch")
        shutil.copy(LIGHT, tmp_path)
    command = ("train.py", *LONG, *BARE) if launcher == "process" else ("train.py", "--wait")
    job = submit(slurm, tmp_path, {"nodes": str(nodes), "launcher": launcher}, *command)
    wait_for_text(tmp_path, job, f"rank 0 of {nodes} begins")
    slurm.controller.run(["scancel", job], user="alice", check=True)
    assert slurm.wait(job, timeout=30) == "CANCELLED"
    slurm.wait_idle()
    assert (tmp_path / "checkpoint.json").exists(), output(tmp_path, job)


def test_a_requeued_job_goes_on_from_its_checkpoint(slurm: SlurmCluster, tmp_path: Path) -> None:
    """With --requeue the warned job saves, is queued again, and begins where it stopped."""
    options = {"nodes": "2", "launcher": "process", "time": "5", "requeue": True}
    job = submit(slurm, tmp_path, options, "train.py", *LONG, *BARE)
    wait_for_text(tmp_path, job, "rank 0 of 2 begins at step 0")
    # What Slurm does before the time limit, without the wait for it.
    slurm.controller.run(["scancel", "--batch", "--signal=USR1", job], user="alice", check=True)
    slurm.wait_state(job, "PENDING")
    assert slurm.job(job)["Restarts"] == "1"
    # Slurm puts a requeued job off for two minutes, as its old credentials are revoked: by the second, so that
    # a few are enough.
    time.sleep(3)
    deadline = time.monotonic() + 60
    while len(begins := re.findall(r"rank 0 of 2 begins at step (\d+)", output(tmp_path, job))) < 2:
        assert time.monotonic() < deadline, output(tmp_path, job)
        slurm.controller.run(["scontrol", "update", f"jobid={job}", "starttime=now"])
        time.sleep(0.5)
    assert int(begins[1]) > 0
