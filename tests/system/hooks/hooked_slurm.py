"""What the tests of hooks on a real Slurm share: installing them, showing what tasks see, looking at the nodes."""

import json
import subprocess
from contextlib import ExitStack, suppress

from cluster.host import Host
from cluster.slurm import SlurmCluster
from support.hooks import SITE_KEY

MINGLE_HOOKS = ["mingle", "hooks"]
KEPT = "/root/installed"  # /etc/mingle after install; all hosts share it
SHOW = "/home/alice/show.py"
SHOW_TEXT = """
import json, os, sys
names = ["MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
         "SLURM_PROCID", "SLURMD_NODENAME", "MINGLE_ID"]
names += sorted(n for n in os.environ if n.startswith("PET_"))
print(json.dumps({n: os.environ.get(n) for n in names}), flush=True)
"""


def installed(slurm: SlurmCluster, *, before: tuple[str, ...] = ()) -> list[str]:
    """Install the hooks on all hosts (they share /etc), let Slurm use the lines that install prints, return them.

    `before` are lines of slurm.conf of the site's own, to be seen by install.
    """
    host = slurm.controller
    host.write("/etc/mingle/key", SITE_KEY + "\n", mode=0o400)
    if before:
        slurm.reconfigure(*before)
    done = host.run([*MINGLE_HOOKS, "install", "slurm", "--yes"], check=True)
    lines = [line.partition(" ")[0] for line in done.stdout.splitlines() if "=/" in line or "Flags=" in line]
    assert [line.partition("=")[0] for line in lines] == ["Prolog", "Epilog", "TaskProlog", "PrologFlags"]
    slurm.reconfigure(*lines)
    host.write(SHOW, SHOW_TEXT)
    return lines


def hooked_again(slurm: SlurmCluster) -> None:
    """Install the hooks, from the second time on by a copy of what install made: a program less in every test."""
    host = slurm.controller
    if not host.outside(KEPT).exists():
        lines = installed(slurm)
        host.write(f"{KEPT}.conf", "\n".join(lines))
        host.run(["cp", "-a", "/etc/mingle", KEPT], check=True)
        return
    host.run(["cp", "-a", KEPT, "/etc/mingle"], check=True)
    slurm.reconfigure(*host.outside(f"{KEPT}.conf").read_text().splitlines())
    host.write(SHOW, SHOW_TEXT)


def uninstalled(slurm: SlurmCluster) -> None:
    """Take the hooks and all that tests put beside them away again, the rest also where a part fails.

    All that install makes is in one directory; `mingle hooks uninstall` is tried in test_life_on_slurm.py.
    """
    with ExitStack() as last_first:
        for each in slurm.hosts:
            last_first.callback(_cleaned, each)
        last_first.callback(slurm.controller.run, ["rm", "-rf", "/etc/mingle", SHOW], check=True)
        last_first.callback(slurm.reconfigure)
        last_first.callback(slurm.cancel_all)


def _cleaned(host: Host) -> None:
    """Remove /run/mingle from a host, with what is there of jobs whose Epilog has not run."""
    place = host.outside("/run/mingle")
    with suppress(FileNotFoundError):
        if not any(place.iterdir()):
            place.rmdir()
            return
        host.run(["sh", "-c", "umount -l /run/mingle/*; rm -rf /run/mingle"], check=True)


def shown(done: subprocess.CompletedProcess[str]) -> list[dict[str, str | None]]:
    """Return what every task saw, in rank order."""
    assert done.returncode == 0, done.stderr
    tasks = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return sorted(tasks, key=lambda seen: int(seen["SLURM_PROCID"]))


def nothing_left(slurm: SlurmCluster) -> None:
    """Fail unless every node is idle and the last Epilog has left nothing below /run/mingle."""
    slurm.wait_idle()
    slurm.until(lambda: not any(list(h.outside("/run/mingle").glob("*")) for h in slurm.hosts), "empty /run/mingle")
