"""A node image with what hooks are installed beside, and `mingle hooks` run below it."""

from __future__ import annotations

import os
from pathlib import Path

from click.testing import CliRunner, Result

from mingle_hooks.cli.hooks import hooks

OURS = "/etc/mingle/hooks/slurm"
MOM = "/var/spool/torque/mom_priv"
NO_CHAIN = '[hooks]\nprolog = "none"\nepilog = "none"\ntaskprolog = "none"\n'


def conf(root: Path, *lines: str) -> None:
    """Write slurm.conf."""
    (root / "etc/slurm/slurm.conf").write_text("\n".join(lines) + "\n")


def call(root: Path, *argv: str, **options: str) -> Result:
    """Run `mingle hooks` below root; an error of the project comes out as itself."""
    return CliRunner().invoke(hooks, [*argv, "--root", str(root)], catch_exceptions=False, **options)


def tree(root: Path) -> dict[str, tuple[int, str]]:
    """Return everything below root: path -> mode and content."""
    found = {}
    for path in sorted(root.rglob("*")):
        text = path.read_text(errors="replace") if path.is_file() else ""
        found[str(path.relative_to(root))] = (path.lstat().st_mode, text)
    return found


def at(root: Path, path: str) -> Path:
    """Return a path below root."""
    return root / path.lstrip("/")


def image(root: Path) -> Path:
    """Make a node image of Slurm and Torque, with a prologue of the site's own, which is returned."""
    (root / "etc/slurm").mkdir(parents=True)
    conf(root, "ClusterName=x")
    return program(root, f"{MOM}/prologue")


def program(root: Path, path: str, text: str = "#!/bin/sh\n") -> Path:
    """Put a program of the site's own below root."""
    found = at(root, path)
    found.parent.mkdir(parents=True, exist_ok=True)
    found.write_text(text)
    found.chmod(0o755)
    return found


def key(root: Path, text: str = "ab" * 32 + "\n", mode: int = 0o400) -> Path:
    """Put the site's key below root."""
    found = root / "etc/mingle/key"
    found.parent.mkdir(parents=True, exist_ok=True)
    found.unlink(missing_ok=True)
    found.write_text(text)
    found.chmod(mode)
    return found


# What may be wrong with an installed hook.
SPOILERS = {
    "content": lambda path: path.write_text("#!/bin/sh\n"),
    "mode": lambda path: path.chmod(0o775),
    "not runnable": lambda path: path.chmod(0o644),
    "missing": lambda path: path.unlink(),
    "owner": lambda path: os.chown(path, 1, -1),
    "parent": lambda path: path.parent.chmod(0o777),
    "parent of another's": lambda path: os.chown(path.parent, 61001, -1),
    "closed parent": lambda path: path.parent.parent.chmod(0o700),
}
