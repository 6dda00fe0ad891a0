"""What every test of the hooks needs: what they mount below a test's own directory goes with the test."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mingle_hooks.hooks import plan


@pytest.fixture(autouse=True)
def looks_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look again at once, as what is wrong in a test stays so."""
    monkeypatch.setattr(plan, "AGAIN_S", 0)


@pytest.fixture(autouse=True)
def no_mount_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Take off what hooks that ran on this machine itself have mounted."""
    yield
    points = [line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in reversed(points):  # the last one first, as it may be in another
        if point.startswith(f"{tmp_path_factory.getbasetemp()}/"):
            subprocess.run(["umount", "-l", point], check=True)
