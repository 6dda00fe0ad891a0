"""A runner for each test; nothing of its run is left when the test ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fake_runner import Runner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    """Give a runner that has not started its supervisor yet."""
    with Runner(tmp_path) as made:
        yield made
