"""Root's hooks beside job_container/tmpfs, which gives each job mounts of its own, and under PrologFlags=Serial."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.slurm import SlurmCluster, missing
from hooked_slurm import SITE_KEY
from needs import skip_for_want_of

from mingle_hooks.hooks.apply import hook
from mingle_hooks.hooks.files import Site
from mingle_hooks.hooks.files import render_hook as render

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import CompletedProcess

    from cluster.hosts import Hosts

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
    for name in ("prolog", "epilog"):
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
