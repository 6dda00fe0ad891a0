"""The fixture of the tests of hooks on a real Slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hooked_slurm import hooked_again, uninstalled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.slurm import SlurmCluster


@pytest.fixture
def hooked(slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """Give the shared Slurm with the hooks installed, and take them away afterwards."""
    try:
        hooked_again(slurm)
        yield slurm
    finally:
        uninstalled(slurm)
