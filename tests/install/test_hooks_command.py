"""`mingle hooks` as a program: its exit status, and what of its caller's environment counts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MINGLE = Path(sys.executable).with_name("mingle")


def call(root: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run it below root."""
    env = {"PATH": os.environ["PATH"], "HOME": str(root), **environ}
    command = [MINGLE, "hooks", *words, "--root", str(root)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a node image with a slurm.conf that names no hooks."""
    (tmp_path / "etc/slurm").mkdir(parents=True)
    (tmp_path / "etc/slurm/slurm.conf").write_text("ClusterName=x\n")
    return tmp_path


def test_verify_s_status_is_the_program_s(root: Path) -> None:
    """1 where there is something to mend, 0 where there is nothing: a site's checks go by it."""
    lines = call(root, "install", "slurm", "--yes").stdout.splitlines()[-4:]
    assert call(root, "verify", "slurm").returncode == 1
    assert call(root, "doctor").returncode == 1
    (root / "etc/slurm/slurm.conf").write_text("\n".join(lines) + "\n")
    (root / "etc/mingle/key").write_text("ab" * 32)
    (root / "etc/mingle/key").chmod(0o400)
    assert call(root, "verify", "slurm").returncode == 0


def test_an_admin_s_own_settings_do_not_count(root: Path) -> None:
    """A hook is the same whoever installs it; the site's file says what is in it."""
    (root / ".config/mingle").mkdir(parents=True)
    (root / ".config/mingle/mingle.toml").write_text('host_suffix = "-mine"\n')
    plain = call(root, "render", "slurm", "taskprolog").stdout
    own = call(root, "render", "slurm", "taskprolog", MINGLE_PORT_RANGE="30000-30099", MINGLE_IFACE="mine0").stdout
    assert plain == own != ""
    (root / "etc/mingle").mkdir()
    (root / "etc/mingle/mingle.toml").write_text('host_suffix = "-site"\n')
    assert "-site" in call(root, "render", "slurm", "taskprolog").stdout
