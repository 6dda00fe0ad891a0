"""`make packages`: sdist, wheel and mingle.pyz, into a directory; the same sources always give the same octets."""

from __future__ import annotations

import os
import py_compile
import re
import subprocess
import sys
import time
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MAIN = "from mingle_hooks.__main__ import main\n\nmain()\n"
# Of what the packages need, what has to be compiled for each Python. multicast-expert asks for it by itself; without
# it members find each other by every backend but multicast.
COMPILED = ("netifaces",)
_NOT_SHIPPED = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}  # they tell of this machine
_EARLIEST = 315_532_800  # 1980, before which a zip file knows no time


class Entry(NamedTuple):
    """One file of the archive, by its path there."""

    name: str
    data: bytes


def main(directory: str) -> None:
    """Make all three."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch())}
    command = [sys.executable, "-m", "hatchling", "build", "-d", os.path.abspath(directory)]
    subprocess.run(command, cwd=ROOT, env=environ, check=True, capture_output=True)
    (wheel,) = Path(directory).glob("*.whl")
    archive = Path(directory) / "mingle.pyz"
    archive.write_bytes(b"#!/usr/bin/env python3\n")
    _write(archive, compiled([Entry("__main__.py", MAIN.encode()), *_unpacked(wheel), *_dependencies(wheel)]))
    archive.chmod(0o755)
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


def _dependencies(wheel: Path) -> list[Entry]:
    """Return the files of what this Python has installed of the wheel's dependencies, and of theirs."""
    with zipfile.ZipFile(wheel) as packed:
        (name,) = [name for name in packed.namelist() if name.endswith("dist-info/METADATA")]
        wanted = required(re.findall(r"^Requires-Dist: (.*)$", packed.read(name).decode(), re.MULTILINE))
    found: dict[str, list[Entry]] = {}
    while wanted:
        project = wanted.pop()
        if project not in found and project not in COMPILED:
            its = distribution(project)
            wanted += required(its.requires or [])
            files = [file for file in its.files or () if _is_shipped(str(file))]
            found[project] = [Entry(str(file), file.read_binary()) for file in files]
    return [entry for entries in found.values() for entry in entries]


def required(lines: list[str]) -> list[str]:
    """Return the projects that this Python needs, by lines such as `tomli>=2.0; python_version < '3.11'`."""
    old = re.compile(r"python_version < ['\"]3\.(\d+)['\"]")
    pairs = [(re.split("[^A-Za-z0-9._-]", line)[0], line.partition(";")[2]) for line in lines]
    return [name.lower() for name, marker in pairs if not marker or _is_for(marker, old)]


def _is_for(marker: str, old: re.Pattern[str]) -> bool:
    """Tell of the one kind of marker that counts here; extras and other systems do not."""
    found = old.fullmatch(marker.strip())
    return found is not None and sys.version_info < (3, int(found[1]))


def _is_shipped(path: str) -> bool:
    inside = not path.startswith((".", "/")) and "__pycache__" not in path
    return inside and not path.endswith((".so", ".pyi", ".c")) and Path(path).name not in _NOT_SHIPPED


def compiled(entries: list[Entry]) -> list[Entry]:
    """Add to each module what this Python makes of it: it then starts as fast as if it were installed.

    Another Python takes the source.
    """
    found = {entry.name: entry for entry in entries}
    with TemporaryDirectory() as directory:
        source, made = f"{directory}/source.py", f"{directory}/made.pyc"
        for entry in entries:
            if entry.name.endswith(".py"):
                Path(source).write_bytes(entry.data)
                # Unchecked: nobody changes one file of a zip file, and times in it differ.
                mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
                py_compile.compile(source, made, entry.name, doraise=True, invalidation_mode=mode)
                found[f"{entry.name}c"] = Entry(f"{entry.name}c", Path(made).read_bytes())
    return sorted(found.values())


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
