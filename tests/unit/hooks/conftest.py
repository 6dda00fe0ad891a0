"""Where the tests of hooks write."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """Give a directory in memory, where that may hold programs: installing waits for a busy disk after each file."""
    memory = "/dev/shm"  # noqa: S108 - the directory in it is nobody else's
    if not os.access(memory, os.W_OK) or os.statvfs(memory).f_flag & os.ST_NOEXEC:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as made_here:
        yield Path(made_here)
