"""Agents that the remote starts of PBS, Torque, LSF and Grid Engine, and ssh, start on test hosts."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import starter_driver
from cluster.host import USERS
from cluster.hosts import Hosts
from cluster.pbs import PbsStandIn
from cluster.ssh import ssh
from support.remote_stand_ins import RemoteStandIn

Hosted = Callable[..., Hosts]

SCRIPT = """\
umask 0022
cd {place}/{directory}
export MINGLE_RUN_KEY={key} OMP_NUM_THREADS=7 LINES='two
lines' QUOTED="a 'b' \\"c\\" \\$d %e, \\\\f" EMPTY=
env -0 > {place}/batch
{python} {driver} {place}/told {words}
"""
# What a shell says of itself, and Python where nothing says the language.
OF_SHELL = ("_", "SHLVL", "PWD", "OLDPWD", "LC_CTYPE")


def script(place: Path, *words: str, directory: str = "here") -> str:
    for name in (directory, "told"):
        (place / name).mkdir()
        (place / name).chmod(0o777)
    driver = starter_driver.__file__
    directory = shlex.quote(directory)
    return SCRIPT.format(
        place=place,
        directory=directory,
        key=secrets.token_hex(24),
        python=sys.executable,
        driver=driver,
        words=shlex.join(words),
    )


def checked(place: Path, of_host: tuple[str, ...], directory: str = "here") -> dict[str, Any]:
    """Return what the probes tell, after the checks that hold for all; `of_host` are the host's own variables."""
    found = {path.name: json.loads(path.read_text()) for path in sorted((place / "told").iterdir())}
    pairs = (place / "batch").read_bytes().decode().split("\0")
    batch = dict(pair.split("=", 1) for pair in pairs if pair)
    for name, its in found.items():
        assert its["hostname"] == name.partition(".")[0]
        assert its["shown"] == []
        assert (its["mode"], its["stdin"]) in [("0o600", ""), (None, "")]
        assert its["owner"] == USERS["alice"] or its["mode"] is None
        ours = {n: v for n, v in its["environ"].items() if n not in (*OF_SHELL, *of_host)}
        assert ours == {n: v for n, v in batch.items() if n not in (*OF_SHELL, *of_host)}
    assert [*(place / directory).glob(".mingle*")] == []
    return found


REMOTE = {
    "lsf": ("TMPDIR",),
    "sge": ("TMPDIR",),
    "torque": ("PBS_NODENUM", "PBS_VNODENUM", "PBS_TASKNUM"),
}


@pytest.mark.parametrize("scheduler", REMOTE)
def test_each_host_gets_one_by_the_schedulers_own_start(hosts: Hosted, tmp_path: Path, scheduler: str) -> None:
    with RemoteStandIn(scheduler, hosts(3), tmp_path, 2) as its:
        status, text = its.run(script(tmp_path))
    assert (status, text) == (0, f"{scheduler} node1 node2 node3\n")
    found = checked(tmp_path, REMOTE[scheduler])
    assert [*found] == ["node1.0", "node2.0", "node3.0"]
    assert [its["mode"] for its in found.values()] == [None, "0o600", "0o600"]


def test_each_slot_gets_one_with_scope_task(hosts: Hosted, tmp_path: Path) -> None:
    """Numbered on each host."""
    with RemoteStandIn("torque", hosts(2), tmp_path, 2) as its:
        assert its.run(script(tmp_path, "--per-task"))[0] == 0
    assert [*checked(tmp_path, REMOTE["torque"])] == ["node1.0", "node1.1", "node2.0", "node2.1"]


def test_pbs_starts_one_on_each_host(hosts: Hosted, tmp_path: Path) -> None:
    of_task = ("PBS_NODENUM", "PBS_TASKNUM", "PBS_MOMPORT", "NCPUS", "TMPDIR")
    with PbsStandIn(hosts(3), tmp_path, 3, slots=2) as pbs:
        job = pbs.submit(script(tmp_path, directory="a dir"), cwd=str(tmp_path))
        status, text = pbs.wait(job), pbs.output(job)
    assert (status, text) == (0, "pbs node1 node2 node3\n")
    found = checked(tmp_path, of_task, "a dir")
    assert [its["environ"]["PBS_NODENUM"] for its in found.values()] == ["0", "1", "2"]
    assert [its["environ"]["OMP_NUM_THREADS"] for its in found.values()] == ["7"] * 3
    assert "MINGLE_RUN_KEY" not in found["node2.0"]["own"]


def test_ssh_starts_one_on_each_host_that_a_person_names(hosts: Hosted, tmp_path: Path) -> None:
    made = hosts(3)
    text = script(tmp_path, "--hosts", "node[2-3],node1", directory="a 'dir")
    path = f"{ssh(made, tmp_path)}:/usr/sbin:/usr/bin:/sbin:/bin"
    done = made[0].run(["bash", "-c", text], env={"PATH": path, "HOME": "/root", "USER": "root"})
    assert (done.returncode, done.stdout) == (0, "ssh node2 node3 node1\n"), done.stderr
    found = checked(tmp_path, ("HOME", "USER", "SHELL", "SSH_CLIENT", "LOGNAME"), "a 'dir")
    assert [*found] == ["node1.0", "node2.0", "node3.0"]
    assert found["node2.0"]["environ"]["SSH_CLIENT"] == "me"
    assert "SSH_CLIENT" not in found["node1.0"]["environ"]
