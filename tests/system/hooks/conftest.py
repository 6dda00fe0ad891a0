"""The fixture of the tests of hooks on a real Slurm."""

from collections.abc import Iterator

import pytest
from cluster.slurm import SlurmCluster
from hooked_slurm import hooked_again, uninstalled


@pytest.fixture
def hooked(slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """Give the shared Slurm with the hooks installed, and take them away afterwards."""
    try:
        hooked_again(slurm)
        yield slurm
    finally:
        uninstalled(slurm)
