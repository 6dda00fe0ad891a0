"""The site's own hooks, and containers, beside ours on a real Slurm."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cluster.slurm import SlurmCluster
from hooked_slurm import MINGLE_HOOKS, installed, uninstalled
from support.hooks_image import aged
from support.needs import need


@pytest.fixture
def site(slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """Give the shared Slurm, and take away afterwards what the test installed and wrote."""
    with ExitStack() as last_first:
        last_first.callback(slurm.hosts.run_all, ["sh", "-c", "rm -f /run/site.* /etc/slurm/site.*"])
        last_first.callback(uninstalled, slurm)  # makes drained nodes work again
        yield slurm


def test_a_slurmd_that_lags_behind_the_controller_drains_no_node(site: SlurmCluster) -> None:
    """It runs the files by its old slurm.conf after reconfigure and uninstall; stubs run the site's own then."""
    host, last = site.controller, site.hosts[3]
    host.write("/etc/slurm/site.epilog", "#!/bin/sh\necho ran >>/run/site.epilog\n", mode=0o755)
    installed(site, before=("Epilog=/etc/slurm/site.epilog",))
    old = "cp /etc/slurm/slurm.conf /run/old.conf; mount --bind /run/old.conf /etc/slurm/slurm.conf"
    last.run(["sh", "-ec", old], check=True)
    uninstall = [*MINGLE_HOOKS, "uninstall", "slurm", "--yes"]
    try:
        site.reconfigure("PrologFlags=Alloc")  # without it the controller announces no Prolog, for which slurmd waits
        stubs = host.run(uninstall, check=True).stdout
        assert site.srun("-N4", "true", user="alice").returncode == 0
        site.wait_idle()
        assert last.outside("/run/site.epilog").exists()
        again = host.run(uninstall, check=True).stdout
        assert (stubs.count("stub    "), again.count("wait    ")) == (4, 4)
    finally:
        last.run(["umount", "/etc/slurm/slurm.conf"], check=True)
    site.reconfigure()
    aged(host.outside("/"))
    assert host.run(uninstall, check=True).stdout.count("remove  ") == 4
    assert not host.outside("/etc/mingle/hooks").exists()


SOURCE = Path(__file__).with_name("hidden.c")
PLUGSTACK, MOUNTS = "/etc/slurm/plugstack.conf", "/etc/enroot/mounts.d/50-mingle.fstab"
IN_CONTAINER = ("/bin/sh", "-c", "ls /etc/mingle; echo rank $NODE_RANK of $MASTER_ADDR")


@pytest.fixture
def pyxis(slurm: SlurmCluster, tmp_path: Path) -> Iterator[SlurmCluster]:
    """Give the shared Slurm with a plugin that hides the host's files from tasks, and a site's enroot."""
    need("gcc")
    output = slurm.controller.run(["slurmd", "-V"], check=True).stdout
    match = re.match(r"\S+ (\d+)\.(\d+)\.(\d+)", output)
    assert match, output
    version = int(match[1]) << 16 | int(match[2]) << 8 | int(match[3])
    plugin = tmp_path / "spank_pyxis.so"
    subprocess.run(["gcc", "-shared", "-fPIC", f"-DVERSION={version}", "-o", plugin, SOURCE], check=True)
    before = slurm.controller.run(["cat", PLUGSTACK]).stdout
    with ExitStack() as last_first:
        last_first.callback(slurm.controller.write, PLUGSTACK, before)
        last_first.callback(slurm.controller.run, ["rm", "-rf", "/etc/enroot"], check=True)
        last_first.callback(uninstalled, slurm)
        slurm.controller.run(["mkdir", "-p", "/etc/enroot/mounts.d"], check=True)
        slurm.controller.write(PLUGSTACK, f"required {plugin}\n")
        yield slurm


def test_a_task_in_a_container_has_its_variables_by_the_mount(pyxis: SlurmCluster) -> None:
    """The mount that install lays is all that the TaskProlog needs there; without it every task fails."""
    lines = installed(pyxis)
    assert "TaskProlog=/etc/mingle/hooks/slurm/taskprolog" in lines
    done = pyxis.srun("-N2", *IN_CONTAINER, user="alice")
    assert (done.returncode, done.stderr) == (0, "")
    ranks = [line for line in sorted(done.stdout.splitlines()) if "rank" in line]
    assert ranks == ["rank 0 of node1", "rank 1 of node1"]
    pyxis.controller.run(["mv", MOUNTS, "/etc/enroot/elsewhere"], check=True)
    done = pyxis.srun("-N1", *IN_CONTAINER, user="alice")
    assert done.returncode != 0
    assert "rank" not in done.stdout
    pyxis.wait_idle()
