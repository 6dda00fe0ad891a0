"""The site's own hooks, containers and a job's own mounts beside ours, on a real Slurm."""

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster, missing
from hooked_slurm import MINGLE_HOOKS, installed, uninstalled
from support.hooks import SITE_KEY
from support.hooks_image import aged
from support.needs import need, skip_for_want_of

from mingle_hooks.hooks.files import Site, render_hook as render
from mingle_hooks.hooks.targets import hook

SHOW = ("/bin/sh", "-c", "echo $SLURM_PROCID $MASTER_ADDR")


@pytest.fixture
def site(slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """Give the shared Slurm, and take away afterwards what the test installed and wrote."""
    with ExitStack() as last_first:
        last_first.callback(slurm.hosts.run_all, ["sh", "-c", "rm -f /run/site.* /etc/slurm/site.*"])
        last_first.callback(uninstalled, slurm)  # makes drained nodes work again
        yield slurm


def test_a_prolog_of_the_sites_that_fails_drains_as_before(site: SlurmCluster) -> None:
    """A site's health check that takes a bad node out of service still does, with ours before it."""
    text = '#!/bin/sh\n[ "$SLURMD_NODENAME" != node2 ] || exit 3\n'
    site.controller.write("/etc/slurm/site.prolog", text, mode=0o755)
    installed(site, before=("Prolog=/etc/slurm/site.prolog",))
    job = site.submit("true", "-N1", "-w", "node2", "-o", "/dev/null", user="alice")
    site.until(lambda: site.sinfo()["node2"].startswith("drain"), "a drained node2")
    site.controller.run(["scancel", job], check=True)
    assert site.srun("-N3", "-x", "node2", *SHOW, user="alice").stdout.count("node1") == 3
    assert {name for name, state in site.sinfo().items() if state.startswith("drain")} == {"node2"}


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
    site.srun("-N4", "true", user="alice")
    site.wait_idle()


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
    pyxis.controller.run(["mv", "/etc/enroot/elsewhere", MOUNTS], check=True)
    pyxis.controller.write("/etc/mingle/disabled", "")
    assert pyxis.srun("-N2", *IN_CONTAINER, user="alice").stdout.count("rank of\n") == 2
    pyxis.wait_idle()


HOOKS = "/etc/mingle/hooks/slurm"
LINES = (
    f"Prolog={HOOKS}/prolog",
    f"Epilog={HOOKS}/epilog",
    "PrologFlags=Contain,Serial",
    "JobContainerType=job_container/tmpfs",
)


def tried(slurm: SlurmCluster, script: str) -> CompletedProcess[str]:
    """Run a script as alice's job, again where Slurm itself could not begin it.

    With job_container/tmpfs slurmstepd 22.05 at times ends before it says anything, on a busy machine and without any
    hook: slurmd then cancels the job.
    """
    for _ in range(10):
        done = slurm.srun("-N1", "sh", "-c", script, user="alice")
        if "wrong with the boot" not in done.stderr:
            break
    return done


def test_a_job_in_mounts_of_its_own_has_its_directory(hosts: Callable[..., Hosts]) -> None:
    """Also where the system log is deaf, and the Prologs and Epilogs of a node come one after the other."""
    skip_for_want_of(missing())
    made = hosts(1)
    host = made[0]
    for name in ("job", "prolog", "epilog"):
        host.write(f"{HOOKS}/{name}", render(hook("slurm", name), Site()), mode=0o755)
    host.write("/etc/mingle/key", SITE_KEY + "\n", mode=0o400)
    host.write("/etc/slurm/job_container.conf", "AutoBasePath=true\nBasePath=/run/containers\n")
    host.run(["mkdir", "/run/containers"], check=True)
    host.write("/run/deaf", "#!/bin/sh\nexec sleep 600\n", mode=0o755)
    host.run(["mount", "--bind", "/run/deaf", "/usr/bin/logger"], check=True)
    script = 'wc -c <"/run/mingle/$SLURM_JOB_ID/key" && findmnt -n -o FSTYPE,SIZE "/run/mingle/$SLURM_JOB_ID"'
    with SlurmCluster(made, conf_lines=LINES) as slurm:
        for _ in range(2):
            done = tried(slurm, script)
            assert done.stdout.split() == ["65", "tmpfs", "16M"], done.stderr + slurm.logs()
        slurm.wait_idle()
        slurm.until(lambda: not list(host.outside("/run/mingle").iterdir()), "the Epilogs")
