"""JAX and Lightning with mingle's own classes in the script, started as plain Python."""

import sys
from collections.abc import Callable
from functools import partial

import pytest
from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster
from needs import need

from frameworks import runs
from frameworks.rows import SCRIPTS

LONGEST_S = 100.0
ENV = {**runs.KEY, **runs.ENV}
# The script with one line before it, and one after it that fails where JAX asked another class.
JAX = """
import mingle_hooks.jax, os, runpy, sys
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
os.environ["MINGLE_WORLD"]
"""
NODES = 2
WITH_JAX = [sys.executable, "-c", JAX, str(SCRIPTS / "train_jax.py"), str(NODES)]
# Lightning starts the other processes of a node itself: two on each, of which each imports it for 3 s.
WITH_LIGHTNING = [sys.executable, str(SCRIPTS / "train_lightning.py"), str(2 * NODES), str(NODES), "2", "mingle"]


def test_one_world_on_bare_hosts(hosts: Callable[..., Hosts]) -> None:
    """MINGLE_* variables name the world and its size."""
    need("jax")
    its, env = hosts(NODES), {**ENV, "MINGLE_ID": "job", "MINGLE_NODES": str(NODES)}
    run = partial(runs.on_all, its, lambda n: runs.ended(its[n], WITH_JAX, env, LONGEST_S))
    assert runs.tried("jax", run, NODES) == ""


@pytest.mark.parametrize(
    ("package", "words", "size"), [("jax", WITH_JAX, NODES), ("lightning", WITH_LIGHTNING, 2 * NODES)]
)
def test_one_world_under_slurm(slurm: SlurmCluster, package: str, words: list[str], size: int) -> None:
    """Both use mingle's rendezvous, not Slurm's variables."""
    need(package)
    line = ["srun", f"-N{NODES}", f"-n{NODES}", *words]
    assert runs.tried(package, partial(runs.ended, slurm.controller, line, ENV, LONGEST_S), size) == ""
