"""Hosts on this machine, for tests of the runner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from supervise.runner.places import Places

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    """Give hosts on this machine; nothing of theirs may be left."""
    made = Places(tmp_path)
    try:
        yield made
    finally:
        made.close()
