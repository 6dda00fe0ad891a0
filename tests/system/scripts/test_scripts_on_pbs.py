"""Generated scripts, run by a stand-in made from what a real PBS did, and by a real one where there is one."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cluster.pbs import PbsStandIn
from cluster.real_pbs import RealPbs
from support.directives import VALUES, script_with, words_for
from support.jobs import LONG, SETUP, TRAIN

from mingle_hooks.scripts.script import describe, render_script as render

Pbs = PbsStandIn | RealPbs
Start = Callable[..., Pbs]


@pytest.fixture
def pbs(any_pbs: Start) -> Start:
    """Start a PBS of so many hosts, with train.py in the directory of its jobs."""

    def start(nodes: int, **options: Any) -> Pbs:
        cluster = any_pbs(nodes, **options)
        shutil.copy(TRAIN, cluster.place)
        return cluster

    return start


def submit(pbs: Pbs, options: dict[str, Any], *command: str) -> str:
    """Give in a job of these options."""
    script = render("pbs", describe({"setup": [SETUP]} | options, command))
    return pbs.submit(script, cwd=str(pbs.place))


# Writes when nobody takes it any more, and after that a file.
SAVE = 'trap "echo told; echo told; touch saved.$NODE_RANK; exit" TERM; echo begins; while :; do sleep 0.1; done'


def test_every_host_hears_of_a_qdel(pbs: Start) -> None:
    """The others see it by the end of pbs_demux, which one host has not; what is written then breaks no training."""
    cluster = pbs(3)
    job = submit(cluster, {"nodes": "3", "launcher": "plain"}, "bash", "-c", SAVE)
    for number in (1, 2, 3):
        cluster.wait_for_text(job, f"node{number}: begins")
    cluster.delete(job)
    assert sorted(file.name for file in cluster.place.glob("saved.*")) == ["saved.0", "saved.1", "saved.2"]
    assert cluster.output(job).count("node1: told") == 2, cluster.output(job)


def test_a_job_to_be_requeued_is_submitted_again_and_resumes(pbs: Start) -> None:
    """With --requeue the warned job saves and gives in its own script again, which goes on from there."""
    cluster = pbs(2)
    options = {"nodes": "2", "launcher": "process", "time": "64s", "signal": "USR1@60", "requeue": True}
    job = submit(cluster, options, *LONG)
    assert cluster.wait(job) == 75, cluster.output(job)  # its training was not at its end
    step = json.loads((cluster.place / "checkpoint.json").read_text())[0]
    second = cluster.next(job)
    cluster.wait_for_text(second, f"rank 0 of 2 begins at step {step}")
    cluster.delete(second)


def test_a_rerun_job_resumes(real_pbs: RealPbs) -> None:
    """A job that an operator puts back saves, and goes on from there under the same id."""
    shutil.copy(TRAIN, real_pbs.place)
    job = submit(real_pbs, {"nodes": "2", "launcher": "process", "requeue": True}, *LONG)
    real_pbs.wait_for_text(job, "rank 0 of 2 begins at step 0")
    real_pbs.run("bin/qrerun", job, timeout=120, check=True)
    step = json.loads((real_pbs.place / "checkpoint.json").read_text())[0]
    assert step > 0
    real_pbs.wait_for_text(job, f"rank 0 of 2 begins at step {step}")


def test_an_array_of_jobs_on_two_hosts(real_pbs: RealPbs) -> None:
    """Each has a world of its own, and its tasks on all hosts know its index."""
    output = f"{real_pbs.place}/out.^array_index^"
    options = {"setup": [SETUP], "nodes": "2", "launcher": "plain", "array": "4-5", "output": output}
    script = render("pbs", describe(options, ["sh", "-c", "echo $PBS_ARRAY_INDEX $MASTER_PORT $NODE_RANK"]))
    real_pbs.wait_state(real_pbs.submit(script, cwd=str(real_pbs.place), output=False), "F")
    ports = []
    for index in "45":
        shown = re.findall(r"^(node\d): (\d) (\d+) (\d)$", (real_pbs.place / f"out.{index}").read_text(), re.MULTILINE)
        tasks = sorted((host, number, rank) for host, number, _, rank in shown)
        assert tasks == [("node1", index, "0"), ("node2", index, "1")]
        ports.append({port for _, _, port, _ in shown})
    assert [len(found) for found in ports] == [1, 1]
    assert ports[0] != ports[1]


ATTRIBUTES = {
    "job-name": "Job_Name", "account": "Account_Name", "output": "Output_Path", "error": "Error_Path",
    "mail-user": "Mail_Users",
}  # fmt: skip


def held(pbs: RealPbs, script: str) -> dict[str, str]:
    """Return what a real PBS holds of a script's job."""
    done = pbs.run("bin/qsub", "-f", "-h", user="alice", input=script, cwd="/home/alice")
    assert done.returncode == 0, (done.stderr, script)
    shown = pbs.run("bin/qstat", "-f", "-w", done.stdout.strip(), check=True).stdout
    pbs.run("bin/qdel", done.stdout.strip(), check=True)
    return dict(re.findall(r"^    (\S+) = (.*)$", shown, re.MULTILINE))


@pytest.fixture
def pbs_with_h(real_pbs: RealPbs) -> Iterator[RealPbs]:
    """Let the server's host know the host of the path h:/x, which qsub looks up."""
    file = real_pbs.controller.outside("/etc/hosts")
    text = file.read_text()
    file.write_text(f"{text}10.77.0.99 h\n")
    yield real_pbs
    file.write_text(text)


def place_of(path: str) -> str:
    """Return what a qsub on node1 in alice's home makes of a path; it ends a directory with a slash."""
    return path if re.match(r"[\w.-]+:/", path) else f"node1:{os.path.join('/home/alice', path)}"


@pytest.mark.parametrize("field", ATTRIBUTES)
def test_a_real_qsub_takes_every_value_as_it_is(pbs_with_h: RealPbs, field: str) -> None:
    """What was not refused stands in the job's attribute."""
    wrong = {}
    for value in VALUES:
        if script := script_with("pbs", field, value):
            attribute, expected = held(pbs_with_h, script)[ATTRIBUTES[field]], words_for("pbs", field, value)[1]
            if field in ("output", "error"):
                attribute, expected = attribute.rstrip("/"), place_of(expected).rstrip("/")
            if value.isascii() and attribute != expected:  # qstat shows others its own way
                wrong[value] = attribute, expected
    assert not wrong


@pytest.mark.parametrize(
    "options",
    [
        *({"array": array} for array in ("0-3", "0-3%2", "0-9:2%4", "00-03")),
        {"time": "1:0:0", "mem": "100M", "cpus-per-task": "2", "exclusive": True, "mail-type": "ALL", "requeue": True},
        {"nodes": "1+2", "ntasks-per-node": "2+1", "constraint": "vnode=node1+host=node2"},
        {"nodes": "2", "partition": "workq", "dependency": "afterany:0.node1"},
        {"partition": "workq@node1", "mail-type": "NONE", "mail-user": "a@b,c"},
    ],
)  # fmt: skip
def test_a_real_qsub_takes_the_other_directives(real_pbs: RealPbs, options: dict[str, object]) -> None:
    """Arrays, resources, places, mail and dependencies are as qsub wants them."""
    real_pbs.submit("#!/bin/sh\n", cwd="/home/alice")
    job = held(real_pbs, render("pbs", describe({"launcher": "plain", **options}, ["true"])))
    assert job["array"] == "True" if "array" in options else job["job_state"] == "H"
