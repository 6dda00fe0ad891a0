"""`torchrun --rdzv-backend mingle`, which torch finds by itself: no endpoint, and scripts that know nothing of it."""

import shlex
from collections.abc import Callable
from functools import partial

from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster
from needs import need

from frameworks import runs
from frameworks.rows import ALIKE, SCRIPTS

NODES = len(ALIKE)
LONGEST_S = 100.0
BACKEND = ("torchrun", "--rdzv-backend", "mingle")
STATIC = (*BACKEND, "--nnodes", str(NODES), "--nproc-per-node", "2")
TRAIN = (str(SCRIPTS / "train_torch.py"), str(2 * NODES))
# A second network, with its own interface for Gloo, and nothing but multicast.
BARE = {**runs.KEY, **runs.ENV, "MINGLE_IFACE": "ib0", "MINGLE_VIA": "multicast"}


def test_one_world_on_bare_hosts_by_multicast_alone(hosts: Callable[..., Hosts]) -> None:
    """Two processes on each of three hosts; the id is torchrun's own option."""
    need("torch")
    its = hosts(NODES)
    words = [*STATIC, "--rdzv-id", "job", *TRAIN]
    assert runs.tried("bare", partial(runs.on_all, its, lambda n: runs.ended(its[n], words, BARE, LONGEST_S)), 6) == ""


def test_one_world_under_slurm(slurm: SlurmCluster) -> None:
    """The job names the world, and nothing else is said."""
    need("torch")
    words = ["srun", f"-N{NODES}", f"-n{NODES}", *STATIC, *TRAIN]
    run = partial(runs.ended, slurm.controller, words, {**runs.KEY, **runs.ENV}, LONGEST_S)
    assert runs.tried("Slurm", run, 2 * NODES) == ""


def test_a_killed_node_rejoins_an_elastic_world(hosts: Callable[..., Hosts]) -> None:
    """The others go on meanwhile, and the script is the one of `--for torchrun-elastic`."""
    need("torch")
    options = ["--nnodes", f"2:{NODES}", "--max-restarts", "3", "--rdzv-id", "job", "--rdzv-conf"]
    script = [str(SCRIPTS / "train_elastic.py"), str(NODES), "60"]
    assert runs.rejoined(hosts(NODES), lambda n: shlex.join([*BACKEND, *options, f"rank={n}", *script])) == ""
