"""What a system package puts where: a program, its pages, completion, what an admin reads. No service, no hook."""

from __future__ import annotations

import gzip
import io
import os
import re
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, NamedTuple

from build import ROOT
from licences import notice

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NAME = "mingle-hooks"
SUMMARY = "one world for all nodes of a multi-node job"
# One paragraph each, in lines that dpkg and rpm show as they are.
DESCRIPTION = """\
mingle tells every node of a job of Slurm, PBS and others who is rank 0 and
how to reach it, writes job scripts, and installs hooks that give every job
MASTER_ADDR, NODE_RANK and the rest.

This package installs, starts and enables no hook: "mingle hooks" does, when
root says so. Installed hooks stand alone. They need neither this package nor
Python, and removing it removes none of them."""
EXAMPLES = ROOT / "packaging"
DOC = f"/usr/share/doc/{NAME}"
COPYRIGHT = f"{DOC}/copyright"
# Where each shell looks; zsh has other places on Debian than elsewhere.
COMPLETION = {
    "bash": "/usr/share/bash-completion/completions/mingle",
    "zsh": "/usr/share/zsh/{}/_mingle",
    "fish": "/usr/share/fish/vendor_completions.d/mingle.fish",
}
# A user's PYTHONHOME and PYTHONPATH are for the user's own Python.
SHEBANG = "#!/usr/bin/{} -I\n"
# Of dpkg and of rpm: the first argument, when the package goes and no other version of it comes.
BEFORE_REMOVAL = """\
set -e
case $1 in
remove | 0)
    if [ -e "${DPKG_ROOT:-}/etc/mingle/hooks/manifest.json" ]; then
        echo "mingle-hooks: the hooks in /etc/mingle stay, and work without this package. To remove them:" >&2 || :
        echo "mingle-hooks: install it again, then mingle hooks uninstall slurm (or pbs, torque)" >&2 || :
    fi
    ;;
esac
exit 0
"""


class File(NamedTuple):
    """One file, by its path on the system."""

    path: str
    data: bytes
    mode: int = 0o644


def tree(archive: Path, python: str, zsh: str) -> list[File]:
    """Return all files: `archive` is mingle.pyz, `python` what runs it, `zsh` the directory of zsh's completions."""
    docs = ROOT / "docs"
    pages = [ROOT / "README.md", *docs.rglob("*.md")]
    return sorted(
        [
            File("/usr/bin/mingle", program(archive, python), 0o755),
            *(File(f"/usr/share/man/man1/{page.name}.gz", packed(page.read_bytes())) for page in docs.glob("man/*.1")),
            *(File(path.format(zsh), completion(archive, shell)) for shell, path in COMPLETION.items()),
            *(File(f"{DOC}/{page.relative_to(ROOT)}", page.read_bytes()) for page in pages),
            File(f"{DOC}/changelog.gz", packed((ROOT / "CHANGELOG.md").read_bytes())),
            *(File(f"{DOC}/examples/{path.relative_to(EXAMPLES)}", path.read_bytes()) for path in examples()),
            File(COPYRIGHT, notice(archive, source()).encode()),
        ]
    )


def examples() -> list[Path]:
    """Return the settings and the role for Ansible."""
    return [EXAMPLES / "mingle.toml", *EXAMPLES.glob("ansible/*/*.yml")]


def program(archive: Path, python: str) -> bytes:
    """Return the zip application with this Python in its first line."""
    made = io.BytesIO()
    made.write(SHEBANG.format(python).encode())
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(made, "a") as new:
        for about in old.infolist():
            new.writestr(about, old.read(about))
    return made.getvalue()


def packed(data: bytes) -> bytes:
    """Return what gzip -9n makes of it; from Python 3.15 on, gzip.compress would compress less."""
    return gzip.compress(data, 9, mtime=0)


def completion(archive: Path, shell: str) -> bytes:
    """Return what `mingle completion` prints."""
    command = [sys.executable, "-IS", archive, "completion", shell]
    return subprocess.run(command, capture_output=True, check=True).stdout


def source() -> str:
    """Return the repository's address; empty where nobody has told it."""
    return os.environ.get("MINGLE_SOURCE_URL", "").rstrip("/")


def maintainer() -> str:
    """Return whose package it is, as `Name <address>`; without an address where nobody has told it."""
    return os.environ.get("MINGLE_MAINTAINER", f"{NAME} maintainers")


def signed() -> str:
    """Return whose package it is as changelogs want it: dpkg and rpm read no line without the two brackets."""
    return maintainer() if maintainer().endswith(">") else f"{maintainer()} <>"


def version() -> str:
    """Return the project's version."""
    return re.findall(r'^__version__ = "(.*)"$', (ROOT / "mingle_hooks/__init__.py").read_text(), re.MULTILINE)[0]


def lay(files: Iterable[File], place: Path) -> None:
    """Write the files below a directory; their modes are the same whatever the umask."""
    for file in files:
        path = place / file.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
        path.chmod(file.mode)
    for directory, _, _ in os.walk(place):
        os.chmod(directory, 0o755)  # noqa: S103 - as every directory below /usr
