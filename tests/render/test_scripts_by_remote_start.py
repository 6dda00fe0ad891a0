"""Generated LSF, Grid Engine and Torque scripts, run on test hosts by stand-ins for blaunch, qrsh and pbsdsh."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from light import TRAIN as LIGHT
from nasty import NASTY, TELL
from needs import need
from remote_stand_ins import RemoteStandIn

from mingle_hooks.render.job import describe
from mingle_hooks.render.script import render

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.hosts import Hosts

    Hosted = Callable[..., Hosts]

TRAIN = Path(__file__).resolve().parents[2] / "examples" / "train.py"
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


@pytest.mark.parametrize("scheduler", ["lsf"])  # what torchrun does is the same everywhere, and takes 12 s
def test_torchrun_trains_on_all_hosts(hosts: Hosted, tmp_path: Path, scheduler: str) -> None:
    """One torchrun on each of two hosts, two processes each, with the host's name before each line."""
    need("torch")
    status, text = run(scheduler, hosts(2), tmp_path, {"nodes": "2", "launcher": "torchrun"}, "train.py", train=LIGHT)
    assert status == 0, text
    ranks = re.findall(r"^(\w+): rank (\d) of 4 begins", text, re.MULTILINE)
    assert sorted(ranks) == [("node1", "0"), ("node1", "1"), ("node2", "2"), ("node2", "3")]
    assert sorted(re.findall(r"^(\w+): \w+: node (\d) of 2, 2 of 4 processes.*: status 0", text, re.MULTILINE)) == [
        ("node1", "0"),
        ("node2", "1"),
    ]


@each
def test_one_process_per_slot(hosts: Hosted, tmp_path: Path, scheduler: str) -> None:
    """The launcher "process" starts a process for each slot, ranks counted over all hosts."""
    options = {"nodes": "2", "launcher": "process"}
    status, text = run(scheduler, hosts(2), tmp_path, options, "train.py", "--backend", "sockets")
    assert status == 0, text
    ranks = re.findall(r"^(\w+): rank (\d) of 4 begins", text, re.MULTILINE)
    assert sorted(ranks) == [("node1", "0"), ("node1", "1"), ("node2", "2"), ("node2", "3")]


@each
@pytest.mark.parametrize("launcher", ["plain", "process"])
def test_the_first_failure_ends_the_job(hosts: Hosted, tmp_path: Path, scheduler: str, launcher: str) -> None:
    """When one fails all others are told to stop, and the job ends with the failure's status."""
    # The test hosts see each other's processes, so that what a node tells its own reaches all: they must not fail too.
    who, count, after = ("NODE_RANK", 3, 9) if launcher == "plain" else ("RANK", 6, 0)
    command = f"""
        trap 'echo told; kill $!; exit {after}' TERM
        >"ready.${who}"
        if [ "${who}" = 1 ]; then
          while [ "$(ls ready.* | wc -l)" -lt {count} ]; do sleep 0.1; done
          exit 7
        fi
        while :; do sleep 600 & wait; done"""  # which may be told first
    options = {"nodes": "3", "launcher": launcher}
    status, text = run(scheduler, hosts(3), tmp_path, options, "bash", "-c", command)
    assert status == 7, text
    told = set(re.findall(r"^(\w+): told", text, re.MULTILINE))
    failed = set(re.findall(r"^(\w+): .* status 7 after", text, re.MULTILINE))
    assert told | failed == {"node1", "node2", "node3"}, text
    assert len(told) >= 2, text


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


@each
def test_a_missing_mingle_is_said_on_every_host(hosts: Hosted, tmp_path: Path, scheduler: str) -> None:
    """Without mingle on PATH each host says so, and the job fails with 69."""
    options = {"nodes": "2", "launcher": "plain", "setup": ["PATH=/usr/bin:/bin"]}
    status, text = run(scheduler, hosts(2), tmp_path, options, "true")
    assert status == 69
    assert text.count("no mingle on PATH") == 2


LONG = ("train.py", "--steps", "100000", "--pause", "0.1", "--backend", "sockets")


@pytest.mark.parametrize("scheduler", ["lsf"])
def test_the_warning_reaches_the_training(hosts: Hosted, tmp_path: Path, scheduler: str) -> None:
    """Before the time limit the training on all hosts gets USR1, saves, and the job ends well."""
    options = {"nodes": "2", "launcher": "process", "time": "64s", "signal": "USR1@60"}
    status, text = run(scheduler, hosts(2), tmp_path, options, *LONG)
    assert status == 0, text
    assert json.loads((tmp_path / "checkpoint.json").read_text())[0] > 0


@each
def test_a_warned_job_is_queued_again(hosts: Hosted, tmp_path: Path, scheduler: str) -> None:
    """With --requeue the warned job saves, and then says what the scheduler takes for "again"."""
    for program in ("brequeue", "qsub"):
        file = tmp_path / "bin" / program
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'#!/bin/sh\necho "{program} $*" >>{tmp_path}/again\n')
        file.chmod(0o755)
    options = {"nodes": "2", "launcher": "process", "time": "64s", "signal": "USR1@60", "requeue": True}
    status, text = run(scheduler, hosts(2), tmp_path, options, *LONG)
    assert json.loads((tmp_path / "checkpoint.json").read_text())[0] > 0, text
    again = (tmp_path / "again").read_text() if status == 0 else status
    assert again == {"lsf": "brequeue 7\n", "torque": f"qsub {tmp_path}/script\n", "sge": 99}[scheduler]


@pytest.mark.parametrize("scheduler", ["lsf"])  # Grid Engine's qdel kills at once
def test_a_cancelled_job_saves(hosts: Hosted, tmp_path: Path, scheduler: str) -> None:
    """On TERM, which bkill sends on the first host, the training on all hosts saves and ends."""
    options = {"nodes": "2", "launcher": "process"}
    _, text = run(scheduler, hosts(2), tmp_path, options, *LONG, cancel_at="rank 0 of 4 begins")
    assert "4 processes at step" in text
    assert json.loads((tmp_path / "checkpoint.json").read_text())[0] > 0
