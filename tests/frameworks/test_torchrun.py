"""`torchrun --rdzv-backend mingle`, which torch finds by itself: no endpoint, and scripts that know nothing of it."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import entry_points

from cluster import names
from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster
from needs import need

from frameworks import runs
from frameworks.rows import SCRIPTS

# Each process that trains, and each torchrun, imports torch for 1.4 s.
NODES = 2
LONGEST_S = 100.0
OPTIONS = ("--rdzv-backend", "mingle", "--nnodes")
# A second network, with its own interface for Gloo, and nothing but multicast.
BARE = {**runs.KEY, **runs.ENV, "MINGLE_IFACE": "ib0", "MINGLE_VIA": "multicast"}


def test_one_world_under_slurm(slurm: SlurmCluster) -> None:
    """The job names the world, of two processes on each node; torchrun's options may come as variables."""
    need("torch")
    words = ["srun", f"-N{NODES}", f"-n{NODES}", "torchrun", "--nnodes", str(NODES), "--nproc-per-node", "2"]
    words += [str(SCRIPTS / "train_torch.py"), str(2 * NODES)]
    env = {**runs.KEY, **runs.ENV, "PET_RDZV_BACKEND": "mingle"}
    run = partial(runs.ended, slurm.controller, words, env, LONGEST_S)
    assert runs.tried("Slurm", run, 2 * NODES) == ""


def test_bare_hosts_meet_by_multicast_alone_and_a_killed_one_rejoins(hosts: Callable[..., Hosts]) -> None:
    """Their own names are 127.0.1.1; the others go on meanwhile, and the script is that of `--for torchrun-elastic`."""
    need("torch")
    its = hosts(3)
    names.lay(its, names.DEBIAN)
    options = [*OPTIONS, "2:3", "--max-restarts", "3", "--rdzv-id", "job", "--rdzv-conf"]
    script = [str(SCRIPTS / "train_elastic.py"), "3", "30"]
    assert runs.rejoined(its, lambda n: shlex.join(["torchrun", *options, f"rank={n}", *script]), BARE) == ""


RUNS = """
import sys
from torch.distributed.run import main
two = ["--nnodes", "2", "--rdzv-endpoint", "localhost:1", "--rdzv-conf", "timeout=1,rank=1"]
for words in (two, [*two, "--rdzv-id", "job"], ["--nnodes", "1", "--rdzv-id", "job", "--rdzv-conf", "timeout=5m"]):
    try:
        main(["--rdzv-backend", "mingle", *words, "--no-python", "true"])
        print("trained")
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_its_options_are_those_of_mingle() -> None:
    """By --rdzv-conf, also in a form that torch does not read, and an error is mingle's own."""
    need("torch")
    env = {**runs.KEY, **runs.ENV, "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-c", RUNS], env=env, capture_output=True, text=True, check=True)
    without_id, without_others, alone = done.stdout.splitlines()
    assert without_id.startswith("UsageError expected an id")
    assert without_others.startswith("MissingError expected")
    assert alone == "trained"


def test_a_torchrun_that_does_not_choose_it_loads_nothing() -> None:
    """Every torchrun where mingle is installed loads the entry point, and asks it for the handler."""
    script = "import sys; from mingle_hooks.torchrun import handler; handler(); print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"torch", "mingle_hooks.api"} & set(done.stdout.splitlines())
    (point,) = entry_points(group="torchrun.handlers", name="mingle")
    assert point.value == "mingle_hooks.torchrun:handler"
