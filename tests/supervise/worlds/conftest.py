"""Runs in the test's own process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from supervise.worlds.served import Served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Return what serves runs in this process."""
    made = Served(tmp_path / "state" / "mingle" / "runs")
    yield made
    made.close()
