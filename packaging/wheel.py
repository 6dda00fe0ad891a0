"""Writes wheels from files that are there: netifaces, which packaging/wheels keeps, and those of the offline bundle.

`python packaging/wheel.py` makes the wheel of packaging/netifaces anew. It is kept in the repository, so that pip, pipx
and uv each install a fresh clone in one line. The octets depend on nothing but the files: nothing is compressed, as
each zlib compresses in its own way, and no time is later than the first that a zip file knows.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
WHEELS = HERE / "wheels"
NETIFACES = HERE / "netifaces"
_WHEEL = b"Wheel-Version: 1.0\nGenerator: mingle-hooks\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


class Entry(NamedTuple):
    """One file of an archive, by its path there."""

    name: str
    data: bytes


def main() -> None:
    """Make the wheel of netifaces, in place of an older one."""
    for old in WHEELS.glob("netifaces-*.whl"):
        old.unlink()
    print(pack(netifaces(), WHEELS))


def netifaces() -> list[Entry]:
    """Return the files of the distribution in packaging/netifaces."""
    metadata = (NETIFACES / "METADATA").read_bytes()
    version = dict(line.split(": ", 1) for line in metadata.decode().splitlines())["Version"]
    module = Entry("netifaces.py", (NETIFACES / "netifaces.py").read_bytes())
    return [module, Entry(f"netifaces-{version}.dist-info/METADATA", metadata)]


def pack(entries: list[Entry], directory: Path) -> Path:
    """Write a wheel for every Python of the files of a distribution, and return its path."""
    (info,) = {entry.name.partition("/")[0] for entry in entries if entry.name.endswith(".dist-info/METADATA")}
    files = [entry for entry in entries if entry.name not in {f"{info}/WHEEL", f"{info}/RECORD"}]
    files = [*sorted(files), Entry(f"{info}/WHEEL", _WHEEL)]
    record = "".join(f"{entry.name},sha256={_digest(entry.data)},{len(entry.data)}\n" for entry in files)
    made = directory / f"{info.removesuffix('.dist-info')}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as packed:
        for entry in (*files, Entry(f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode())):
            about = zipfile.ZipInfo(entry.name)
            about.external_attr = 0o644 << 16
            packed.writestr(about, entry.data)
    return made


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    main()
