"""Generated scripts on the real Slurm of the test hosts, as a user who is not root."""

import os
import re
from pathlib import Path
from typing import Any

from cluster.slurm import SlurmCluster
from light import TRAIN as LIGHT
from support.directives import CARRIED, VALUES, script_with
from support.jobs import JOB_S, TRAIN, output, submit
from support.needs import need

from mingle_hooks.scripts.script import describe, render_script as render

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


def run(
    slurm: SlurmCluster, place: Path, options: dict[str, Any], *command: str, train: Path = TRAIN
) -> tuple[str, str, str]:
    """Run a job of these options as alice, and return its state, its exit code and its output."""
    job = submit(slurm, place, options, *command, train=train)
    return slurm.wait(job, timeout=JOB_S), slurm.job(job)["ExitCode"], output(place)


def test_elastic_restarts_a_failed_process(slurm: SlurmCluster, tmp_path: Path) -> None:
    """With torchrun-elastic a process that fails is started again, with all others, and the job completes."""
    need("torch")
    (tmp_path / "fails_once.py").write_text(FAILS_ONCE)
    options = {"nodes": "2", "launcher": "torchrun-elastic", "max-restarts": "1"}
    state, _, text = run(slurm, tmp_path, options, "fails_once.py", train=LIGHT)
    assert state == "COMPLETED", text
    ranks = sorted(re.findall(r"^(node\d): rank (\d) of 2 begins", text, re.MULTILINE))
    assert ranks == [("node1", "0"), ("node2", "1")]


def test_a_cancelled_torchrun_saves(slurm: SlurmCluster, tmp_path: Path) -> None:
    """On scancel the training below torchrun gets TERM, writes its checkpoint and ends; nothing is left."""
    need("torch")
    job = submit(slurm, tmp_path, {"nodes": "2", "launcher": "torchrun"}, "train.py", "--wait", train=LIGHT)
    slurm.until(lambda: "rank 0 of 2 begins" in output(tmp_path), "start of the training", JOB_S)
    slurm.controller.run(["scancel", job], user="alice", check=True)
    assert slurm.wait(job, timeout=30) == "CANCELLED"
    slurm.wait_idle()
    assert (tmp_path / "checkpoint.json").exists(), output(tmp_path)


def test_mpirun_starts_all_ranks(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Open MPI's own mpirun starts a process for each slot of three hosts."""
    need("mpirun")
    options = {"nodes": "3", "ntasks-per-node": "2", "launcher": "mpirun"}
    state, _, text = run(slurm, tmp_path, options, "train.py", "--backend", "sockets")
    assert state == "COMPLETED", text
    assert "6 processes at step 200" in text


def test_sbatch_reads_every_value_as_it_was_given(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The options that the real sbatch tells with -v are, for every field and value, what was given."""
    wanted: dict[str, dict[str, str]] = {}
    for number, value in enumerate(VALUES):
        # One script for each value, with the directives of all fields that take it.
        taken = {field: text for field in CARRIED["slurm"] if (text := script_with("slurm", field, value)) is not None}
        options = {field: [value] if field == "constraint" else value for field in taken}
        whole = render("slurm", describe({**options, "launcher": "plain"}, ["true"]))
        (tmp_path / f"{number}.sh").write_bytes(os.fsencode(whole))
        wanted[str(number)] = dict.fromkeys(taken, value)
    loop = 'cd "$1"; for f in *.sh; do sbatch -v --test-only "$f" >"${f%.sh}.out" 2>&1; done; true'
    slurm.controller.run(["bash", "-c", loop, "bash", tmp_path], user="alice", check=True)
    for which, fields in wanted.items():
        shown = os.fsdecode((tmp_path / f"{which}.out").read_bytes())
        for field, value in fields.items():
            exact = value.upper() if field == "mail-type" else value
            if field in ("output", "error"):  # sbatch has a word of its own there
                exact = "/dev/null" if value == "none" else os.path.join(tmp_path, value)
            assert f"sbatch: {field:<19} : {exact}\n" in shown, (field, value, shown)
    assert sum(map(len, wanted.values())) > 800  # of about 95 values and 12 fields
