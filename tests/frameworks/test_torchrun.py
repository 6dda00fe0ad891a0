"""`torchrun --rdzv-backend mingle`, which torch finds by itself: no endpoint, and scripts that know nothing of it."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path

from cluster import names
from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster
from needs import need

from frameworks import runs
from frameworks.rows import SCRIPTS

# Each process that trains, and each torchrun, imports torch for 1.4 s.
NODES = 2
LONGEST_S = 100.0
PATH = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
BACKEND = ("torchrun", "--rdzv-backend", "mingle")
STATIC = (*BACKEND, "--nnodes", str(NODES))
TRAIN = str(SCRIPTS / "train_torch.py")
# A second network, with its own interface for Gloo, and nothing but multicast.
BARE = {**runs.KEY, **runs.ENV, "MINGLE_IFACE": "ib0", "MINGLE_VIA": "multicast"}


def test_one_world_on_bare_hosts_by_multicast_alone(hosts: Callable[..., Hosts]) -> None:
    """On two hosts, whose own names are 127.0.1.1; the id is torchrun's own option."""
    need("torch")
    its = hosts(NODES)
    names.lay(its, names.DEBIAN)
    words = [*STATIC, "--rdzv-id", "job", TRAIN, str(NODES)]
    run = partial(runs.on_all, its, lambda n: runs.ended(its[n], words, BARE, LONGEST_S))
    assert runs.tried("bare", run, NODES) == ""


def test_one_world_under_slurm(slurm: SlurmCluster) -> None:
    """The job names the world; torchrun's options may come as variables."""
    need("torch")
    words = ["srun", f"-N{NODES}", f"-n{NODES}", STATIC[0], *STATIC[3:], TRAIN, str(NODES)]
    env = {**runs.KEY, **runs.ENV, "PET_RDZV_BACKEND": "mingle"}
    run = partial(runs.ended, slurm.controller, words, env, LONGEST_S)
    assert runs.tried("Slurm", run, NODES) == ""


def test_a_killed_node_rejoins_an_elastic_world(hosts: Callable[..., Hosts]) -> None:
    """The others go on meanwhile, and the script is the one of `--for torchrun-elastic`."""
    need("torch")
    options = ["--nnodes", "2:3", "--max-restarts", "3", "--rdzv-id", "job", "--rdzv-conf"]
    script = [str(SCRIPTS / "train_elastic.py"), "3", "30"]
    assert runs.rejoined(hosts(3), lambda n: shlex.join([*BACKEND, *options, f"rank={n}", *script])) == ""


def test_its_options_are_those_of_mingle(tmp_path: Path) -> None:
    """--rdzv-conf passes them, and an error is mingle's own."""
    need("torch")
    options = ["--nnodes", "2", "--rdzv-id", "job", "--rdzv-endpoint", "localhost:1", "--rdzv-conf", "timeout=1,rank=1"]
    env = {"PATH": PATH, **runs.KEY}
    done = subprocess.run(
        [*BACKEND, *options, "x.py"], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "mingle_hooks.errors.MissingError: expected" in done.stderr


def test_a_torchrun_that_does_not_choose_it_loads_nothing() -> None:
    """Every torchrun where mingle is installed loads the entry point, and asks it for the handler."""
    script = "import sys; from mingle_hooks.torchrun import handler; handler(); print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"torch", "mingle_hooks.api"} & set(done.stdout.splitlines())
    (point,) = entry_points(group="torchrun.handlers", name="mingle")
    assert point.value == "mingle_hooks.torchrun:handler"
