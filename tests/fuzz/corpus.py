"""The inputs that are kept, for each target a file with one in each line, in Python's escapes; and real shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from mingle_hooks.files import toml

FOLDER = Path(__file__).parent / "corpus"
DATA = Path(__file__).parents[1] / "data"


def kept(name: str) -> list[bytes]:
    """Return the kept inputs of a target; the shortest comes first."""
    path = FOLDER / f"{name}.txt"
    return [unescaped(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep(name: str, inputs: Iterable[bytes]) -> int:
    """Write a target's file, and return how many inputs it has."""
    found = sorted(set(inputs), key=lambda data: (len(data), data))
    (FOLDER / f"{name}.txt").write_text("".join(f"{escaped(data)}\n" for data in found))
    return len(found)


def escaped(data: bytes) -> str:
    """Return bytes as one line of printable ASCII."""
    return data.decode("latin-1").encode("unicode_escape").decode("ascii")


def unescaped(line: str) -> bytes:
    """Return the bytes of a line."""
    return line.encode("ascii").decode("unicode_escape").encode("latin-1")


def shapes(name: str) -> Iterator[bytes]:
    """Yield what the other tests have for a target: job scripts, recorded environments and node files."""
    if name == "job_script":
        for path in sorted((DATA / "lint").glob("*.toml")):
            yield from (form["script"].lstrip("\n").encode() for form in toml(path.read_bytes())["form"])
    elif name in ("scheduler", "request"):
        for path in sorted((DATA / "recorded").glob("*/*")):
            if path.name.split(".")[0] in ("batch", "task", "tm", "tmrsh", "job"):
                yield path.read_bytes().rstrip(b"\n").replace(b"\n", b"\0")
    elif name == "node_file":
        yield from (path.read_bytes() for path in sorted((DATA / "recorded").glob("*/nodefile.*")))
    elif name == "settings_file":
        yield (DATA / "site.toml").read_bytes()
