"""A node image with what hooks are installed beside, and `mingle hooks` run below it."""

import json
import os
from pathlib import Path

from click.testing import CliRunner, Result
from support.executables import executable

from mingle_hooks.cli.hooks import hooks

OURS = "/etc/mingle/hooks/slurm"
# What install asks for in a slurm.conf.
LINES = (f"Prolog={OURS}/prolog", f"Epilog={OURS}/epilog", f"TaskProlog={OURS}/taskprolog-all", "PrologFlags=Alloc")
MOM = "/var/spool/torque/mom_priv"
NO_CHAIN = '[hooks]\nprolog = "none"\nepilog = "none"\ntaskprolog = "none"\n'


def conf(root: Path, *lines: str) -> None:
    """Write slurm.conf."""
    path = at(root, "/etc/slurm/slurm.conf")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def call(root: Path, *argv: str, **options: str) -> Result:
    """Run `mingle hooks` below root; an error of the project comes out as itself."""
    return CliRunner().invoke(hooks, [*argv, "--root", str(root)], catch_exceptions=False, **options)


def install(root: Path, *more: str) -> Result:
    """Install Slurm's hooks below root."""
    return call(root, "install", "slurm", "--yes", *more)


def tree(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return everything below root: path -> mode, group, content or where a link leads."""
    found = {}
    for path in sorted(root.rglob("*")):
        its = path.lstat()
        data = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(root))] = (its.st_mode, its.st_gid, data)
    return found


def at(root: Path, path: str) -> Path:
    """Return a path below root."""
    return root / path.lstrip("/")


def image(root: Path) -> Path:
    """Make a node image of Slurm and Torque, with a prologue of the site's own, which is returned."""
    conf(root, "ClusterName=x")
    return program(root, f"{MOM}/prologue")


def aged(root: Path, seconds: int = 3600, boot: str = "") -> None:
    """Let the stubs of an uninstallation be from so long ago, or from another boot."""
    for path in (at(root, "/etc/mingle/hooks/manifest.json"), *at(root, "/etc/slurm").glob("*.d/.mingle-hooks.json")):
        manifest = json.loads(path.read_text())
        for row in manifest["files"]:
            its_boot, _, then = row["stub"].partition(" ")
            row["stub"] = f"{boot or its_boot} {int(then) - seconds}"
        path.write_text(json.dumps(manifest))


def program(root: Path, path: str, text: str = "#!/bin/sh\n") -> Path:
    """Put a program of the site's own below root."""
    return executable(at(root, path), text)


def key(root: Path, text: str = "ab" * 32 + "\n") -> Path:
    """Put the site's key below root."""
    found = root / "etc/mingle/key"
    found.parent.mkdir(parents=True, exist_ok=True)
    found.unlink(missing_ok=True)
    found.write_text(text)
    found.chmod(0o400)
    return found
