"""The real time limit of a real Slurm: jobs that are warned, killed, or queued again there."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.slurm import SlurmCluster
from support.jobs import LONG, output, submit

END_S = 100.0  # Slurm looks at its jobs' limits every 30 s


def test_jobs_at_their_time_limit(fresh_slurm: Callable[..., SlurmCluster], tmp_path: Path) -> None:
    """Each job ends as it was written to: on the warning, on TERM at the limit, or to be continued.

    All run at once, as each has to wait for Slurm to look at the time.
    """
    slurm = fresh_slurm(2, cpus=8, conf_lines=["KillWait=10"])  # seconds after TERM
    # USR1 long before the limit; so near to it that TERM comes too.
    warned = begun(slurm, tmp_path / "warned", {"signal": "USR1@30"}, *LONG)
    again = begun(slurm, tmp_path / "again", {"signal": "USR1@30", "requeue": True}, *LONG)
    told = begun(slurm, tmp_path / "told", {"signal": "HUP@1"}, *LONG)  # train.py does not handle HUP
    for name in ("warned", "again", "told"):
        slurm.until(lambda name=name: "rank 0 of 2 begins" in output(tmp_path / name), f"start of {name}")
    # Its minute is over now; what Slurm does then, and when it looks, is its own.
    over = ["scontrol", "update", f"jobid={told}", "endtime=now"]
    # Not in the second in which it began, which Slurm refuses.
    slurm.until(lambda: slurm.controller.run(over).returncode == 0, f"the end of job {told}'s time")

    assert slurm.wait(warned, timeout=END_S) == "COMPLETED", output(tmp_path / "warned")
    assert saved(tmp_path, "warned") > 0

    slurm.until(lambda: slurm.job(again)["Restarts"] == "1", "requeue", END_S)
    step = saved(tmp_path, "again")

    def begins() -> list[str]:
        return re.findall(r"rank 0 of 2 begins at step (\d+)", output(tmp_path / "again"))

    def has_begun_again() -> bool:
        if len(begins()) > 1:
            return True
        # Slurm puts a requeued job off for two minutes.
        slurm.controller.run(["scontrol", "update", f"jobid={again}", "starttime=now"])
        return False

    slurm.until(has_begun_again, lambda: f"second start in {output(tmp_path / 'again')}", END_S)
    assert begins() == ["0", str(step)]

    # TERM comes at the limit to a training that knows no warning: it saves, and the job is known as too long.
    assert slurm.wait(told, timeout=END_S) == "TIMEOUT", output(tmp_path / "told")
    assert saved(tmp_path, "told") > 0


def begun(slurm: SlurmCluster, place: Path, options: dict[str, Any], *command: str) -> str:
    """Give in a job of two hosts and one minute, in a directory of its own."""
    place.mkdir()
    place.chmod(0o1777)
    return submit(slurm, place, {"nodes": "2", "launcher": "process", "time": "1"} | options, *command)


def saved(place: Path, name: str) -> int:
    """Return the step of a job's checkpoint."""
    step = json.loads((place / name / "checkpoint.json").read_text())[0]
    assert isinstance(step, int)
    return step
