"""`mingle run` as the body of a real batch script."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from supervise.runner.places import without_world

if TYPE_CHECKING:
    from cluster.slurm import SlurmCluster

BIN = Path(sys.executable).parent
# Fewer open files than the runner wants, which srun hands on as they are.
FILES = 512
STAY = "touch begun$RANK.$MINGLE_ATTEMPT; exec sleep 1000"


class Job:
    """A batch job whose body is one line of `mingle run`."""

    def __init__(self, slurm: SlurmCluster, place: Path, words: str, *options: str) -> None:
        self.slurm, self.place = slurm, place
        place.mkdir()
        place.chmod(0o777)
        script = f"ulimit -Sn {FILES}; cd {place}; PATH={BIN}:$PATH; mingle run --log-dir logs {words}; echo $? >status"
        self.id = slurm.submit(script, f"--output={place}/log", *options, user="alice")

    def begun(self, *ranks: int) -> None:
        """Wait until COMMAND of these ranks has begun."""
        self.slurm.until(lambda: all((self.place / f"begun{rank}.0").exists() for rank in ranks), "COMMAND begins")

    def supervisors(self, host: str) -> list[int]:
        """Return the warden and the supervisor on a host."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                line = (entry / "cmdline").read_bytes()
                its = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            mine = f"SLURM_JOB_ID={self.id}".encode() in its and f"SLURMD_NODENAME={host}".encode() in its
            if mine and b"start.py\0agent" in line and line.split(b"\0")[1] == b"-I":
                found.append(int(entry.name))
        return sorted(found)

    def end(self) -> tuple[int, str]:
        """Wait for the end; return the status of `mingle run` and what the job wrote."""
        self.slurm.wait(self.id)
        return int((self.place / "status").read_text()), without_world((self.place / "log").read_text())

    def causes(self) -> list[tuple[str, str]]:
        """Return host and kind of each failure."""
        lines = (self.place / "logs" / "events.jsonl").read_text().splitlines()
        events = [json.loads(line) for line in lines]
        return [(event["host"], event["kind"]) for event in events if event["event"] == "failed"]


def test_a_batch_script_of_one_line(slurm: SlurmCluster, tmp_path: Path) -> None:
    """One job after the other: all of it, its tasks, a failure, a supervisor that is killed, and scancel."""
    clean = Job(slurm, tmp_path / "clean", "sh -c 'echo $RANK $WORLD_SIZE $(hostname) $(ulimit -Sn)'", "-N4")
    status, log = clean.end()
    rows = [f"node{rank + 1}: {rank} 4 node{rank + 1} {FILES}" for rank in range(4)]
    assert (status, sorted(log.splitlines())) == (0, rows)

    tasks = Job(slurm, tmp_path / "tasks", "--scope task sh -c 'echo $RANK $LOCAL_RANK'", "-N2", "--ntasks-per-node=2")
    status, log = tasks.end()
    rows = [f"{rank} node{rank // 2 + 1}: {rank} {rank % 2}" for rank in range(4)]
    assert (status, sorted(log.splitlines())) == (0, rows)

    fails = Job(slurm, tmp_path / "fails", f"sh -c '[ $RANK != 2 ] || exit 7; {STAY}'", "-N4")
    status, log = fails.end()
    assert (status, fails.causes()) == (7, [("node3", "ended")])
    assert "mingle run: node3 (rank 2): exited with status 7 after" in log
    assert "srun" not in log

    lost = Job(slurm, tmp_path / "lost", f"sh -c '{STAY}'", "-N4")
    lost.begun(0, 1, 2, 3)
    for pid in lost.supervisors("node3"):
        os.kill(pid, signal.SIGKILL)
    status, _ = lost.end()
    assert (status, lost.causes()) == (75, [("node3", "gone")])

    saves = 'trap "echo saved >>saved$RANK; exit 0" TERM; touch begun$RANK.0; while :; do sleep 0.05; done'
    stopped = Job(slurm, tmp_path / "stopped", f"bash -c '{saves}'", "-N4")
    stopped.begun(0, 1, 2, 3)
    slurm.controller.run(["scancel", stopped.id])
    slurm.wait(stopped.id)
    assert [(stopped.place / f"saved{rank}").read_text() for rank in range(4)] == ["saved\n"] * 4
    assert not slurm.strays()
    assert set(slurm.sinfo().values()) == {"idle"}
