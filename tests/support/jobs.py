"""Jobs under each scheduler: a real Slurm, a stand-in for PBS and a real one, and stand-ins for the others."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from cluster.hosts import Hosts
from cluster.paths import BIN
from cluster.pbs import PbsStandIn
from cluster.real_pbs import RealPbs
from cluster.slurm import SlurmCluster
from support.remote_stand_ins import RemoteStandIn

from mingle_hooks.scripts.script import describe, render_script

TRAIN = Path(__file__).resolve().parents[2] / "examples" / "train.py"
# The tests' Python is nobody's default.
SETUP = f"PATH={BIN}:$PATH"
# Long enough that nothing but a signal ends it within a test; without torch, which takes seconds to load.
LONG = ("train.py", "--steps", "100000", "--pause", "0.1", "--backend", "sockets")
JOB_S = 120.0
SLOTS = 2  # on each host


def submit(slurm: SlurmCluster, place: Path, options: dict[str, Any], *command: str, train: Path = TRAIN) -> str:
    """Give in a job of these options as alice, with train.py in its directory, where its output is `out`."""
    shutil.copy(train, place / "train.py")
    common = {"time": "5:00", "output": f"{place}/out", "setup": [SETUP], "chdir": str(place)}
    return slurm.submit(render_script("slurm", describe(common | options, command)), user="alice", cwd=str(place))


def output(place: Path) -> str:
    """Return what a job has written by now."""
    return (place / "out").read_text() if (place / "out").exists() else ""


class Jobs:
    """Jobs of one scheduler, run as alice with nothing of the caller's environment, and train.py beside them."""

    def __init__(self, scheduler: str, place: Path, request: pytest.FixtureRequest) -> None:
        self.name, self.scheduler = scheduler, scheduler.removeprefix("real-")
        self.place, self._request = place, request
        shutil.copy(TRAIN, place)

    def run(self, options: dict[str, Any], *command: str, cancel_at: str = "") -> tuple[int, str]:
        """Run a job with two slots on each host, and return its status and output."""
        job = describe({"setup": [SETUP], "nodes": "2", "ntasks-per-node": "2"} | options, command)
        return self.run_script(render_script(self.scheduler, job), job.nodes, cancel_at=cancel_at)

    def run_script(self, script: str, nodes: int = 2, *, cancel_at: str = "") -> tuple[int, str]:
        """Run a script, and return its status and output; it is cancelled once `cancel_at` is in the output."""
        if self.name == "slurm":
            return self._on_slurm(self._request.getfixturevalue("slurm"), script, cancel_at)
        if self.name == "real-pbs":
            return self._on_pbs(self._request.getfixturevalue("real_pbs"), script, cancel_at)
        hosts: Hosts = self._request.getfixturevalue("hosts")(nodes)
        if self.name == "pbs":
            with PbsStandIn(hosts, self.place, nodes, slots=SLOTS) as pbs:
                return self._on_pbs(pbs, script, cancel_at)
        with RemoteStandIn(self.name, hosts, self.place, SLOTS) as stand_in:
            return stand_in.run(script, cancel_at=cancel_at)

    def _on_slurm(self, slurm: SlurmCluster, script: str, cancel_at: str) -> tuple[int, str]:
        out = self.place / "out"
        job = slurm.submit(script, "--export=NONE", f"--output={out}", user="alice", cwd=str(self.place))
        if cancel_at:
            slurm.until(lambda: out.exists() and cancel_at in out.read_text(), f"{cancel_at!r} in the output", JOB_S)
            slurm.controller.run(["scancel", job], user="alice", check=True)
        slurm.wait(job, timeout=JOB_S)
        return int(slurm.job(job)["ExitCode"].partition(":")[0]), out.read_text()

    def _on_pbs(self, pbs: PbsStandIn | RealPbs, script: str, cancel_at: str) -> tuple[int, str]:
        job = pbs.submit(script, cwd=str(self.place))
        if cancel_at:
            pbs.wait_for_text(job, cancel_at)
            pbs.delete(job)
        return pbs.wait(job, JOB_S), pbs.output(job)
