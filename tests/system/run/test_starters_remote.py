"""Agents that the remote starts of Torque, LSF and Grid Engine, and ssh, start on test hosts."""

from collections.abc import Callable
from pathlib import Path

import pytest
from cluster.hosts import Hosts
from cluster.ssh import ssh
from support.remote_stand_ins import RemoteStandIn
from told import script, told

Hosted = Callable[..., Hosts]


REMOTE = {"lsf": ("TMPDIR",), "sge": ("TMPDIR",), "torque": ("PBS_NODENUM", "PBS_VNODENUM", "PBS_TASKNUM")}


@pytest.mark.parametrize("scheduler", REMOTE)
def test_each_host_gets_one_by_the_schedulers_own_start(hosts: Hosted, tmp_path: Path, scheduler: str) -> None:
    with RemoteStandIn(scheduler, hosts(3), tmp_path, 2) as stand_in:
        assert stand_in.run(script(tmp_path)) == (0, "")
    assert [*told(tmp_path, REMOTE[scheduler])] == ["node1.0", "node2.0", "node3.0"]


def test_each_slot_gets_one_with_scope_task(hosts: Hosted, tmp_path: Path) -> None:
    """Numbered on each host."""
    with RemoteStandIn("torque", hosts(2), tmp_path, 2) as stand_in:
        assert stand_in.run(script(tmp_path, "--scope", "task")) == (0, "")
    assert [*told(tmp_path, REMOTE["torque"])] == ["node1.0", "node1.1", "node2.0", "node2.1"]


def test_ssh_starts_one_on_each_host_that_a_person_names(hosts: Hosted, tmp_path: Path) -> None:
    made = hosts(3)
    text = script(tmp_path, "--hosts", "node[2-3],node1", directory="a 'dir")
    path = f"{ssh(made, tmp_path)}:/usr/sbin:/usr/bin:/sbin:/bin"
    done = made[0].run(["bash", "-c", text], env={"PATH": path, "HOME": "/root", "USER": "root"})
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    found = told(tmp_path, ("HOME", "USER", "SHELL", "SSH_CLIENT", "LOGNAME"), "a 'dir")
    assert {name: its.rank for name, its in found.items()} == {"node1.0": "2", "node2.0": "0", "node3.0": "1"}
    assert [name for name, its in found.items() if "SSH_CLIENT" in its.environ] == ["node2.0", "node3.0"]
