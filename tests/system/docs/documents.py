"""The pages of docs/, their blocks, and what the tests put on PATH to run them quickly."""

import re
import shlex
from pathlib import Path
from string import Template
from textwrap import dedent
from typing import NamedTuple

from cluster.paths import BIN
from support.executables import executable
from support.recorded import assigned

from mingle_hooks.files import toml

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
# frameworks.md is made by what runs it.
PAGES = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page.name != "frameworks.md")
# How each block is run, and each message brought about.
CASES = toml((ROOT / "tests/data/docs.toml").read_bytes())
TROUBLE = "troubleshooting.md"
KEYED = {"MINGLE_KEY": "00112233445566778899aabbccddeeff" * 2}
# They say in which world they are, in an instant. Launchers are told by PET_*, programs by RANK.
STANDINS = {
    "torchrun": 'echo "world $PET_NODE_RANK/$PET_NNODES"',
    "accelerate": 'echo "world $PET_NODE_RANK/$PET_NNODES"',
    "deepspeed": 'echo "world $NODE_RANK/$NNODES"',
    "python": 'echo "world $RANK/$WORLD_SIZE"',
}


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    language: str
    text: str


def blocks(page: str) -> list[Block]:
    """Return a page's blocks in order."""
    matches = re.findall(r"^( *)```(\w+)\n(.*?)^\1```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    return [Block(page, language, dedent(text)) for _, language, text in matches]


def find(page: str, mark: str) -> Block:
    """Return the page's block that is the mark, else the one that holds it."""
    every = blocks(page)
    (block,) = [b for b in every if b.text.strip() == mark] or [b for b in every if mark in b.text]
    return block


def worlds(output: str) -> list[str]:
    """Return what the stand-ins said, in order of their ranks."""
    return sorted(re.findall(r"\bworld (\d+/\d+)", output))


def world(size: int) -> list[str]:
    """Return what the stand-ins say in one world of that size."""
    return [f"{rank}/{size}" for rank in range(size)]


def standins(place: Path) -> Path:
    """Make a directory for PATH with mingle and the stand-ins, for every user."""
    directory = place / "bin"
    for name, line in STANDINS.items():
        executable(directory / name, f"#!/bin/sh\n{line}\n")
    (directory / "mingle").symlink_to(BIN / "mingle")
    return directory


def shown(text: str) -> str:
    """Return a pattern for a line as a page shows it; an ellipsis is anything, waits and blanks may be longer."""
    pattern = re.escape(" ".join(text.split())).replace(r"\ ", " +")
    pattern = re.sub(r"(?: \+)?…(?: \+)?", ".*", pattern)
    pattern = re.sub(r"within( \+)\d+( \+)s", r"within\1\\d+\2s", pattern)
    return re.sub(r"0\\\.\d\d( \+)s", r"\\d+\\.\\d+\1s", pattern)


def says(output: str, line: str) -> bool:
    """Tell whether a line of the output is the one that a page shows."""
    return any(re.fullmatch(shown(line), written.strip()) for written in output.splitlines())


def plain_words(line: str) -> list[str] | None:
    """Return the words behind `mingle` of a line that needs no shell, for a fork; None for any other line."""
    words = shlex.split(line)
    return words[1:] if words[0] == "mingle" and not set(line) & set("$;|&<>(`\n") else None


def environ(text: str, **values: object) -> dict[str, str]:
    """Return the variables of a case: assignments, in which $NAME is what a scheduler sets."""
    return assigned(Template(text).substitute(CASES["variables"]).format(**{"n": 2, "job": 7} | values))
