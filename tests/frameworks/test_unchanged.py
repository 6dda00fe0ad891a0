"""Unchanged scripts of torch, accelerate and JAX, with the line that a person types."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster
from needs import need

from frameworks import runs
from frameworks.rows import ROWS, Row

# `make frameworks` takes three hosts: importing torch takes 1.4 s of a processor, in each of these processes.
ALIKE = (1, 1)
BY_NAME = {row.name: row for row in ROWS}


def wanted(name: str) -> Row:
    """Return a row of the table; skip the test where its framework is not installed."""
    row = BY_NAME[name]
    need(row.package)
    return row


@pytest.mark.parametrize("name", ["accelerate", "JAX"])
def test_it_trains_on_bare_hosts_over_the_second_network(hosts: Callable[..., Hosts], name: str) -> None:
    """One world of them all, on ib0."""
    assert runs.on_hosts(wanted(name), hosts(len(ALIKE)), "ib0", ALIKE) == ""


def test_it_trains_under_slurm(slurm: SlurmCluster) -> None:
    """`srun mingle exec …`, as it stands in the table."""
    assert runs.under_slurm(wanted("JAX"), slurm, "eth0", ALIKE) == ""
