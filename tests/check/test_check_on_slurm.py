"""`mingle check` in the script of a real job."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.slurm import SlurmCluster

BIN = Path(sys.executable).parent


def test_a_job_checks_its_own_hosts(slurm: SlurmCluster, tmp_path: Path) -> None:
    """By one srun beside whatever else runs; the job script goes on with what it found."""
    script = f"""\
PATH={BIN}:$PATH
mingle check --json --timeout 60s >check.json
echo $? >status
mingle check --exclude --timeout 60s >exclude
"""
    job = slurm.submit(script, "--nodes=4", f"--output={tmp_path}/log", user="alice", cwd=str(tmp_path))
    slurm.wait(job)
    assert (tmp_path / "status").read_text() == "0\n", (tmp_path / "log").read_text()
    found = json.loads((tmp_path / "check.json").read_text())
    assert [host["hostname"] for host in found["hosts"]] == ["node1", "node2", "node3", "node4"]
    assert (len(found["pairs"]), [its["text"] for its in found["findings"]]) == (12, [])
    assert (tmp_path / "exclude").read_text() == ""
    assert (tmp_path / "log").read_text() == ""
    taken = ["sbatch", "--test-only", "--nodes=4", "--exclude=", "--wrap=true"]
    assert slurm.controller.run(taken, user="alice").returncode == 0, "where there is nobody to exclude"
