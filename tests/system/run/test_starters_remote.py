"""Agents that the remote starts of PBS, Torque, LSF and Grid Engine, and ssh, start on test hosts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster.host import USERS
from cluster.hosts import Hosts
from cluster.pbs import PbsStandIn
from cluster.ssh import ssh
from support.remote_stand_ins import RemoteStandIn
from test_run_on_slurm import OF_SHELL, batch, script, told

Hosted = Callable[..., Hosts]


def checked(place: Path, of_host: tuple[str, ...], directory: str = "a dir") -> dict[str, Any]:
    """Return what the probes tell, after the checks that hold for all; `of_host` are the host's own variables."""
    found, own = told(place), batch(place)
    for name, probe in found.items():
        assert probe["hostname"] == name.partition(".")[0]
        assert probe["shown"] == []
        assert (probe["mode"], probe["stdin"]) in [("0o600", ""), (None, "")]
        assert probe["owner"] == USERS["alice"] or probe["mode"] is None
        ours = {n: v for n, v in probe["environ"].items() if n not in (*OF_SHELL, *of_host)}
        assert ours == {n: v for n, v in own.items() if n not in (*OF_SHELL, *of_host)}
    assert [*(place / directory).glob(".mingle*")] == []
    return found


REMOTE = {
    "lsf": ("TMPDIR",),
    "sge": ("TMPDIR",),
    "torque": ("PBS_NODENUM", "PBS_VNODENUM", "PBS_TASKNUM"),
}


@pytest.mark.parametrize("scheduler", REMOTE)
def test_each_host_gets_one_by_the_schedulers_own_start(hosts: Hosted, tmp_path: Path, scheduler: str) -> None:
    with RemoteStandIn(scheduler, hosts(3), tmp_path, 2) as stand_in:
        status, text = stand_in.run(script(tmp_path, umask="0022"))
    assert (status, text) == (0, f"{scheduler} node1 node2 node3\n")
    found = checked(tmp_path, REMOTE[scheduler])
    assert [*found] == ["node1.0", "node2.0", "node3.0"]
    assert [probe["mode"] for probe in found.values()] == [None, "0o600", "0o600"]


def test_each_slot_gets_one_with_scope_task(hosts: Hosted, tmp_path: Path) -> None:
    """Numbered on each host."""
    with RemoteStandIn("torque", hosts(2), tmp_path, 2) as stand_in:
        assert stand_in.run(script(tmp_path, "--per-task", umask="0022"))[0] == 0
    assert [*checked(tmp_path, REMOTE["torque"])] == ["node1.0", "node1.1", "node2.0", "node2.1"]


def test_pbs_starts_one_on_each_host(hosts: Hosted, tmp_path: Path) -> None:
    of_task = ("PBS_NODENUM", "PBS_TASKNUM", "PBS_MOMPORT", "NCPUS", "TMPDIR")
    with PbsStandIn(hosts(3), tmp_path, 3, slots=2) as pbs:
        job = pbs.submit(script(tmp_path, umask="0022"), cwd=str(tmp_path))
        status, text = pbs.wait(job), pbs.output(job)
    assert (status, text) == (0, "pbs node1 node2 node3\n")
    found = checked(tmp_path, of_task)
    assert [probe["environ"]["PBS_NODENUM"] for probe in found.values()] == ["0", "1", "2"]
    assert [probe["environ"]["OMP_NUM_THREADS"] for probe in found.values()] == ["7"] * 3
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
