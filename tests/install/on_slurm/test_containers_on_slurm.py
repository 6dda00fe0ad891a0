"""TaskProlog in a container, as under pyxis: with the mount that install lays, and what happens without it."""

from __future__ import annotations

import re
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hooked_slurm import all_idle, installed, uninstalled
from needs import need

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.slurm import SlurmCluster

SOURCE = Path(__file__).with_name("hidden.c")
PLUGSTACK, MOUNTS = "/etc/slurm/plugstack.conf", "/etc/enroot/mounts.d/50-mingle.fstab"
SHOW = ("/bin/sh", "-c", "ls /etc/mingle; echo rank $NODE_RANK of $MASTER_ADDR")


@pytest.fixture
def pyxis(slurm: SlurmCluster, tmp_path: Path) -> Iterator[SlurmCluster]:
    """Give the shared Slurm with a plugin that hides the host's files from tasks, and a site's enroot."""
    need("gcc")
    said = slurm.controller.run(["slurmd", "-V"], check=True).stdout
    match = re.match(r"\S+ (\d+)\.(\d+)\.(\d+)", said)
    assert match, said
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
    done = pyxis.srun("-N2", *SHOW, user="alice")
    assert (done.returncode, done.stderr) == (0, "")
    ranks = [line for line in sorted(done.stdout.splitlines()) if "rank" in line]
    assert ranks == ["rank 0 of node1", "rank 1 of node1"]
    pyxis.controller.run(["mv", MOUNTS, "/etc/enroot/elsewhere"], check=True)
    done = pyxis.srun("-N1", *SHOW, user="alice")
    assert done.returncode != 0
    assert "rank" not in done.stdout
    pyxis.controller.run(["mv", "/etc/enroot/elsewhere", MOUNTS], check=True)
    pyxis.controller.write("/etc/mingle/disabled", "")
    assert pyxis.srun("-N2", *SHOW, user="alice").stdout.count("rank of\n") == 2
    all_idle(pyxis)
