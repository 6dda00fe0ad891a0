"""`make packages`: sdist, wheel, mingle.pyz and the offline bundle; the same sources always give the same octets."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory

from sbom import write as write_sbom
from wheel import Entry, netifaces, pack

ROOT = Path(__file__).resolve().parent.parent
# What `mingle run` starts on a node begins with the word mingle_hooks/__main__.py: see files.py there.
MAIN = """\
import sys

if sys.argv[1:2] == ["mingle_hooks/__main__.py"]:
    from mingle_hooks.__main__ import start as main
    del sys.argv[1]
else:
    from mingle_hooks.cli.main import main

main()
"""
OFFLINE = """\
mingle with all that it needs, for Python 3.10 and later on Linux. In a virtual environment, without a network:

    pip install --no-index --find-links {name} mingle-hooks
"""
_NOT_SHIPPED = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}  # they tell of this machine
_EARLIEST = 315_532_800  # 1980, before which a zip file knows no time


def main(directory: str) -> None:
    """Make all four, and the bill of materials."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch())}
    command = [sys.executable, "-m", "hatchling", "build", "-d", os.path.abspath(directory)]
    subprocess.run(command, cwd=ROOT, env=environ, check=True, capture_output=True)
    wheel = max(Path(directory).glob("*.whl"), key=lambda path: path.stat().st_mtime)  # an older version may be there
    needed = dependencies(wheel)
    archive = Path(directory) / "mingle.pyz"
    archive.write_bytes(b"#!/usr/bin/env python3\n")
    others = [entry for entries in needed for entry in entries]
    _write(archive, compiled([Entry("__main__.py", MAIN.encode()), *_unpacked(wheel), *others]))
    archive.chmod(0o755)
    write_sbom(archive, epoch())
    offline(wheel, needed)
    for made in sorted(Path(directory).iterdir()):
        print(f"{made.stat().st_size:9} {made}")


def epoch() -> int:
    """Return the time that everything in the packages gets: SOURCE_DATE_EPOCH, or else the last commit's."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    asked = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    return int(asked.stdout or _EARLIEST)


def _unpacked(wheel: Path) -> list[Entry]:
    with zipfile.ZipFile(wheel) as packed:
        return [Entry(name, packed.read(name)) for name in packed.namelist() if ".data/" not in name]


def dependencies(wheel: Path) -> list[list[Entry]]:
    """Return the files of each project that a wheel needs on any Python, as installed here, and of those they need.

    netifaces is our own, whichever is installed.
    """
    with zipfile.ZipFile(wheel) as packed:
        (name,) = [name for name in packed.namelist() if name.endswith("dist-info/METADATA")]
        wanted = required(re.findall(r"^Requires-Dist: (.*)$", packed.read(name).decode(), re.MULTILINE))
    found = {"netifaces": netifaces()}
    while wanted:
        if (project := wanted.pop()) not in found:
            its = distribution(project)
            wanted += required(its.requires or [])
            files = [file for file in its.files or () if _is_shipped(str(file))]
            found[project] = [Entry(str(file), file.read_binary()) for file in files]
    return [found[project] for project in sorted(found)]


def required(lines: list[str]) -> list[str]:
    """Return the projects that some Python needs, by lines such as `tomli>=2.0; python_version < '3.11'`.

    Extras and other systems do not count.
    """
    pairs = [(re.split("[^A-Za-z0-9._-]", line)[0], line.partition(";")[2].strip()) for line in lines]
    return [name.lower() for name, marker in pairs if not marker or marker.startswith("python_version <")]


def offline(wheel: Path, needed: list[list[Entry]]) -> Path:
    """Write a tar file of wheels: this one, and one for any Python of each project that it needs."""
    name = "-".join(wheel.name.split("-")[:2]).replace("_", "-") + "-offline"
    made = wheel.with_name(f"{name}.tar")
    with TemporaryDirectory() as place:
        for entries in needed:
            pack(entries, Path(place))
        shutil.copy(wheel, place)
        Path(place, "README").write_text(OFFLINE.format(name=name))
        with tarfile.open(made, "w") as packed:
            for path in sorted(Path(place).iterdir()):
                about = tarfile.TarInfo(f"{name}/{path.name}")
                about.size, about.mtime = path.stat().st_size, epoch()
                packed.addfile(about, io.BytesIO(path.read_bytes()))
    return made


def _is_shipped(path: str) -> bool:
    inside = not path.startswith((".", "/")) and "__pycache__" not in path
    return inside and not path.endswith((".so", ".pyi", ".c")) and Path(path).name not in _NOT_SHIPPED


def compiled(entries: list[Entry]) -> list[Entry]:
    """Add to each module what this Python makes of it: it then starts as fast as if it were installed.

    Another Python takes the source.
    """
    command = [sys.executable, "-m", "compileall", "-q", "-b", "--invalidation-mode", "unchecked-hash"]
    with TemporaryDirectory() as directory:
        for entry in entries:
            path = Path(directory, entry.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(entry.data)
        # Unchecked: nobody changes one file of a zip file, and times in it differ. Python 3.10 writes a set in the
        # order of its hashes.
        environ = {**os.environ, "PYTHONHASHSEED": "0"}
        subprocess.run([*command, "-s", directory, directory], env=environ, check=True)
        made = Path(directory).rglob("*.pyc")
        return sorted([*entries, *(Entry(str(path.relative_to(directory)), path.read_bytes()) for path in made)])


def _write(archive: Path, entries: list[Entry]) -> None:
    """Append a zip file. It is not compressed: every start reads it."""
    when = time.gmtime(max(epoch(), _EARLIEST))[:6]
    with zipfile.ZipFile(archive, "a") as packed:
        for entry in entries:
            about = zipfile.ZipInfo(entry.name, when)
            about.external_attr = 0o644 << 16
            packed.writestr(about, entry.data)


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["dist"]))
