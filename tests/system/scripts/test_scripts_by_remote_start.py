"""Generated LSF, Grid Engine and Torque scripts, run on test hosts by stand-ins for blaunch, qrsh and pbsdsh."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster.hosts import Hosts
from support.nasty import NASTY, TELL
from support.remote_stand_ins import RemoteStandIn

from mingle_hooks.scripts.script import describe
from mingle_hooks.scripts.script import render_script as render

Hosted = Callable[..., Hosts]

TRAIN = Path(__file__).resolve().parents[3] / "examples" / "train.py"
SETUP = f"PATH={Path(sys.executable).parent}:$PATH"
each = pytest.mark.parametrize("scheduler", ["lsf", "sge", "torque"])


def run(
    scheduler: str,
    hosts: Hosts,
    place: Path,
    options: dict[str, Any],
    *command: str,
    cancel_at: str = "",
    train: Path = TRAIN,
) -> tuple[int, str]:
    """Run the job of these options, two slots on each host, and return its status and output."""
    shutil.copy(train, place)
    script = render(scheduler, describe({"setup": [SETUP], "ntasks-per-node": "2"} | options, command))
    with RemoteStandIn(scheduler, hosts, place, 2) as its:
        return its.run(script, cancel_at=cancel_at)


@each
def test_one_process_per_slot(hosts: Hosted, tmp_path: Path, scheduler: str) -> None:
    """The launcher "process" starts a process for each slot, ranks counted over all hosts."""
    options = {"nodes": "2", "launcher": "process"}
    status, text = run(scheduler, hosts(2), tmp_path, options, "train.py", "--backend", "sockets")
    assert status == 0, text
    begins = sorted(re.findall(r"^(\d node\d): rank (\d) of 4 begins", text, re.MULTILINE))
    assert begins == [(f"{n} node{n // 2 + 1}", str(n)) for n in range(4)]


@each
@pytest.mark.parametrize("launcher", ["plain", "process"])
def test_the_first_failure_ends_the_job(hosts: Hosted, tmp_path: Path, scheduler: str, launcher: str) -> None:
    """When one fails all others are told to stop, and the job ends with the failure's status."""
    who, count = ("NODE_RANK", 3) if launcher == "plain" else ("RANK", 6)
    command = f"""
        trap 'echo "told ${who}"; kill $!; exit 9' TERM
        >"ready.${who}"
        if [ "${who}" = 1 ]; then
          while [ "$(ls ready.* | wc -l)" -lt {count} ]; do sleep 0.1; done
          exit 7
        fi
        while :; do sleep 600 & wait; done"""  # which may be told first
    options = {"nodes": "3", "launcher": launcher}
    status, text = run(scheduler, hosts(3), tmp_path, options, "bash", "-c", command)
    assert status == 7, text
    assert sorted(re.findall(r": told (\d)$", text, re.MULTILINE)) == [str(n) for n in range(count) if n != 1], text
    assert "(rank 1): exited with status 7 after" in text


@each
def test_every_value_arrives(hosts: Hosted, tmp_path: Path, scheduler: str) -> None:
    """Arguments, environment and directory arrive intact in the tasks of all hosts, which get no environment."""
    place = tmp_path / "-d 'q' \"é\" $(touch pwned);"
    place.mkdir()
    options = {"nodes": "2", "launcher": "plain", "chdir": str(place), "env": ["NASTY=" + "\n".join(NASTY)]}
    status, text = run(scheduler, hosts(2), tmp_path, options, "python3", "-c", TELL, *NASTY, "")
    assert status == 0, text
    told = re.findall(r"^(node\d): (\[.*\])$", text, re.MULTILINE)
    assert sorted(host for host, _ in told) == ["node1", "node2"]
    assert [json.loads(line) for _, line in told] == [[[*NASTY, ""], "\n".join(NASTY), str(place)]] * 2
    assert not list(tmp_path.rglob("pwned"))
    assert not list(tmp_path.rglob(".mingle.*"))


LONG = ("train.py", "--steps", "100000", "--pause", "0.1", "--backend", "sockets")


@each
def test_a_warned_job_is_queued_again(hosts: Hosted, tmp_path: Path, scheduler: str) -> None:
    """With --requeue the warned job saves, and is queued again: by a command, or by what the scheduler takes for it."""
    for program in ("brequeue", "qsub"):
        file = tmp_path / "bin" / program
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'#!/bin/sh\necho "{program} $*" >>{tmp_path}/again\n')
        file.chmod(0o755)
    options = {"nodes": "2", "launcher": "process", "time": "64s", "signal": "USR1@60", "requeue": True}
    status, text = run(scheduler, hosts(2), tmp_path, options, *LONG)
    assert json.loads((tmp_path / "checkpoint.json").read_text())[0] > 0, text
    again = (status, (tmp_path / "again").read_text() if scheduler != "sge" else "")
    ways = {"lsf": (75, "brequeue 7\n"), "torque": (75, f"qsub {tmp_path}/script\n"), "sge": (99, "")}
    assert again == ways[scheduler]


@pytest.mark.parametrize("scheduler", ["lsf"])  # Grid Engine's qdel kills at once
def test_a_cancelled_job_saves(hosts: Hosted, tmp_path: Path, scheduler: str) -> None:
    """On TERM, which bkill sends on the first host, the training on all hosts saves and ends."""
    options = {"nodes": "2", "launcher": "process"}
    _, text = run(scheduler, hosts(2), tmp_path, options, *LONG, cancel_at="rank 0 of 4 begins")
    assert "4 processes at step" in text
    assert json.loads((tmp_path / "checkpoint.json").read_text())[0] > 0
