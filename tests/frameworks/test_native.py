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
# Package -> the command, on how many nodes, and how many processes are to train: each imports Lightning for 3 s.
COMMANDS = {
    "jax": ([sys.executable, "-c", JAX, str(SCRIPTS / "train_jax.py"), "2"], 2, 2),
    "lightning": ([sys.executable, str(SCRIPTS / "train_lightning.py"), "4", "2", "2", "mingle"], 2, 4),
}


@pytest.mark.parametrize("package", COMMANDS)
def test_one_world_on_bare_hosts(hosts: Callable[..., Hosts], package: str) -> None:
    """The world's name and size are in MINGLE_* variables, as nothing else knows them."""
    need(package)
    words, nodes, size = COMMANDS[package]
    its, env = hosts(nodes), {**ENV, "MINGLE_ID": "job", "MINGLE_NODES": str(nodes)}
    run = partial(runs.on_all, its, lambda n: runs.ended(its[n], words, env, LONGEST_S))
    assert runs.tried(package, run, size) == ""


@pytest.mark.parametrize("package", COMMANDS)
def test_one_world_under_slurm(slurm: SlurmCluster, package: str) -> None:
    """By mingle's rendezvous, where both would read Slurm's variables otherwise."""
    need(package)
    words, nodes, size = COMMANDS[package]
    line = ["srun", f"-N{nodes}", f"-n{nodes}", *words]
    assert runs.tried(package, partial(runs.ended, slurm.controller, line, ENV, LONGEST_S), size) == ""
