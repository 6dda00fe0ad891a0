"""`mingle check` in the script of a job."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.paths import BIN
from cluster.slurm import SlurmCluster


def test_a_job_checks_its_own_hosts(slurm: SlurmCluster, tmp_path: Path) -> None:
    """One srun beside whatever else runs starts all probes, and the job script goes on."""
    script = f"""\
PATH={BIN}:$PATH
mingle check --json --timeout 60s >check.json
echo $? >status
"""
    job = slurm.submit(script, "--nodes=4", f"--output={tmp_path}/log", user="alice", cwd=str(tmp_path))
    slurm.wait(job)
    assert (tmp_path / "status").read_text() == "0\n", (tmp_path / "log").read_text()
    found = json.loads((tmp_path / "check.json").read_text())
    assert [host["hostname"] for host in found["hosts"]] == ["node1", "node2", "node3", "node4"]
    assert (len(found["pairs"]), [its["text"] for its in found["findings"]]) == (12, [])
    assert (tmp_path / "log").read_text() == ""
    taken = ["sbatch", "--test-only", "--nodes=4", "--exclude=", "--wrap=true"]
    assert slurm.controller.run(taken, user="alice").returncode == 0, "where there is nobody to exclude"


def test_a_job_of_pbs_checks_its_own_hosts(any_pbs: Callable[..., Any], tmp_path: Path) -> None:
    """One pbs_tmrsh for each host starts its probe, and passes on no environment."""
    pbs = any_pbs(3)
    line = f"PATH={BIN}:$PATH; cd {tmp_path}; mingle check --json --timeout 60s >check.json"
    job = pbs.submit(f"#!/bin/sh\n#PBS -l select=3 -l place=scatter\n{line}\n", cwd=str(tmp_path))
    assert pbs.wait(job, 120) == 0, pbs.output(job)
    found = json.loads((tmp_path / "check.json").read_text())
    assert [its["text"] for its in found["findings"] if not its["is_note"]] == []
    assert len({host["hostname"] for host in found["hosts"]}) == 3
    assert not list(tmp_path.glob(".mingle*"))
