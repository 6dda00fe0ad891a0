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
# Plain torch.distributed, as a user would write it: all from the environment, and a sum that needs everybody.
TRAIN = "/home/alice/train.py"
TRAIN_TEXT = """
import gc, os
gc.disable()  # it would take a third of this process's time, for what torch loads
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
os.write(1, f"rank {dist.get_rank()} of {dist.get_world_size()} sum {total.item():.0f}\\n".encode())
dist.destroy_process_group()
gc.freeze()  # nor at its end
"""


def installed(slurm: SlurmCluster, *more: str, before: tuple[str, ...] = ()) -> list[str]:
    """Install the hooks on all hosts (they share /etc), let Slurm use the lines that install prints, return them.

    `before` are lines of slurm.conf of the site's own, to be seen by install; `more` are added to its lines.
    """
    host = slurm.controller
    host.write("/etc/mingle/key", SITE_KEY + "\n", mode=0o400)
    if before:
        slurm.reconfigure(*before)
    done = host.run([*MINGLE_HOOKS, "install", "slurm", "--yes"], check=True)
    lines = [line.partition(" ")[0] for line in done.stdout.splitlines() if "=/" in line or "Flags=" in line]
    assert [line.partition("=")[0] for line in lines] == ["Prolog", "Epilog", "TaskProlog", "PrologFlags"]
    _ready(slurm, [*lines, *more])
    return lines


def _ready(slurm: SlurmCluster, lines: list[str]) -> None:
    slurm.reconfigure(*lines)
    slurm.controller.write(SHOW, SHOW_TEXT)
    slurm.controller.write(TRAIN, TRAIN_TEXT)


def hooked_again(slurm: SlurmCluster) -> None:
    """Install the hooks, from the second time on by a copy of what install made: a program less in every test."""
    host = slurm.controller
    if not host.outside(KEPT).exists():
        lines = installed(slurm)
        host.write(f"{KEPT}.conf", "\n".join(lines))
        host.run(["cp", "-a", "/etc/mingle", KEPT], check=True)
        return
    host.run(["cp", "-a", KEPT, "/etc/mingle"], check=True)
    _ready(slurm, host.outside(f"{KEPT}.conf").read_text().splitlines())


def uninstalled(slurm: SlurmCluster) -> None:
    """Take the hooks and all that tests put beside them away again, the rest also where a part fails.

    All that install makes is in one directory; `mingle hooks uninstall` is tried in test_life_on_slurm.py.
    """
    with ExitStack() as last_first:
        for each in slurm.hosts:
            last_first.callback(_cleaned, each)
        last_first.callback(slurm.controller.run, ["rm", "-rf", "/etc/mingle", SHOW, TRAIN], check=True)
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
