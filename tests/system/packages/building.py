"""Making the packages as `make packages` does, and running what is in them."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import mingle_hooks

ROOT = Path(__file__).parents[3]
ZIP = "mingle.pyz"
VERSION = mingle_hooks.__version__
OFFLINE = f"mingle-hooks-{VERSION}-offline.tar"
SBOM = f"mingle-hooks-{VERSION}.cdx.json"
DEB, RPM = f"mingle-hooks_{VERSION}-1_all.deb", f"mingle-hooks-{VERSION}-1.noarch.rpm"
EPOCH = {"SOURCE_DATE_EPOCH": "1700000000"}


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a directory that one of the processes that run tests makes; the others wait for it."""
    base = factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            begun = Path(tempfile.mkdtemp(dir=place.parent))
            begun.chmod(0o755)
            make(begun)
            begun.rename(place)
    return place


def build(root: Path, place: Path) -> Path:
    """Make all packages of a source tree."""
    script = root / "packaging" / "build.py"
    environ = {"PATH": os.environ["PATH"], **EPOCH}
    done = subprocess.run([sys.executable, script, place], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return place


def build_system(place: Path, archive: Path, umask: str = "022", path: str = os.environ["PATH"], **given: str) -> str:
    """Make all system packages that this machine can in a directory, of this mingle.pyz; return what was said."""
    shutil.copy(archive, place / ZIP)
    script = f"umask {umask}; exec {sys.executable} {ROOT}/packaging/system.py {place}"
    environ = {"PATH": path, "TZ": "Asia/Tokyo" if umask == "077" else "UTC", **EPOCH, **given}
    done = subprocess.run(["/bin/sh", "-c", script], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def digests(place: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in place.iterdir()}


def output(*argv: str | Path, cwd: Path) -> str:
    """Return what a program prints that succeeds, with nothing of the tests' environment."""
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(cwd)}
    done = subprocess.run(argv, env=environ, cwd=cwd, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout
