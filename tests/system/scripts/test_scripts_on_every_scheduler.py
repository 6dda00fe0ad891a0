"""Generated scripts, run by each scheduler: as a user makes them, with every value, to the end or to a failure."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest
from support.executables import executable
from support.jobs import LONG, Jobs
from support.nasty import NASTY, TELL

REMOTE = pytest.mark.parametrize("scheduler", ["lsf", "sge", "torque"], indirect=True)


def test_a_first_try_starts_one_process_for_each_slot(jobs: Jobs) -> None:
    """As people type it, from their venv: the tasks of all hosts find mingle and Python, and are one world."""
    line = f"{jobs.scheduler} -t 5 -N 2 -n 4 -- srun python train.py --backend sockets"
    environ = {"PATH": f"{sys.prefix}/bin:/usr/bin:/bin", "VIRTUAL_ENV": sys.prefix, "HOME": os.environ["HOME"]}
    argv = [f"{sys.prefix}/bin/mingle", "template", *shlex.split(line)]
    script = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True).stdout
    status, text = jobs.run_script(script)
    assert status == 0, text
    begins = sorted(re.findall(r"^(\d node\d): rank (\d) of 4 begins", text, re.MULTILINE))
    assert begins == [(f"{n} node{n // 2 + 1}", str(n)) for n in range(4)]
    assert "4 processes at step 200: y = 3.000 x + 1.000" in text


def test_the_first_failure_ends_the_job(jobs: Jobs) -> None:
    """All other processes get TERM, and the job ends with the failure's status."""
    command = """
        trap 'echo "ended $RANK"; kill $!; exit 9' TERM
        >"ready.$RANK"
        if [ "$RANK" = 1 ]; then
          while [ "$(ls ready.* | wc -l)" -lt 6 ]; do sleep 0.1; done
          exit 7
        fi
        while :; do sleep 600 & wait; done"""
    status, text = jobs.run({"nodes": "3", "launcher": "process"}, "bash", "-c", command)
    assert status == 7, text
    assert sorted(re.findall(r": ended (\d)$", text, re.MULTILINE)) == [*"02345"], text
    assert "(rank 1): exited with status 7 after" in text


def test_every_value_arrives(jobs: Jobs) -> None:
    """Arguments, environment and directory arrive intact in the tasks of all hosts, and none is run."""
    place = jobs.place / "-d 'q' \"é\" $(touch pwned);"
    place.mkdir()
    options = {"launcher": "plain", "chdir": str(place), "env": ["NASTY=" + "\n".join(NASTY)]}
    status, text = jobs.run(options, "python3", "-c", TELL, *NASTY, "")
    assert status == 0, text
    lines = re.findall(r"^(node\d): (\[.*\])$", text, re.MULTILINE)
    assert sorted(host for host, _ in lines) == ["node1", "node2"]
    assert [json.loads(line) for _, line in lines] == [[[*NASTY, ""], "\n".join(NASTY), str(place)]] * 2
    assert not list(jobs.place.rglob("pwned"))
    assert not list(jobs.place.rglob(".mingle.*"))


# Grid Engine's qdel kills at once, and what Torque's does was not seen.
@pytest.mark.parametrize("scheduler", ["slurm", "pbs", "real-pbs", "lsf"], indirect=True)
def test_a_cancelled_job_saves(jobs: Jobs) -> None:
    """On TERM, which PBS and LSF send on the first host only, the training on all hosts saves and ends."""
    _, text = jobs.run({"launcher": "process"}, *LONG, cancel_at="rank 0 of 4 begins")
    assert json.loads((jobs.place / "checkpoint.json").read_text())[0] > 0, text


@REMOTE
def test_a_warned_job_is_queued_again(jobs: Jobs) -> None:
    """With --requeue the warned job saves, and is queued again: by a command, or by its status."""
    for program in ("brequeue", "qsub"):
        executable(jobs.place / "bin" / program, f'#!/bin/sh\necho "{program} $*" >>{jobs.place}/again\n')
    status, text = jobs.run({"launcher": "process", "time": "64s", "signal": "USR1@60", "requeue": True}, *LONG)
    assert json.loads((jobs.place / "checkpoint.json").read_text())[0] > 0, text
    again = (status, (jobs.place / "again").read_text() if jobs.scheduler != "sge" else "")
    commands = {"lsf": (75, "brequeue 7\n"), "torque": (75, f"qsub {jobs.place}/script\n"), "sge": (99, "")}
    assert again == commands[jobs.scheduler]
