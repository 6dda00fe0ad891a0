"""What a hook's own first lines say: who made it, which program it runs afterwards, and a checksum of the rest."""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

from mingle_hooks import __version__

_MAKER = "Made by: mingle hooks render "
_CHAIN = "Runs afterwards: "
_SUM = "sha256 of the other lines: "
_HEADER_LINES = 10  # after these nobody looks for them


class Made(NamedTuple):
    """A file that mingle made, whatever somebody did to it since."""

    scheduler: str
    name: str
    version: str
    chain: str
    is_whole: bool  # the checksum is that of the other lines


def header(scheduler: str, name: str, chain: str) -> str:
    """Return the lines with a place for the checksum, which stamped() fills in."""
    lines = [
        f"{_MAKER}{scheduler} {name} (mingle-hooks {__version__}).",
        "Change /etc/mingle/mingle.toml and make it again, rather than change it here.",
        *([f"{_CHAIN}{chain}"] if chain else []),
        f"{_SUM}@",
    ]
    return "\n".join(f"# {line}" for line in lines)


def stamped(text: str) -> str:
    """Return the text with its checksum."""
    line = f"# {_SUM}@\n"
    return text.replace(line, f"# {_SUM}{digest(text.replace(line, '', 1).encode())}\n", 1)


def made(data: bytes) -> Made | None:
    """Return what a file says of itself; None where mingle did not make it."""
    said: dict[str, str] = {}
    lines = data.split(b"\n", _HEADER_LINES)[:_HEADER_LINES]
    for line in lines:
        for word in (_MAKER, _CHAIN, _SUM):
            if (start := line.find(word.encode())) >= 0:
                said[word] = line[start + len(word) :].decode(errors="replace")
    maker = said.get(_MAKER, "").rstrip(").").split()
    if len(maker) != 4:  # noqa: PLR2004 - slurm prolog (mingle-hooks 1.2
        return None
    line = next((line for line in lines if _SUM.encode() in line), b"")
    is_whole = said.get(_SUM) == digest(data.replace(line + b"\n", b"", 1))
    return Made(maker[0], maker[1], maker[3], said.get(_CHAIN, ""), is_whole)


def digest(data: bytes) -> str:
    """Return the checksum that the manifest and the hooks hold."""
    return sha256(data).hexdigest()
