"""The known word that a mistyped one was probably meant to be; loaded for a mistake only, as difflib costs 5 ms."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# What people say -> what it is called here, where letters alone would lead elsewhere.
_MEANT = {
    "process": "task",
    "proc": "task",
    "rank": "task",
    "host": "node",
    "all": "gpus",
    "auto": "gpus",
    "devices": "gpus",
    "cores": "cpus",
    "torch": "torchrun",
    "pytorch": "torchrun",
    "ddp": "torchrun",
    "nfs": "directory",
    "file": "directory",
    "openmpi": "mpi",
    "start": "run",
    "launch": "run",
}
# Below this share of common letters a word is none of them: the first, the most usual one, is the better guess.
_ALIKE = 0.5


def nearest(word: object, known: Iterable[str]) -> str:
    """Return the known word that is meant, the first known where nothing is near; known must not be empty."""
    words = {name.lower(): name for name in known}
    said = str(word).lower()[:64]
    meant = _MEANT.get(said, said)
    return words[meant] if meant in words else words[(difflib.get_close_matches(said, words, 1, _ALIKE) or [*words])[0]]
