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


# Rank 1 fails once all have said what they got and where.
FAILS = """
    trap 'echo "ended $RANK"; kill $!; exit 9' TERM
    python3 -c "$0" "$@"
    >"ready.$RANK"
    if [ "$RANK" = 1 ]; then
      while [ "$(ls ready.* | wc -l)" -lt 4 ]; do sleep 0.1; done
      exit 7
    fi
    while :; do sleep 600 & wait; done"""


def test_every_value_arrives_and_the_first_failure_ends_the_job(jobs: Jobs) -> None:
    """Arguments, environment and directory are intact in all tasks; the others get TERM, and the status is kept."""
    place = jobs.place / "-d 'q' \"é\" $(touch pwned);"
    place.mkdir()
    place.chmod(0o1777)
    options = {"launcher": "process", "chdir": str(place), "env": ["NASTY=" + "\n".join(NASTY)]}
    status, text = jobs.run(options, "bash", "-c", FAILS, TELL, *NASTY, "")
    assert status == 7, text
    lines = re.findall(r"^\d (node\d): (\[.*\])$", text, re.MULTILINE)
    assert sorted(host for host, _ in lines) == ["node1", "node1", "node2", "node2"], text
    assert [json.loads(line) for _, line in lines] == [[[*NASTY, ""], "\n".join(NASTY), str(place)]] * 4
    assert sorted(re.findall(r": ended (\d)$", text, re.MULTILINE)) == [*"023"], text
    assert "(rank 1): exited with status 7 after" in text
    assert not list(jobs.place.rglob("pwned"))
    assert not list(jobs.place.rglob(".mingle.*"))


# PBS has tests of its own; Grid Engine's qdel kills at once, and what Torque's does was not seen.
@pytest.mark.parametrize("scheduler", ["slurm", "lsf"], indirect=True)
def test_a_cancelled_job_saves(jobs: Jobs) -> None:
    """On TERM, which LSF sends on the first host only, the training on all hosts saves and ends."""
    _, text = jobs.run({"launcher": "process"}, *LONG, cancel_at="rank 0 of 4 begins")
    assert json.loads((jobs.place / "checkpoint.json").read_text())[0] > 0, text


@pytest.mark.parametrize("scheduler", ["lsf", "sge"], indirect=True)
def test_a_warned_job_is_queued_again(jobs: Jobs) -> None:
    """With --requeue the warned job saves, and is queued again: by a command, or by its status."""
    executable(jobs.place / "bin" / "brequeue", f'#!/bin/sh\necho "brequeue $*" >>{jobs.place}/again\n')
    status, text = jobs.run({"launcher": "process", "time": "64s", "signal": "USR1@60", "requeue": True}, *LONG)
    assert json.loads((jobs.place / "checkpoint.json").read_text())[0] > 0, text
    if jobs.scheduler == "sge":
        assert status == 99, text
    else:
        assert (status, (jobs.place / "again").read_text()) == (75, "brequeue 7\n"), text
