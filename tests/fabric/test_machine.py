from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from mingle_hooks.fabric.machine import identity

PRINT = [sys.executable, "-c", "from mingle_hooks.fabric.machine import identity; print(identity())"]


def test_processes_on_one_machine_have_the_same_identity() -> None:
    assert subprocess.run(PRINT, check=True, text=True, stdout=subprocess.PIPE).stdout.strip() == identity()


def test_the_identity_is_16_hex_digits() -> None:
    assert len(identity()) == 16
    assert int(identity(), 16) >= 0


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="for want of root and unshare",
)
def test_another_network_namespace_is_another_machine() -> None:
    other = subprocess.run(["unshare", "--net", *PRINT], check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
    assert other != identity()
