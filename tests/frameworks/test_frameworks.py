"""Unchanged scripts of torch, accelerate and JAX, with the line that a person types, on networks of many kinds."""

from collections.abc import Callable
from pathlib import Path

from cluster.hosts import Hosts
from cluster.layouts import BY_NAME, LAYOUTS
from cluster.slurm import SlurmCluster
from needs import need

from frameworks import runs
from frameworks.networks import ALONE, PAGE, Trained, replaced, table, train
from frameworks.rows import ROWS

# `make frameworks` takes three hosts, and tries all of them, torchrun too: importing torch takes 1.4 s of a processor,
# in each of these processes.
ALIKE = (1, 1)
ROW_OF = {row.name: row for row in ROWS}
DEBIAN = BY_NAME["127.0.1.1 for each node's own name, others unknown"]


def test_accelerate_trains_on_bare_hosts_over_the_second_network(hosts: Callable[..., Hosts]) -> None:
    """One world of them all, on ib0, by torch's own launcher below accelerate's."""
    need("accelerate")
    assert runs.on_hosts(ROW_OF["accelerate"], hosts(len(ALIKE)), "ib0", ALIKE) == ""


def test_jax_trains_under_slurm(slurm: SlurmCluster) -> None:
    """`srun mingle exec …`, as it stands in the table."""
    need("jax")
    assert runs.under_slurm(ROW_OF["JAX"], slurm, "eth0", ALIKE) == ""


def test_an_unchanged_script_trains_on_stock_debian_hosts(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """Gloo would take 127.0.1.1 for a host's address; the user says nothing of networks, and no launcher is there."""
    need("torch")
    assert train(DEBIAN, hosts(len(DEBIAN.machines)), tmp_path, (ALONE,)) == Trained("", DEBIAN.wanted)


def test_each_network_is_in_the_documentation_as_it_was_seen() -> None:
    """With the interface that is wanted there, which is the one that was seen."""
    found = {its.name: Trained("", its.wanted) for its in LAYOUTS}
    assert len(found) == len(LAYOUTS)
    page = PAGE.read_text()
    assert replaced(page, table(LAYOUTS, found)) == page
