"""JAX and Lightning with mingle's own classes in the script, started as plain Python."""

import sys
from collections.abc import Callable
from functools import partial

import pytest
from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster
from needs import need

from frameworks import runs
from frameworks.rows import ALIKE, SCRIPTS

NODES = len(ALIKE)
LONGEST_S = 100.0
ENV = {**runs.KEY, **runs.ENV}
# The script with one line before it, and one after it that fails where JAX asked another class.
JAX = """
import mingle_hooks.jax, os, runpy, sys
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
os.environ["MINGLE_WORLD"]
"""
# Package -> the command, and how many processes are to train.
COMMANDS = {
    "jax": ([sys.executable, "-c", JAX, str(SCRIPTS / "train_jax.py"), str(NODES)], NODES),
    "lightning": ([sys.executable, str(SCRIPTS / "train_lightning.py"), str(2 * NODES), str(NODES), "2", "mingle"], 6),
}


@pytest.mark.parametrize("package", COMMANDS)
def test_one_world_on_bare_hosts(hosts: Callable[..., Hosts], package: str) -> None:
    """The world's name and size are in MINGLE_* variables, as nothing else knows them."""
    need(package)
    its, env, (words, size) = hosts(NODES), {**ENV, "MINGLE_ID": "job", "MINGLE_NODES": str(NODES)}, COMMANDS[package]
    assert (
        runs.tried(package, partial(runs.on_all, its, lambda n: runs.ended(its[n], words, env, LONGEST_S)), size) == ""
    )


@pytest.mark.parametrize("package", COMMANDS)
def test_one_world_under_slurm(slurm: SlurmCluster, package: str) -> None:
    """By mingle's rendezvous, where both would read Slurm's variables otherwise."""
    need(package)
    words, size = COMMANDS[package]
    line = ["srun", f"-N{NODES}", f"-n{NODES}", *words]
    assert runs.tried(package, partial(runs.ended, slurm.controller, line, ENV, LONGEST_S), size) == ""
