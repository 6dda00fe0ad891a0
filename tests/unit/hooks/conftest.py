"""What every test of the hooks needs: a directory in memory, and what they mount below it goes with the test."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mingle_hooks.hooks import plan


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """Give a directory in memory, where that may hold programs: installing waits for a busy disk after each file."""
    memory = "/dev/shm"  # noqa: S108 - the directory in it is nobody else's
    if not os.access(memory, os.W_OK) or os.statvfs(memory).f_flag & os.ST_NOEXEC:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as made_here:
        yield Path(made_here)


@pytest.fixture(autouse=True)
def looks_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look again at once, as what is wrong in a test stays so."""
    monkeypatch.setattr(plan, "AGAIN_S", 0)


@pytest.fixture(autouse=True)
def no_mount_is_left(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Take off what hooks that ran on this machine itself have mounted."""
    yield
    points = [line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in reversed(points):  # the last one first, as it may be in another
        if point.startswith((f"{tmp_path}/", f"{tmp_path_factory.getbasetemp()}/")):
            subprocess.run(["umount", "-l", point], check=True)
